"""Predicted outputs: draft from the text that the caller expects, wherever the output has got to in it.

An edit repeats most of a file. The prediction is followed token by token from its beginning; where the output says
something else, the place to go on from is looked for: after the longest n-gram of newest output tokens that stands
ahead in the prediction, else after the newest token where it stands near by, else after the token that was replaced.
Ahead means past what was followed for some tokens, so that a chance match far ahead is taken back by the next mismatch.
Simulated at k = 8 over Python files: a deleted block leaves 8.7 tokens per step, a renamed variable 8.6, a comment put
behind eight lines 6.9 together with lookup, which knows the new words once they have been written.

A token of the output costs a few look-ups and never a rescan; a prediction is indexed once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.core import Context, Draft
from foredraft.proposers import PREDICTION
from foredraft.proposers.base import Proposer

_LENGTHS = range(5, 1, -1)  # of n-grams, the longest first
_LENGTHS_WHEN_LOST = range(5, 2, -1)  # shorter matches are mostly chance
_SHIFTS = sorted(range(-8, 9), key=abs)  # where a single token is looked for around the expected place, nearest first
_SURE = 8  # tokens in a row as expected before the output has come this far for sure
_LOST = 2  # tokens in a row not as expected before nothing is drafted until there is a match
_NEAR_LOST = 8  # as many, and the match of a single token is no longer trusted


_Ends = dict[int, dict[tuple[int, ...], list[int]]]


def _ends(prediction: tuple[int, ...]) -> _Ends:
    found: _Ends = {n: {} for n in _LENGTHS}
    for n, ends in found.items():
        for end in range(n, len(prediction) + 1):
            ends.setdefault(prediction[end - n : end], []).append(end)
    return found


@dataclass
class _Alignment:
    """How an output goes along a prediction.

    `ends[n]` maps an n-gram to the positions after its occurrences, ascending. `place` is the position of the token
    expected next, `reached` the end of what was followed for sure. `num_seen` counts the context's tokens taken in,
    `num_hits` and `num_misses` how many of the newest were as expected, or were not. While `is_lost`, nothing is
    drafted.
    """

    prediction: tuple[int, ...]
    num_seen: int
    ends: _Ends
    place: int = 0
    reached: int = 0
    num_hits: int = 0
    num_misses: int = 0
    is_lost: bool = False

    def follow(self, tokens: list[int], prompt_len: int) -> None:
        """Take in the tokens that came since the last call."""
        for position in range(self.num_seen, len(tokens)):
            token = tokens[position]
            if self.place < len(self.prediction) and self.prediction[self.place] == token:
                self.place, self.num_hits, self.num_misses = self.place + 1, self.num_hits + 1, 0
                self.is_lost = False
                if self.num_hits >= _SURE:
                    self.reached = self.place
            else:
                self.num_hits, self.num_misses = 0, self.num_misses + 1
                self._find_place(tokens[max(prompt_len, position + 1 - _LENGTHS[0]) : position + 1])
        self.num_seen = len(tokens)

    def _find_place(self, newest: list[int]) -> None:
        for n in _LENGTHS_WHEN_LOST if self.is_lost else _LENGTHS:
            ends = self.ends[n].get(tuple(newest[-n:]), ())
            first = bisect_left(ends, self.reached + 1)
            if first < len(ends):
                self.place, self.is_lost = ends[first], False
                return
        self.place += 1
        near = next((p for p in (self.place + shift for shift in _SHIFTS) if self._ends_at(p, newest[-1])), None)
        self.is_lost = self.num_misses >= (_LOST if near is None else _NEAR_LOST)
        self.place = self.place if near is None else near

    def _ends_at(self, place: int, token: int) -> bool:
        return self.reached < place <= len(self.prediction) and self.prediction[place - 1] == token


class Prediction(Proposer):
    """Drafts from `Context.prediction`; nothing where there is none, or where the output has left it."""

    name = PREDICTION
    is_free = True

    def __init__(self) -> None:
        self._alignments: dict[int, _Alignment] = {}

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        return [self._draft(context, budget) for context, budget in zip(contexts, budgets, strict=True)]

    def release(self, context_id: int) -> None:
        self._alignments.pop(context_id, None)

    def _draft(self, context: Context, budget: int) -> Draft | None:
        alignment = self._alignments.get(context.id)
        if alignment is None:
            same = (a.ends for a in self._alignments.values() if a.prediction is context.prediction)  # other choices
            ends = next(same, None) or _ends(context.prediction)
            alignment = self._alignments[context.id] = _Alignment(context.prediction, context.prompt_len, ends)
        alignment.follow(context.tokens, context.prompt_len)
        if alignment.is_lost:
            return None
        tokens = context.prediction[alignment.place : alignment.place + budget]
        return Draft.chain(self.name, tokens) if tokens else None


def create(resources: object) -> Prediction:
    """The factory of the proposer registry; predictions come with the requests."""
    return Prediction()
