"""One prompt and its answer, as `generate`, `chat` and `demo` run it: streamed, timed, described."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from foredraft.bench.answers import Answer, collected
from foredraft.bench.timing import Timeline, decode_window, prompt_window, timed

if TYPE_CHECKING:
    from foredraft.cli.output import Writer
    from foredraft.constraints.formats import ResponseFormat
    from foredraft.core import SamplingParams, Speculation, SpeculationStats
    from foredraft.engine.llm import LLM

LONG_S = 1.0  # of silence, which people want explained


class Exchange:
    """A prompt and what has come of it so far. After an interruption it holds what came until then."""

    def __init__(
        self,
        tokens: Sequence[int],
        params: SamplingParams,
        how: Speculation,
        response_format: ResponseFormat | None = None,
    ) -> None:
        self.tokens, self.params, self.how, self.response_format = tokens, params, how, response_format
        self.timeline = Timeline(0.0, len(tokens))
        self._answers: dict[tuple[int, int], Answer] = {}

    def run(self, llm: LLM, writer: Writer | None) -> None:
        """Run the prompt to its end, writing text as it comes."""
        if self.how.mode == "auto":
            _measure(llm)
        self.timeline = Timeline.start(len(self.tokens))
        try:
            with closing(
                llm.stream([self.tokens], self.params, self.how, response_format=self.response_format)
            ) as chunks:
                for chunk in collected(timed(chunks, [self.timeline]), self._answers):
                    if writer:
                        writer.write(chunk.text, chunk.origin)
        finally:
            if writer:
                writer.close()

    @property
    def answers(self) -> list[Answer]:
        """The choices, in order; empty before the first token."""
        return [self._answers[key] for key in sorted(self._answers)]

    @property
    def tokens_per_s(self) -> float | None:
        return decode_window([self.timeline]).per_s

    @property
    def prompt_tokens_per_s(self) -> float | None:
        return prompt_window([self.timeline]).per_s

    def describe(self) -> str:
        """A few lines for people: speeds, how it ended, drafts of the first choice."""
        if not self.answers:
            return "no answer yet"
        answer = self.answers[0]
        lines = [
            f"prompt: {len(self.tokens)} tokens{_at(self.prompt_tokens_per_s)}, "
            f"first token after {self.timeline.ttft_s * 1e3:.0f} ms",
            f"answer: {self.timeline.num_tokens} tokens{_at(self.tokens_per_s)}, "
            f"ended by {answer.finish_reason or 'interruption'}; seed {self.params.seed}",
        ]
        return "\n".join(lines if answer.stats is None else [*lines, describe_drafts(answer.stats)])


def describe_drafts(stats: SpeculationStats) -> str:
    """One line: how many drafts, by whom, and what became of them."""
    if not stats.num_drafts:
        return "drafts: none"
    by = ", ".join(f"{name} {count}" for name, count in stats.num_drafts_by_proposer.items())
    alpha = "-" if stats.alpha is None else f"{stats.alpha:.2f}"
    return (
        f"drafts: {stats.num_drafts} ({by}); {stats.num_accepted} of {stats.num_draft_tokens} drafted tokens accepted, "
        f"alpha {alpha}, {stats.tokens_per_step:.2f} tokens per step"
    )


def _measure(llm: LLM) -> None:
    """Let the governor measure what passes cost, where that is not known, before anything is timed."""
    start = time.perf_counter()
    _ = llm.governor.curves
    if (seconds := time.perf_counter() - start) > LONG_S:
        click.echo(f"passes were measured for {seconds:.1f} s; next time that is known", err=True)


def _at(speed: float | None) -> str:
    return f" at {speed:.1f} tokens/s" if speed else ""
