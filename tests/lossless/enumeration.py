"""Exact laws of programs that read keyed noise, by enumeration.

Each noise key stands for one uniform number, whatever reads it and however often. A run asks yes-or-no questions
about them ("is it below 0.3?"); the answers possible given all earlier answers are followed one after the other, each
with its exact chance. A key that two decisions share makes their answers depend on each other, as it would in life:
that is how a biased key scheme shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foredraft.core import Draft
from foredraft.sampling.noise import Purpose, Stream
from foredraft.sampling.sampler import BlockNoise
from foredraft.verify import block, exact, rejection

Law = NDArray[np.floating]
Table = Callable[[tuple[int, ...]], Law]


@dataclass
class Oracle:
    """Answers of one run: a script of branches to take, then the first possible answer each time."""

    script: list[bool] = field(default_factory=list)
    taken: list[tuple[bool, bool]] = field(default_factory=list)  # (answer, is there another one)
    weight: float = 1.0
    intervals: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    num_reads: Counter[Hashable] = field(default_factory=Counter)

    def below(self, key: Hashable, threshold: float) -> bool:
        low, high = self.intervals.get(key, (0.0, 1.0))
        if threshold <= low or threshold >= high:
            return threshold >= high
        share = (threshold - low) / (high - low)
        answer = self.script[len(self.taken)] if len(self.taken) < len(self.script) else True
        self.taken.append((answer, answer))
        self.weight *= share if answer else 1 - share
        self.intervals[key] = (low, threshold) if answer else (threshold, high)
        return answer

    def draw(self, key: Hashable, law: Law) -> int:
        """The token at the key's uniform in the law's inverse distribution."""
        self.num_reads[key] += 1
        positive = np.flatnonzero(law > 0)
        sums = np.cumsum(law[positive] / law.sum())
        for token, upper in zip(positive[:-1], sums[:-1], strict=True):
            if self.below(key, float(upper)):
                return int(token)
        return int(positive[-1])


def enumerate_runs(run: Callable[[Oracle], Any]) -> list[tuple[Any, float, Oracle]]:
    """Every possible result of a run with its chance."""
    results = []
    script: list[bool] = []
    while True:
        oracle = Oracle(script)
        results.append((run(oracle), oracle.weight, oracle))
        answers = oracle.taken
        while answers and not answers[-1][1]:
            answers.pop()
        if not answers:
            return results
        script = [answer for answer, _ in answers[:-1]] + [False]


@dataclass(frozen=True)
class Question:
    """A uniform number that is known only by comparison."""

    oracle: Oracle
    key: Hashable

    def __lt__(self, threshold: float) -> bool:
        self.oracle.num_reads[self.key] += 1
        return self.oracle.below(self.key, threshold)


@dataclass(frozen=True)
class SymbolicNoise(BlockNoise):
    """The real key structure of a step over an oracle's numbers. `rekey` breaks it, to show that this is noticed."""

    oracle: Oracle = field(default_factory=Oracle)
    rekey: Callable[[Stream], Stream] = lambda stream: stream

    def _uniform(self, stream: Stream, index: int) -> Any:
        return Question(self.oracle, (self.rekey(stream), index))

    def _draw(self, stream: Stream, law: Law) -> int:
        return self.oracle.draw((self.rekey(stream), 0), law)

    def shared(self, depth: int, law: Law) -> int:
        """What `choose` is to the real noise: the final stream of the position, for target and drafter alike."""
        return self._draw(Stream(Purpose.FINAL, self.start + depth), law)

    def sibling(self, depth: int, index: int, law: Law) -> int:
        """A further child of one node, drawn from the draft's noise of that place."""
        return self.oracle.draw((self.rekey(Stream(Purpose.DRAFT, self.start + depth, self.start)), index), law)


def step(rule: str, draft: Draft, path: tuple[int, ...], target: Table, noise: SymbolicNoise) -> list[int]:
    """One verified step after `path`: the tokens that it adds."""

    def below(row: int) -> tuple[int, ...]:
        return path + tuple(draft.tokens[i] for i in draft.path(row - 1))

    if rule == "exact":
        verdict = exact(draft, lambda row: noise.shared(len(draft.path(row - 1)), target(below(row))))
    else:
        rules = {"rejection": rejection, "block": block}
        verdict = rules[rule](draft, lambda row: np.asarray(target(below(row)), np.float64), noise)
    return [draft.tokens[i] for i in verdict.path] + [verdict.token]


def target_law(target: Table, length: int, vocabulary: int) -> dict[tuple[int, ...], float]:
    """The joint law of the target's first `length` tokens."""
    law = {(): 1.0}
    for _ in range(length):
        law = {(*path, x): chance * float(target(path)[x]) for path, chance in law.items() for x in range(vocabulary)}
    return law
