"""Running the arms: one process, one model in memory, the same requests and the same token counter for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from foredraft.bench.answers import Answer, collected
from foredraft.bench.arms import Arm
from foredraft.bench.timing import Timeline, Window, decode_window, prompt_window, timed
from foredraft.bench.workloads import Prompt
from foredraft.core import SamplingParams, SpeculationStats
from foredraft.errors import ForedraftError

if TYPE_CHECKING:
    from foredraft.engine.llm import LLM

WARM_UP = "warm-up"  # the route of what is not measured
WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Turn:
    """When an arm is run: in which round (from 1), over which workload, with how many requests at a time.

    block: which part of the workload's prompts (from 1); 0: all of them.
    """

    round: int
    workload: str
    concurrency: int
    arm: Arm
    temperature: float = 0.0
    block: int = 0


@dataclass
class Run:
    """What came of a turn. `answers` are all different ones, as (prompt's number, token ids). `failures` counts by the
    reason what could not be answered; nothing else counts that."""

    turn: Turn
    decode: Window = field(default_factory=Window)
    prompt: Window = field(default_factory=Window)
    ttfts_ms: list[float] = field(default_factory=list)
    gaps_ms: list[float] = field(default_factory=list)
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    answers: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)


@dataclass
class Conversation:
    """A prompt by its number in the workload, and what has been said so far, by the user first."""

    number: int
    prompt: Prompt
    said: list[str]


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
        encode: Callable[[Sequence[str]], Sequence[int]],
        reads_ahead: bool = False,
        counts_failures: bool = False,
    ) -> None:
        """params: all but the temperature, which is the turn's. max_tokens: lowers the prompts' own limits. encode:
        what user and model have said, by turns, as token ids. counts_failures: requests that cannot be run are counted;
        else they raise."""
        self.llm, self.params, self.max_tokens, self.encode = llm, params, max_tokens, encode
        self.reads_ahead, self.counts_failures = reads_ahead, counts_failures

    def warm_up(self, arms: Sequence[Arm], prompt: Prompt) -> None:
        """A few tokens from each arm, not measured: first touches of weights, buffers and proposers."""
        for arm in arms:
            self._read([prompt], arm)

    def run(self, turn: Turn, prompts: Sequence[Prompt]) -> Run:
        """All prompts, `turn.concurrency` at a time; the last group is filled up from the front of the list, as often
        as it takes.

        Raises:
            ForedraftError: a request cannot be run, where failures are not counted.
        """
        run = Run(turn)
        if self.reads_ahead:
            self._read(prompts, turn.arm)
        for start in range(0, len(prompts), turn.concurrency):
            numbers = [i % len(prompts) for i in range(start, start + turn.concurrency)]
            self._converse(run, [Conversation(i, prompts[i], [prompts[i].text]) for i in numbers])
        return run

    def _read(self, prompts: Sequence[Prompt], arm: Arm) -> None:
        """Read the prompts and answer a few tokens, with the arm's drafts, so that a draft model reads them too."""
        tokens = [self.encode([prompt.text]) for prompt in prompts]
        params = replace(self.params, max_tokens=WARM_UP_TOKENS)
        for _ in self.llm.stream(tokens, params, arm.speculation, route=WARM_UP):
            pass

    def _converse(self, run: Run, conversations: Sequence[Conversation]) -> None:
        """Run a group to the end of all its conversations; one that failed has no further turns."""
        while conversations:
            try:
                answers = self._answers(run, conversations)
            except ForedraftError as error:
                if not self.counts_failures:
                    raise
                run.failures[str(error)] += len(conversations)
                return
            for each, answer in zip(conversations, answers, strict=True):
                each.said += [answer.text, *each.prompt.then[len(each.said) // 2 :][:1]]
            conversations = [each for each in conversations if len(each.said) % 2]

    def _answers(self, run: Run, conversations: Sequence[Conversation]) -> list[Answer]:
        """The next answer in each conversation, all at once, which the run is told of."""
        prompts = [self.encode(each.said) for each in conversations]
        params = [
            replace(
                self.params,
                temperature=run.turn.temperature,
                max_tokens=min(each.prompt.max_tokens, self.max_tokens or each.prompt.max_tokens),
            )
            for each in conversations
        ]
        timelines = [Timeline.start(len(tokens)) for tokens in prompts]
        found: dict[tuple[int, int], Answer] = {}
        chunks = self.llm.stream(prompts, params, run.turn.arm.speculation, route=run.turn.workload)
        for _ in collected(timed(chunks, timelines), found):
            pass
        answers = [found[index, 0] for index in range(len(conversations))]
        run.decode += decode_window(timelines)
        run.prompt += prompt_window(timelines)
        for each, answer, timeline in zip(conversations, answers, timelines, strict=True):
            assert answer.stats is not None, "a stream that ran to its end has counted"
            run.ttfts_ms.append(timeline.ttft_s * 1e3)
            run.gaps_ms += timeline.gaps_ms()
            run.stats.add(answer.stats)
            run.answers.add((each.number, tuple(answer.token_ids)))
        return answers


def turns(
    workloads: Sequence[str],
    arms: Sequence[Arm],
    concurrencies: Sequence[int],
    rounds: int,
    temperatures: Sequence[float] = (0.0,),
    num_blocks: int = 0,
) -> Iterator[Turn]:
    """Every arm over every workload at every concurrency and temperature, `rounds` times.

    Arms follow each other directly, so that a slow minute of the machine hits all of them, and every second time they
    come backwards, so that a steady drift cancels. num_blocks: parts that the workloads are cut into, each with all
    arms before the next one; 0: they are not.
    """
    for number in range(1, rounds + 1):
        for block in range(1, num_blocks + 1) if num_blocks else (0,):
            for workload in workloads:
                for concurrency in concurrencies:
                    for temperature in temperatures:
                        for arm in arms if (number + max(block, 1)) % 2 == 0 else reversed(arms):
                            yield Turn(number, workload, concurrency, arm, temperature, block)
