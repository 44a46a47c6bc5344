"""The fakes' engine on a clock of its own: a pass takes what a curve says, a proposer what it is made with.

What the governor does is then the same in every run, and a test can say what would pay.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest

from fakes import PAGE_SIZE, VOCAB, FakeProposer, PathModel, next_token
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
from foredraft.proposers.base import GoesOn, Proposer
from foredraft.proposers.tree import Growth, Guess
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


class TimedTrees(TimedProposer):
    """Grows trees: a place's first guess is right with chance `alpha`, its second with `second`; it `believes` that the
    second is as often. A pass takes `seconds`; `shapes` are the widths of each call."""

    grows_trees = ends_drafts = True

    def __init__(
        self, name: str, clock: Clock, alpha: float, second: float, seconds: float, believes: float | None = None
    ) -> None:
        super().__init__(name, clock, alpha, is_free=False, seconds=seconds)
        self.second, self.believes = second, second if believes is None else believes
        self.shapes: list[list[int]] = []

    def propose_while(
        self, contexts: Sequence[Context], budgets: Sequence[int], goes_on: GoesOn, widths: Sequence[int] = ()
    ) -> list[Draft | None]:
        self.asked.append([context.id for context in contexts])
        self.shapes.append(list(widths))
        growths = [Growth(i, *each) for i, each in enumerate(zip(contexts, budgets, widths, strict=True))]
        active = growths
        while active:
            self.clock.now += self.seconds
            self.spent_s += self.seconds
            for growth in active:
                growth.branch([self._guesses(growth, node) for node in growth.open])
            active = [growth for growth in active if growth.open]
            paths = {g.number: [[guess.grade for guess in g.path(node)] for node in g.open] for g in active}
            going_on = goes_on(paths) if paths else ()
            active = [growth for growth in active if growth.number in going_on]
        return [growth.draft(self.name) for growth in growths]

    def _guesses(self, growth: Growth, node: int) -> list[Guess]:
        right = next_token(growth.context, [guess.token for guess in growth.path(node)])
        chance = self._random.random()
        first = right if chance < self.alpha else (right + 1) % VOCAB
        second = right if self.alpha <= chance < self.alpha + self.second else (right + 2) % VOCAB
        others = [(right + 3 + i) % VOCAB for i in range(growth.width - 2)]
        confidences = [self.alpha, self.believes, *(0.01 for _ in others)]
        return [
            Guess(token, confidence, -rank)
            for rank, (token, confidence) in enumerate(zip((first, second, *others), confidences, strict=False))
        ][: growth.width]


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
