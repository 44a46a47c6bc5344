"""The nouns of a decision about drafts: what is known before a step, and what is done in it. No I/O, no clock.

A step's *snapshot* has a *seat* for every sequence that decides a token and leaves its drafts to the governor. A seat
has *candidates*: ways to draft for it. The *plan* names at most one of them for each seat, and how far it may go.
Snapshots and plans are plain values, so that a decision can be saved and taken again by another policy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise


@dataclass(frozen=True)
class PassCost:
    """Seconds of a model's pass over so many rows, linear between knots and on beyond the last.

    rows, seconds: the knots, rising, the first at 1 row, before any context. sequence_token_s: seconds for each token
    of a sequence's context, whose keys and values are read; row_token_s: the same for each row of the sequence.
    """

    rows: tuple[int, ...]
    seconds: tuple[float, ...]
    sequence_token_s: float = 0.0
    row_token_s: float = 0.0

    def __call__(self, rows: float, sequence_context: float = 0, row_context: float = 0) -> float:
        """Of a pass over so many rows. sequence_context: the context's tokens, summed over sequences; row_context: the
        same over rows."""
        at = self._segment(rows)
        seconds = self.seconds[at] + (rows - self.rows[at]) * self.slopes[at]
        return seconds + sequence_context * self.sequence_token_s + row_context * self.row_token_s

    @property
    def row_s(self) -> float:
        """What one more row costs beyond the last knot."""
        return self.slopes[-1]

    def least_row_s(self, rows: float) -> float:
        """The least that one more row costs, at this number of rows or any higher one."""
        return min(self.slopes[self._segment(rows) :])

    @cached_property
    def slopes(self) -> tuple[float, ...]:
        """Seconds for each row from a knot to the next, and beyond the last."""
        if len(self.rows) == 1:
            return self.seconds
        knots = list(zip(self.rows, self.seconds, strict=True))
        between = [(s2 - s1) / (r2 - r1) for (r1, s1), (r2, s2) in pairwise(knots)]
        return (*between, between[-1])

    def _segment(self, rows: float) -> int:
        return max(bisect_right(self.rows, rows) - 1, 0)


@dataclass(frozen=True)
class Candidate:
    """A way to draft for a sequence.

    survival[i]: the chance that the draft's token i and all before it are accepted; falling. Any number of tokens from
    the front makes a draft. is_ready: the draft is there and only costs rows; else its proposer has to run, a pass for
    each depth. reach[i]: the chance that it gets to this token, and does not end the draft before; empty where it
    always does. catch_up: tokens that its proposer would have to read first. width: most children of a token, where
    the proposer has to run. parents: of the tokens of a tree, as in core.Draft, as far as can be told before it has
    grown; empty for a chain. is_at_once: where the proposer has to run, a single pass makes the whole draft.
    """

    proposer: str
    survival: tuple[float, ...]
    is_ready: bool
    reach: tuple[float, ...] = ()
    catch_up: int = 0
    width: int = 1
    parents: tuple[int, ...] = ()
    is_at_once: bool = False

    @cached_property
    def depths(self) -> Sequence[int]:
        """Of each token, from 0."""
        if not self.parents:
            return range(len(self.survival))
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths

    @cached_property
    def rows(self) -> Sequence[int]:
        """How many rows of its proposer's passes each token adds: 1 for the first child of its parent, else 0."""
        if self.is_at_once:
            return [1] + [0] * (len(self.survival) - 1)
        if not self.parents:
            return [1] * len(self.survival)
        return [parent not in self.parents[:place] for place, parent in enumerate(self.parents)]

    def down_to(self, depth: int) -> Candidate:
        """As many tokens from the front as are no deeper than so many tokens."""
        if not self.parents:
            return replace(self, survival=self.survival[:depth])
        count = next((place for place, own in enumerate(self.depths) if own >= depth), len(self.depths))
        return replace(self, survival=self.survival[:count], parents=self.parents[:count])


@dataclass(frozen=True)
class Seat:
    """A sequence that decides a token in this step; without candidates where it may not be drafted for.

    horizon: steps over which reading up for a proposer has to pay.
    """

    context_id: int
    route: str
    context_len: int
    horizon: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Snapshot:
    """All that a policy may look at.

    credits_s: by which time the sequences of each route are ahead of where they would be without drafts, in the mean.
    num_rows, sequence_context, row_context: of the pass as it is without these seats' drafts, other sequences' rows
    included (see PassCost); other_tokens: what those sequences should get out of it. has_prompt_rows: some rows read
    prompts. draft_costs: passes of each proposer that has to run. overhead_s: what deciding and asking ready proposers
    takes in a step. rate: tokens per second of the last steps. is_drafting: whether the last plan had drafts.
    """

    step: int
    seats: tuple[Seat, ...]
    credits_s: Mapping[str, float]
    num_rows: int
    sequence_context: int
    row_context: int
    other_tokens: float
    has_prompt_rows: bool
    pass_cost: PassCost
    draft_costs: Mapping[str, PassCost]
    overhead_s: float
    rate: float
    is_drafting: bool


@dataclass(frozen=True)
class Choice:
    """Who drafts for a seat, and at most how many tokens (1 or more); width: most children of a token."""

    proposer: str
    num_tokens: int
    width: int = 1

    def among(self, seat: Seat) -> Candidate | None:
        """The candidate that is chosen."""
        own = (each for each in seat.candidates if (each.proposer, each.width) == (self.proposer, self.width))
        return next(own, None)


@dataclass(frozen=True)
class Plan:
    """choices: by context id; a seat without one gets no draft. expected_tokens: of all seats, those included that the
    target adds. step_s: what passes and drafts should take; plain_s: what the pass would take without drafts."""

    choices: Mapping[int, Choice]
    expected_tokens: float
    step_s: float
    plain_s: float

    @property
    def num_draft_tokens(self) -> int:
        return sum(choice.num_tokens for choice in self.choices.values())
