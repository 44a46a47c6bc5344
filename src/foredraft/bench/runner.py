"""Running the arms: one process, one model in memory, the same requests and the same token counter for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from foredraft.bench.answers import Answer, collected
from foredraft.bench.arms import Arm
from foredraft.bench.timing import Timeline, Window, decode_window, prompt_window, timed
from foredraft.bench.workloads import Prompt
from foredraft.core import SamplingParams, SpeculationStats

if TYPE_CHECKING:
    from foredraft.engine.llm import LLM

WARM_UP_TOKENS = 8


@dataclass
class Run:
    """One arm over one workload at one concurrency, once. `texts[i]` are the token ids of prompt i's answer."""

    workload: str
    arm: Arm
    concurrency: int
    decode: Window = field(default_factory=Window)
    prompt: Window = field(default_factory=Window)
    ttfts_ms: list[float] = field(default_factory=list)
    gaps_ms: list[float] = field(default_factory=list)
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    answers: list[tuple[int, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class Request:
    """A prompt as token ids, and its own longest answer."""

    tokens: Sequence[int]
    max_tokens: int


class Runner:
    """Runs arms over workloads with a loaded model, whose prefix cache has to be off (it would hide prompt time)."""

    def __init__(
        self, llm: LLM, params: SamplingParams, max_tokens: int | None, encode: Callable[[str], Sequence[int]]
    ) -> None:
        """`encode` turns a prompt into token ids; `max_tokens` lowers the prompts' own limits."""
        self.llm, self.params, self.max_tokens, self.encode = llm, params, max_tokens, encode

    def request(self, prompt: Prompt) -> Request:
        limit = min(prompt.max_tokens, self.max_tokens or prompt.max_tokens)
        return Request(self.encode(prompt.text), limit)

    def warm_up(self, arms: Sequence[Arm], prompt: Prompt) -> None:
        """A few tokens from each arm, not measured: first touches of weights, buffers and proposers."""
        for arm in arms:
            request = replace(self.request(prompt), max_tokens=WARM_UP_TOKENS)
            self._batch(Run("warm-up", arm, 1), [request])

    def run(self, workload: str, prompts: Sequence[Prompt], arm: Arm, concurrency: int) -> Run:
        """All prompts, `concurrency` at a time; the last group is filled up from the front of the list."""
        requests = [self.request(prompt) for prompt in prompts]
        run = Run(workload, arm, concurrency)
        for start in range(0, len(requests), concurrency):
            group = [requests[i % len(requests)] for i in range(start, start + concurrency)]
            self._batch(run, group)
        del run.answers[len(prompts) :]
        return run

    def _batch(self, run: Run, requests: Sequence[Request]) -> None:
        prompts = [request.tokens for request in requests]
        params = [replace(self.params, max_tokens=request.max_tokens) for request in requests]
        timelines = [Timeline.start(len(tokens)) for tokens in prompts]
        answers: dict[tuple[int, int], Answer] = {}
        for _ in collected(timed(self.llm.stream(prompts, params, run.arm.speculation), timelines), answers):
            pass
        run.decode += decode_window(timelines)
        run.prompt += prompt_window(timelines)
        for request, timeline in enumerate(timelines):
            answer = answers[request, 0]
            assert answer.stats is not None, "a stream that ran to its end has counted"
            run.ttfts_ms.append(timeline.ttft_s * 1e3)
            run.gaps_ms += timeline.gaps_ms()
            run.stats.add(answer.stats)
            run.answers.append(tuple(answer.token_ids))


def run_all(
    runner: Runner,
    workloads: dict[str, list[Prompt]],
    arms: Sequence[Arm],
    concurrencies: Sequence[int],
    rounds: int,
    done: Callable[[Run], None] = lambda run: None,
) -> list[Run]:
    """Every arm over every workload, `rounds` times.

    Arms follow each other directly, so that a slow minute of the machine hits all of them, and every second round goes
    through them backwards, so that a steady drift cancels.
    """
    runs = []
    for number in range(rounds):
        for workload, prompts in workloads.items():
            for concurrency in concurrencies:
                for arm in arms if number % 2 == 0 else list(reversed(arms)):
                    runs.append(runner.run(workload, prompts, arm, concurrency))
                    done(runs[-1])
    return runs
