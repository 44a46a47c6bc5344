"""What passes cost and how far proposers that run a model have read, as steps tell it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from foredraft.core import Draft
from foredraft.governor.cost_curve import Curves
from foredraft.governor.plan import Snapshot
from foredraft.governor.policy import START_GAIN
from foredraft.governor.turns import Load, Run, Runner, Turn
from foredraft.steps import StepRecord

RECENT_STEPS = 32  # for which a bound on rows is kept


class Costs:
    """The cost curves, corrected by what steps took."""

    def __init__(self, measure: Callable[[], Curves]) -> None:
        """measure: makes the curves, called before the first decision."""
        self._measure = measure
        self._read: dict[int, dict[str, int]] = {}  # by context and proposer: tokens when it last ran
        self._most_rows: dict[int, tuple[int, int]] = {}  # by sequences: the step it was worked out in, and most rows

    @cached_property
    def curves(self) -> Curves:
        return self._measure()

    @property
    def known(self) -> Curves | None:
        """The curves where they have been measured."""
        return vars(self).get("curves")

    def most_rows(self, num_sequences: int, step: int) -> int:
        """How many rows a pass for so many sequences may have: as many as would give the most tokens per second if all
        drafts were right. No more than `num_sequences` where even that would not pay."""
        since, most = self._most_rows.get(num_sequences, (step - RECENT_STEPS, 0))
        if step - since >= RECENT_STEPS:
            cost = self.curves.target.cost
            # Between two knots the rate has no maximum, since the cost is a straight line.
            options = [num_sequences, *(rows for rows in cost.rows if rows > num_sequences)]
            most = max(options, key=lambda rows: rows / cost(rows))
            if most / cost(most) <= (1 + START_GAIN) * num_sequences / cost(num_sequences):
                most = num_sequences
            self._most_rows[num_sequences] = step, most
        return most

    def catch_up(self, turn: Turn, proposer: str, depth: int) -> int:
        """Tokens that a proposer has to read before it drafts so many; what a draft is followed by is read with it."""
        return self._num_behind(turn.context.id, proposer, len(turn.context.tokens) - depth, turn.runners[proposer])

    def learn_pass(self, record: StepRecord, load: Load, drafts: Mapping[int, Draft], looked: Snapshot | None) -> None:
        """From the target's pass over these drafts. looked: what was known before it, where anybody looked."""
        if load.has_prompt_rows:
            return  # rows whose logits nobody wants are cheaper
        context_len = {seat.context_id: seat.context_len for seat in looked.seats} if looked else {}
        row_context = load.row_context + sum(len(d.tokens) * context_len[id_] for id_, d in drafts.items())
        self.curves.target.observe(
            load.num_rows + sum(len(draft.tokens) for draft in drafts.values()),
            load.sequence_context,
            row_context,
            record.phase_seconds["forward"] + record.phase_seconds["decide"],
        )

    def learn_runs(self, runs: Mapping[str, Run]) -> None:
        """From what proposers took that ran a model."""
        for name, run in runs.items():
            cost = self.curves.draft(name).cost
            num_behind = 0
            for context_id, num_tokens in run.context_lens.items():
                num_behind += self._num_behind(context_id, name, num_tokens, run.runner)
                self._read.setdefault(context_id, {})[name] = num_tokens
            if (expected_s := sum(map(cost, run.num_rows.values())) + num_behind * cost.row_s) > 0:
                self.curves.draft(name).observe_ratio(run.seconds / expected_s)

    def release(self, context_id: int) -> None:
        """A sequence has ended."""
        self._read.pop(context_id, None)

    def _num_behind(self, context_id: int, proposer: str, num_tokens: int, runner: Runner) -> int:
        """Tokens that came without it, as far as it reads them; but for the newest, which any draft begins with."""
        behind = num_tokens - self._read.get(context_id, {}).get(proposer, 0) - 1
        return max(0, behind if runner.most_catch_up is None else min(behind, runner.most_catch_up))
