"""A closed loop: always so many requests at once, each with a prompt of its own, under the arms of an experiment."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from foredraft.bench.workloads import Prompt
from foredraft.core import SamplingParams, Speculation
from foredraft.engine.requests import Request
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.governor.experiment import Experiment

if TYPE_CHECKING:
    from foredraft.engine.llm import LLM


@dataclass
class _Running:
    sequence: EngineSequence
    begun_s: float
    last_s: float | None = None  # when its newest tokens came


class ClosedLoop:
    """Drives a loaded model's engine: a request that ends is followed by the next prompt of the list, round and round.

    encode: turns a prompt into token ids. max_tokens: lowers the prompts' own limits. Prompts are numbered, so that no
    two are the same: an answer that was seen before could be drafted from.
    """

    def __init__(
        self,
        llm: LLM,
        prompts: Sequence[Prompt],
        encode: Callable[[str], Sequence[int]],
        *,
        concurrency: int,
        max_tokens: int | None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._llm, self._prompts, self._encode, self._clock = llm, prompts, encode, clock
        self._concurrency, self._max_tokens = concurrency, max_tokens

    def run(self, experiment: Experiment, arms: Mapping[str, Speculation], done: Callable[[], None]) -> None:
        """Until the experiment is over. arms: how requests are drafted for that begin under "A" and under "B"; those
        that run at a switch go on as they began, which is the carry-over. done: called after every window.

        Raises:
            ForedraftError: a prompt does not fit, or the model failed.
        """
        engine, wishes = self._llm.engine, self._requests()
        running: dict[int, _Running] = {}
        try:
            while arm := experiment.arm:
                while len(running) < self._concurrency:
                    prompt, params = next(wishes)
                    (sequence,) = self._llm.sequences([Request(prompt, params, arms[arm])])
                    running[sequence.context.id] = _Running(sequence, self._clock())
                    engine.add(sequence)
                num_windows = len(experiment.windows)
                self._step(experiment, running)
                if len(experiment.windows) > num_windows:
                    done()
        finally:
            for each in running.values():
                engine.abort(each.sequence)

    def _step(self, experiment: Experiment, running: dict[int, _Running]) -> None:
        """One step of the engine, of which the experiment hears; what has ended is taken out."""
        chunks = self._llm.engine.step()
        now_s = self._clock()
        for context, num_tokens in Counter(chunk.context_id for chunk in chunks).items():
            each = running[context]
            if each.last_s is None:
                experiment.first_token(each.sequence.route, now_s - each.begun_s)
            else:
                experiment.tokens(each.sequence.route, num_tokens, now_s - each.last_s)
            each.last_s = now_s
        if record := self._llm.engine.last_record:
            experiment.step(record, now_s)
        for context, each in list(running.items()):
            if each.sequence.error:
                raise each.sequence.error
            if each.sequence.finish_reason:
                del running[context]

    def _requests(self) -> Iterator[tuple[Sequence[int], SamplingParams]]:
        for number in count():
            prompt = self._prompts[number % len(self._prompts)]
            limit = min(prompt.max_tokens, self._max_tokens or prompt.max_tokens)
            yield self._encode(f"Request {number + 1}.\n{prompt.text}"), SamplingParams(max_tokens=limit)
