"""Suffix decoding: draft what followed the longest suffix of prompt and output most often (Oliaro et al. 2411.04975).

Of a suffix that occurs before, the index knows what followed it each time, so that a draft goes the way that was taken
most, and tells how sure it is: by the share of the occurrences that went this way, by the length of the suffix, which
grows with each token, and by how often it occurs at all. It goes on for as long as that promises enough. So a text that
repeats itself is drafted far ahead, and one that begins to repeat itself by a few tokens.

Recorded texts of a 135M model took 3.0 tokens per step on code edits at k = 4 (lookup: 2.8), 2.5 on quotes (2.1), 2.6
on code (2.3), and 1.3 on chats (1.2).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from foredraft.core import Context, Draft
from foredraft.proposers.base import Proposer
from foredraft.proposers.suffix_index import Match, SuffixIndex

# What a suffix of one token that occurs once lacks to be trusted; found on recorded texts, in which such a suffix is
# right in 4 of 10 cases, one of 4 tokens in 7, and two occurrences that were followed alike in 9 of 10.
_DOUBT = 1.5
_LEAST = 0.2  # chance that all of a draft is accepted, below which it ends
_GRADES = (0.3, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98)  # chances from which on a token is surer


@dataclass
class _Sequence:
    """The index of one sequence, over all its tokens."""

    index: SuffixIndex = field(default_factory=SuffixIndex)
    num_tokens: int = 0

    def take_in(self, tokens: list[int]) -> None:
        """The tokens that came since the last call."""
        for position in range(self.num_tokens, len(tokens)):
            self.index.append(tokens[position])
        self.num_tokens = len(tokens)


class Suffix(Proposer):
    """A draft's grades are steps of its tokens' chances."""

    name = "suffix"
    is_free = True

    def __init__(self) -> None:
        self._sequences: dict[int, _Sequence] = {}

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        return [self._draft(context, budget) for context, budget in zip(contexts, budgets, strict=True)]

    def release(self, context_id: int) -> None:
        self._sequences.pop(context_id, None)

    def _draft(self, context: Context, budget: int) -> Draft | None:
        sequence = self._sequences.setdefault(context.id, _Sequence())
        sequence.take_in(context.tokens)
        index = sequence.index
        tokens, chances = _continuation(index, index.of_itself(), budget)
        grades = [bisect_right(_GRADES, chance) for chance in chances]
        return Draft.chain(self.name, tokens, grades=grades) if tokens else None


def _continuation(index: SuffixIndex, match: Match, budget: int) -> tuple[list[int], list[float]]:
    """At most `budget` tokens that followed a match most often, and the chance of each once those before are right."""
    tokens: list[int] = []
    chances: list[float] = []
    state, length = next(index.contexts(match), (0, 0))
    chance_of_all = 1.0
    while len(tokens) < budget:
        token, count, following = index.likeliest(state)
        if token < 0 or not length:
            break
        chance = _chance(count, index.num_followed(state), length)
        chance_of_all *= chance
        if chance_of_all < _LEAST:
            break
        tokens.append(token)
        chances.append(chance)
        state, length = following, length + 1
    return tokens, chances


def _chance(count: int, num_followed: int, length: int) -> float:
    """Of a token that came next in `count` of `num_followed` cases in which a suffix of this length was followed."""
    return count / num_followed / (1 + _DOUBT / (length * num_followed**2))


def create(resources: object) -> Suffix:
    """The factory of the proposer registry."""
    return Suffix()
