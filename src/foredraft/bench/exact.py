"""The first promise, checked on a real model: the text without drafts against the text with every proposer.

The reference is one prompt at a time, without drafts, on the first thread count. Everything else must give the same
token ids and the same text: with each proposer, in chains and (where it makes them) in trees, all of them in order, and
as the governor chooses; several prompts at once; other thread counts; and prompts found in the prefix cache, which
later runs of the same prompt hit by themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foredraft.bench.workloads import Prompt, workloads
from foredraft.core import SamplingParams, Speculation

if TYPE_CHECKING:
    from foredraft.engine.llm import LLM
    from foredraft.engine.results import Result

TEMPERATURES = (0.0, 0.7, 1.0)
BATCH_SIZES = (1, 8)
K = 6
WIDTHS = (1, 2, 4)  # of drafts: chains, and trees that go deep or wide with as many tokens
LOGPROBS = 20  # the most that can be asked for: how far down the reference's ranking a wrong token is looked for

Load = Callable[[int], AbstractContextManager["LLM"]]
Encode = Callable[["LLM", str], list[int]]


@dataclass(frozen=True)
class Way:
    """One way to run the prompts; proposers say who drafts where speculation is on, and width how wide their trees are:
    1 for chains."""

    num_threads: int
    batch_size: int
    temperature: float
    mode: str
    proposers: tuple[str, ...] = ()
    width: int = 1

    def __str__(self) -> str:
        who = ("+".join(self.proposers) or self.mode) + (f" in trees of {self.width}" if self.width > 1 else "")
        return f"{who}, temperature {self.temperature:g}, batch {self.batch_size}, threads {self.num_threads}"

    @property
    def speculation(self) -> Speculation:
        is_on = self.mode == "on"
        return Speculation(self.mode, K if is_on else None, self.proposers, tree_width=self.width if is_on else None)


@dataclass(frozen=True)
class Difference:
    """Where a text first left the reference. A token is None past an end. `logit_gap`: how far the reference ranks the
    other token below its own, None where it is not among the likeliest or nothing was decided by logits."""

    prompt: str
    way: Way
    position: int
    expected: int | None
    found: int | None
    logit_gap: float | None


@dataclass
class Outcome:
    """`num_drafts` counts drafts by proposer: a check in which nobody drafted has shown nothing about drafts."""

    num_total: int = 0
    num_equal: int = 0
    differences: list[Difference] = field(default_factory=list)
    num_drafts: Counter[str] = field(default_factory=Counter)


def check_prompts(is_quick: bool) -> list[Prompt]:
    """Prompts that copy a lot and prompts that copy little, short enough for many runs."""
    known = workloads()
    edit = Prompt("edit", _shortened(known["edit"][0].text, 40), 0)
    quote = Prompt("quote", _shortened(known["quote"][0].text, 1), 0)
    count = Prompt("count", "Count from 1 to 40, one number a line: 1\n2\n3\n4\n5\n6\n7\n8\n", 0)
    prompts = [edit, known["chat"][0], count, known["write"][0]]
    return prompts if is_quick else [*prompts, quote, known["chat"][1], known["ideas"][0], known["write"][2]]


def _shortened(text: str, num_lines: int) -> str:
    """The first and the last lines of a text."""
    lines = text.splitlines()
    return "\n".join([*lines[:num_lines], lines[-1]])


class ExactCheck:
    """Runs every way and compares. `load` opens the model with so many threads, room for the largest batch in it."""

    def __init__(
        self, load: Load, encode: Encode, prompts: Sequence[Prompt], num_tokens: int, thread_counts: Sequence[int]
    ) -> None:
        self.load, self.encode = load, encode
        self.prompts, self.num_tokens, self.thread_counts = prompts, num_tokens, thread_counts
        self.outcome = Outcome()
        self._expected: dict[tuple[str, float], Result] = {}

    def run(self) -> Iterator[Way]:
        """Go through all ways, yielding each when it is done; `outcome` grows with them."""
        for num_threads in self.thread_counts:
            with self.load(num_threads) as llm:
                tokens = {prompt.name: self.encode(llm, prompt.text) for prompt in self.prompts}
                for way in self._ways(num_threads, llm):
                    self._check(llm, way, tokens)
                    yield way

    def _ways(self, num_threads: int, llm: LLM) -> list[Way]:
        who: list[tuple[tuple[str, ...], int]] = []
        for name in llm.proposers:
            who += [((name,), width) for width in WIDTHS if width == 1 or name in llm.grows_trees]
        if len(llm.proposers) > 1:
            who.append((tuple(llm.proposers), WIDTHS[-1] if llm.grows_trees else 1))
        on = [("on", *each) for each in who]
        return [
            Way(num_threads, size, temperature, *how)
            for temperature in TEMPERATURES
            for size in BATCH_SIZES
            for how in (("off", (), 1), *on, ("auto", (), 1))
        ]

    def _check(self, llm: LLM, way: Way, tokens: dict[str, list[int]]) -> None:
        # A batch larger than the list of prompts holds some of them twice.
        names = [prompt.name for prompt in self.prompts]
        padded = [names[i % len(names)] for i in range(max(len(names), way.batch_size))]
        for start in range(0, len(padded), way.batch_size):
            group = padded[start : start + way.batch_size]
            params = [self._params(names.index(name), way.temperature) for name in group]
            results = llm.generate([tokens[name] for name in group], params, way.speculation)
            for name, result in zip(group, results, strict=True):
                self._compare(llm, way, name, result)

    def _params(self, seed: int, temperature: float) -> SamplingParams:
        return SamplingParams(temperature=temperature, seed=seed, max_tokens=self.num_tokens)

    def _compare(self, llm: LLM, way: Way, name: str, result: Result) -> None:
        expected = self._expected.setdefault((name, way.temperature), result)
        if expected is result:
            return
        self.outcome.num_total += 1
        self.outcome.num_drafts.update(result.stats.num_drafts_by_proposer)
        if result.token_ids == expected.token_ids and result.text == expected.text:
            self.outcome.num_equal += 1
            return
        self.outcome.differences.append(_difference(llm, way, name, expected, result))


def _difference(llm: LLM, way: Way, name: str, expected: Result, result: Result) -> Difference:
    ours, theirs = expected.token_ids, result.token_ids
    pairs = zip(ours, theirs, strict=False)
    position = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
    wanted, found = (ids[position] if position < len(ids) else None for ids in (ours, theirs))
    prompt = [*expected.prompt_token_ids, *ours[:position]]
    return Difference(name, way, position, wanted, found, _logit_gap(llm, prompt, wanted, found))


def _logit_gap(llm: LLM, prompt: list[int], wanted: int | None, found: int | None) -> float | None:
    """By how much the model's logit of `wanted` exceeds that of `found` after `prompt`, without drafts."""
    params = SamplingParams(max_tokens=1, logprobs=LOGPROBS)
    (result,) = llm.generate([prompt], params, Speculation("off"))
    top = dict(result.choices[0].logprobs[0].top) if result.choices[0].logprobs else {}
    if wanted is None or found is None or wanted not in top or found not in top:
        return None
    return top[wanted] - top[found]
