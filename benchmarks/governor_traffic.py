"""Closed loops of several routes on one engine, and figures of what their steps did.

A stream always has so many requests running, whose prompts are taken in turn, round and round; prompts are read before
and found in the prefix cache, so that what is measured is decoding (and, at a request's start, the rest of a prompt's
last page).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, cycle

from foredraft.bench.runner import WARM_UP
from foredraft.bench.timing import Timeline
from foredraft.bench.workloads import workloads
from foredraft.cli.options import prompt_tokens
from foredraft.core import SamplingParams, Speculation
from foredraft.engine.llm import LLM
from foredraft.engine.requests import Request
from foredraft.governor.plan import PassCost, Plan, Snapshot
from foredraft.steps import StepRecord

READ_TOKENS = 8  # answered when prompts are read, for a draft model reads them when it drafts


@dataclass(frozen=True)
class Stream:
    """Traffic of one route, `concurrency` requests at a time."""

    route: str
    concurrency: int
    requests: Sequence[Request]

    @classmethod
    def of(cls, llm: LLM, route: str, names: Sequence[str], concurrency: int, max_tokens: int | None) -> Stream:
        """From workloads, whose prompts take turns. max_tokens: lowers the prompts' own limits."""
        known = workloads()
        prompts = chain.from_iterable(zip(*(known[name] for name in names), strict=True))
        requests = [
            Request(
                prompt_tokens(llm, prompt.text, raw=False),
                SamplingParams(max_tokens=min(prompt.max_tokens, max_tokens or prompt.max_tokens)),
                Speculation("auto"),  # as the route's pool says
                route=route,
            )
            for prompt in prompts
        ]
        return cls(route, concurrency, requests)


@dataclass
class Log:
    """Steps from when all of the first requests had begun to answer. ends_s: when each ended, counted from the start.

    lens: by context id, tokens before the first of these steps that it took part in.
    """

    records: list[StepRecord] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)
    lens: dict[int, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.ends_s[-1]

    def tokens_per_s(self, route: str) -> float:
        tokens = sum(n for r in self.records for id_, n in r.num_tokens.items() if r.routes[id_] == route)
        return tokens / self.seconds

    def mean(self, figure: Callable[[StepRecord], int]) -> float:
        return sum(map(figure, self.records)) / len(self.records)

    def gaps_ms(self, route: str, ends_s: Sequence[float]) -> list[float]:
        """The gap before each token of a route (bench/timing.py) if the steps had ended at these times."""
        timelines: dict[int, Timeline] = {}
        for record, end_s in zip(self.records, ends_s, strict=True):
            for context_id, num_tokens in record.num_tokens.items():
                if record.routes[context_id] == route:
                    timeline = timelines.setdefault(context_id, Timeline(0.0, 0))
                    timeline.times_s.append(end_s)
                    timeline.counts.append(num_tokens)
        return [gap for timeline in timelines.values() for gap in timeline.gaps_ms()]

    def expected_ends_s(self, cost: PassCost) -> list[float]:
        """When the steps would have ended if each had taken what a pass over its rows costs."""
        lens, steps_s = dict(self.lens), []
        for record in self.records:
            drafted = {outcome.context_id: outcome.num_tokens for outcome in record.drafts}
            sequence_context = sum(lens[id_] for id_ in record.num_tokens)
            row_context = sum(lens[id_] * (1 + drafted.get(id_, 0)) for id_ in record.num_tokens)
            steps_s.append(cost(record.num_rows, sequence_context, row_context))
            for id_, num_tokens in record.num_tokens.items():
                lens[id_] += num_tokens
        return list(accumulate(steps_s))


def read(llm: LLM, streams: Sequence[Stream]) -> None:
    """Read the streams' prompts, by the draft model too where there is one, which comes last."""
    for stream in streams:
        prompts = [request.prompt for request in stream.requests]
        drafted = Speculation("on", k=1, proposers=llm.proposers[-1:])
        llm.generate(prompts, SamplingParams(max_tokens=READ_TOKENS), drafted, route=WARM_UP)


def drive(llm: LLM, streams: Sequence[Stream], is_over: Callable[[Log], bool]) -> Log:
    """Run the streams together until `is_over`, which is asked after every step; what then still runs is ended."""
    engine, log = llm.engine, Log()
    wishes = {stream.route: cycle(stream.requests) for stream in streams}
    running, start_s = [], None
    try:
        while not log.records or not is_over(log):
            counts = Counter(sequence.route for sequence in running)
            for stream in streams:
                for _ in range(stream.concurrency - counts[stream.route]):
                    (sequence,) = llm.sequences([next(wishes[stream.route])])
                    log.lens[sequence.context.id] = len(sequence.context.tokens)
                    running.append(sequence)
                    engine.add(sequence)
            engine.step()
            now_s = time.perf_counter()
            if start_s is not None and engine.last_record:
                log.records.append(engine.last_record)
                log.ends_s.append(now_s - start_s)
            elif all(sequence.is_prefilled for sequence in running):
                start_s = now_s
                log.lens = {sequence.context.id: len(sequence.context.tokens) for sequence in running}
            if error := next((sequence.error for sequence in running if sequence.error), None):
                raise error
            running = [sequence for sequence in running if sequence.finish_reason is None]
    finally:
        for sequence in running:
            engine.abort(sequence)
    return log


def set_modes(llm: LLM, modes: Mapping[str, str]) -> None:
    """The mode of each pool from the next step on."""
    for pool, mode in modes.items():
        llm.governor.pools[pool] = replace(llm.governor.pools[pool], mode=mode)


class Decisions:
    """The k of every step: drafted tokens that the plan allows a seat, in the mean; 0 where the governor rests."""

    def __init__(self, llm: LLM) -> None:
        self.ks: list[float] = []
        self._k = 0.0
        llm.governor.on_plan, llm.engine.on_step = [self._plan], [self._step]

    def _plan(self, snapshot: Snapshot, plan: Plan) -> None:
        self._k = plan.num_draft_tokens / len(snapshot.seats)

    def _step(self, record: StepRecord) -> None:
        self.ks.append(self._k)
        self._k = 0.0


def switches(llm: LLM, route: str) -> int:
    """How often the route went from drafting to not drafting or back."""
    return max((row.num_switches for row in llm.governor.report() if row.route == route), default=0)
