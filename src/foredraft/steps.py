"""What a step did and what it cost: the record that metrics, the governor and traces learn from. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The phases of a step, between whose ends its whole time is shared out.
PHASES = {
    "schedule": "choosing who takes part, preempting and admitting",
    "propose": "the proposers' drafts",
    "forward": "the target's pass",
    "decide": "sampling, verification, stops, text and the KV cache",
    "observe": "telling the proposers what became of their drafts",
}

# Why a sequence decided a token without a draft.
NO_DRAFT_REASONS = {
    "off": "speculation is off for the request or its pool",
    "crowded": "more answers of the pool are running than it may draft for",
    "not_worth_it": "the governor found that no draft would pay",
    "no_proposer": "the request and the model have no proposer",
    "no_budget": "no drafted token could be kept: k is 0, the answer ends with this token, or no page is free",
    "failed": "each of its proposers has failed",
    "no_match": "none of its proposers had anything to offer",
}


@dataclass(frozen=True)
class DraftOutcome:
    """What became of one draft: tokens drafted, which of them were accepted and kept (their places in the draft, from
    its root down; 0, 1, 2, ... in a chain), and whether the target refused what follows those."""

    context_id: int
    proposer: str
    num_tokens: int
    path: tuple[int, ...]
    is_rejected: bool

    @property
    def num_accepted(self) -> int:
        return len(self.path)


@dataclass(frozen=True)
class StepRecord:
    """One step. `drafts` and `undrafted` together name every sequence that decided a token in it.

    num_sequences: sequences that took part. num_prompt_rows: rows that read prompts (or, after a preemption, read a
    sequence again); num_decode_rows: last tokens of sequences that go on. undrafted: context id to one of
    NO_DRAFT_REASONS. num_tokens: tokens kept, by context id; routes: of these contexts. phase_seconds: time by PHASES;
    their sum is the time of the step.
    """

    step: int
    num_sequences: int
    num_prompt_rows: int
    num_decode_rows: int
    num_draft_rows: int
    drafts: tuple[DraftOutcome, ...]
    undrafted: Mapping[int, str]
    num_tokens: Mapping[int, int]
    routes: Mapping[int, str]
    phase_seconds: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return sum(self.phase_seconds.values())

    @property
    def num_rows(self) -> int:
        return self.num_prompt_rows + self.num_decode_rows + self.num_draft_rows
