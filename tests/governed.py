"""The fakes' engine on a clock of its own: a pass takes what a curve says, a proposer what it is made with.

What the governor does is then the same in every run, and a test can say what would pay.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest

from fakes import PAGE_SIZE, VOCAB, FakeProposer, PathModel
from foredraft.core import Context, Draft, FloatArray
from foredraft.engine import engine as engine_module
from foredraft.engine.engine import Engine
from foredraft.engine.record import StepRecorder
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.governor.cost_curve import CostCurve, Curves
from foredraft.governor.governor import Governor
from foredraft.governor.plan import PassCost
from foredraft.governor.pools import PoolConfig
from foredraft.governor.profile import Point
from foredraft.kv.cache import PagedKV
from foredraft.ops.base import Batch
from foredraft.proposers.base import Proposer
from foredraft.steps import StepRecord

FLAT = PassCost((1, 8, 16), (0.050, 0.052, 0.060))  # rows are nearly free
MEASURED = PassCost((1, 2, 4, 8, 16, 32), (0.050, 0.051, 0.053, 0.0685, 0.1245, 0.25))  # a 1.5B model on two cores
EVEN = PassCost((1, 2), (0.050, 0.055))  # a row takes a tenth of a pass
STEEP = PassCost((1, 2), (0.050, 0.080))  # a row pays if more than 6 of 10 are accepted
HOPELESS = PassCost((1, 2), (0.050, 0.100))  # each row as dear as a pass


class Clock:
    """Stands still unless somebody takes time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedModel(PathModel):
    def __init__(self, clock: Clock, cost: PassCost) -> None:
        super().__init__()
        self.clock, self.cost = clock, cost

    def forward(self, batch: Batch, kv: PagedKV) -> FloatArray:
        self.clock.now += self.cost(len(batch.tokens))
        return super().forward(batch, kv)


class TimedProposer(FakeProposer):
    """Each token is right with chance `alpha`, which may be changed. Being asked takes `seconds`: in all where its
    drafts are free, for every depth where it runs a model. `spent_s` adds it up; `asked` are the contexts of each call.
    """

    def __init__(self, name: str, clock: Clock, alpha: float, is_free: bool = True, seconds: float = 0.0) -> None:
        super().__init__(name, self._token)
        self.alpha, self.is_free, self.seconds, self.clock = alpha, is_free, seconds, clock
        self.spent_s = 0.0
        self.asked: list[list[int]] = []

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        seconds = self.seconds * (1 if self.is_free else max(budgets))
        self.clock.now += seconds
        self.spent_s += seconds
        self.asked.append([context.id for context in contexts])
        return super().propose(contexts, budgets)

    def _token(self, rng: random.Random, right: int) -> int:
        return right if rng.random() < self.alpha else (right + 1) % VOCAB


class Governed:
    """An engine, its clock, and the records of its steps."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        clock: Clock,
        proposers: Sequence[Proposer],
        cost: PassCost = FLAT,
        pools: Mapping[str, PoolConfig] | None = None,
        routes: Mapping[str, str] | None = None,
        num_pages: int = 4000,
    ) -> None:
        monkeypatch.setattr(engine_module, "StepRecorder", partial(StepRecorder, clock))
        kv = PagedKV(1, 1, 2, num_pages, PAGE_SIZE)
        self.clock, self.proposers = clock, {proposer.name: proposer for proposer in proposers}
        self.governor = Governor(pools, routes, lambda: curves(cost, proposers))
        self.engine = Engine(TimedModel(clock, cost), kv, self.proposers, 64, 512, self.governor)
        self.engine._drafting._clock = clock
        self.records: list[StepRecord] = []
        self.engine.on_step.append(self.records.append)

    def run(self, new: Callable[[], EngineSequence], num_steps: int, num_running: int = 1) -> list[StepRecord]:
        """So many steps with so many sequences in each; where one ends, the next comes. Returns the steps' records."""
        before = len(self.records)
        scheduler = self.engine.scheduler
        for _ in range(num_steps):
            while len(scheduler.running) + len(scheduler.waiting) < num_running:
                self.engine.add(new())
            self.engine.step()
        return self.records[before:]


def curves(cost: PassCost, proposers: Sequence[Proposer]) -> Curves:
    """What a careful measurement would have found."""

    def curve(seconds: Callable[[float], float]) -> CostCurve:
        return CostCurve(Point(rows, 0, seconds(rows) * 1e3, 0) for rows in (1, 2, 4, 8, 16, 32, 64))

    runners = {p.name: p.seconds for p in proposers if isinstance(p, TimedProposer) and not p.is_free}
    return Curves(curve(cost), {name: curve(lambda rows, s=seconds: s) for name, seconds in runners.items()})


def num_drafts(records: Sequence[StepRecord]) -> int:
    return sum(len(record.drafts) for record in records)


def drafters(records: Sequence[StepRecord]) -> set[str]:
    return {outcome.proposer for record in records for outcome in record.drafts}


def reasons(record: StepRecord) -> set[str]:
    """Why sequences had no draft in a step."""
    return set(record.undrafted.values())


def tokens_per_s(records: Sequence[StepRecord]) -> float:
    return sum(sum(r.num_tokens.values()) for r in records) / sum(r.seconds for r in records)
