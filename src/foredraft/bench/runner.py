"""Running the arms: one process, one model in memory, the same requests and the same token counter for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from foredraft.bench.answers import Answer, collected
from foredraft.bench.arms import Arm
from foredraft.bench.timing import Timeline, Window, decode_window, prompt_window, timed
from foredraft.bench.workloads import Prompt
from foredraft.core import SamplingParams, SpeculationStats

if TYPE_CHECKING:
    from foredraft.engine.llm import LLM

WARM_UP = "warm-up"  # the route of what is not measured
WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Turn:
    """When an arm is run: in which round (from 1), over which workload, with how many requests at a time."""

    round: int
    workload: str
    concurrency: int
    arm: Arm


@dataclass
class Run:
    """What came of a turn. `answers` are all different ones, as (prompt's number, token ids)."""

    turn: Turn
    decode: Window = field(default_factory=Window)
    prompt: Window = field(default_factory=Window)
    ttfts_ms: list[float] = field(default_factory=list)
    gaps_ms: list[float] = field(default_factory=list)
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    answers: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)


@dataclass(frozen=True)
class Request:
    """A prompt as its number in the workload and token ids, and its own longest answer."""

    number: int
    tokens: Sequence[int]
    max_tokens: int


class Runner:
    """Runs arms over workloads with a loaded model. Every workload is a route of its own.

    Without `reads_ahead` the model's prefix cache has to be off, since it would hide prompt time. With it the cache has
    to be on: prompts are read before anything is measured, and what is measured is decoding.
    """

    def __init__(
        self,
        llm: LLM,
        params: SamplingParams,
        max_tokens: int | None,
        encode: Callable[[str], Sequence[int]],
        reads_ahead: bool = False,
    ) -> None:
        """`encode` turns a prompt into token ids; `max_tokens` lowers the prompts' own limits."""
        self.llm, self.params, self.max_tokens, self.encode = llm, params, max_tokens, encode
        self.reads_ahead = reads_ahead

    def warm_up(self, arms: Sequence[Arm], prompt: Prompt) -> None:
        """A few tokens from each arm, not measured: first touches of weights, buffers and proposers."""
        for arm in arms:
            self._read(self._requests([prompt]), arm)

    def run(self, turn: Turn, prompts: Sequence[Prompt]) -> Run:
        """All prompts, `turn.concurrency` at a time; the last group is filled up from the front of the list, as often
        as it takes."""
        requests = self._requests(prompts)
        run = Run(turn)
        if self.reads_ahead:
            self._read(requests, turn.arm)
        for start in range(0, len(requests), turn.concurrency):
            self._batch(run, [requests[i % len(requests)] for i in range(start, start + turn.concurrency)])
        return run

    def _requests(self, prompts: Sequence[Prompt]) -> list[Request]:
        return [
            Request(number, self.encode(prompt.text), min(prompt.max_tokens, self.max_tokens or prompt.max_tokens))
            for number, prompt in enumerate(prompts)
        ]

    def _read(self, requests: Sequence[Request], arm: Arm) -> None:
        """Read the prompts and answer a few tokens, with the arm's drafts, so that a draft model reads them too."""
        prompts = [request.tokens for request in requests]
        for _ in self.llm.stream(
            prompts, replace(self.params, max_tokens=WARM_UP_TOKENS), arm.speculation, route=WARM_UP
        ):
            pass

    def _batch(self, run: Run, requests: Sequence[Request]) -> None:
        prompts = [request.tokens for request in requests]
        params = [replace(self.params, max_tokens=request.max_tokens) for request in requests]
        timelines = [Timeline.start(len(tokens)) for tokens in prompts]
        answers: dict[tuple[int, int], Answer] = {}
        chunks = self.llm.stream(prompts, params, run.turn.arm.speculation, route=run.turn.workload)
        for _ in collected(timed(chunks, timelines), answers):
            pass
        run.decode += decode_window(timelines)
        run.prompt += prompt_window(timelines)
        for index, (request, timeline) in enumerate(zip(requests, timelines, strict=True)):
            answer = answers[index, 0]
            assert answer.stats is not None, "a stream that ran to its end has counted"
            run.ttfts_ms.append(timeline.ttft_s * 1e3)
            run.gaps_ms += timeline.gaps_ms()
            run.stats.add(answer.stats)
            run.answers.add((request.number, tuple(answer.token_ids)))


def turns(workloads: Sequence[str], arms: Sequence[Arm], concurrencies: Sequence[int], rounds: int) -> Iterator[Turn]:
    """Every arm over every workload at every concurrency, `rounds` times.

    Arms follow each other directly, so that a slow minute of the machine hits all of them, and every second round goes
    through them backwards, so that a steady drift cancels.
    """
    for number in range(1, rounds + 1):
        for workload in workloads:
            for concurrency in concurrencies:
                for arm in arms if number % 2 else reversed(arms):
                    yield Turn(number, workload, concurrency, arm)
