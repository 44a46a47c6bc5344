"""When tokens came, and the speeds that follow from it. Pure: times go in, figures come out.

Definitions, the same for every arm of a benchmark:
- time to first token (TTFT): from the start of the request to the first step that emitted a token for it;
- inter-token latency (ITL), per token: a step that emits m tokens, dt after the sequence's previous one, counts as m
  gaps of dt / m, so that several tokens at once look neither like one token nor like gaps of zero;
- decode speed, tokens_per_s: the tokens of all sequences that came while all of them were being written, over that
  time: from when each had its first token until one had its last. For a sequence alone that leaves out its first step,
  whatever that emitted; for several at once also the times in which some still read their prompts, or are done already
  (drafts bring some of them there earlier, and nobody has taken their place);
- prompt speed, prompt_tokens_per_s: prompt tokens of all sequences over the time until each had its first token.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foredraft.engine.sequence import Chunk


@dataclass
class Timeline:
    """The emissions of one sequence: `times_s[i]` is when its i-th emitting step came, `counts[i]` its tokens."""

    start_s: float
    num_prompt_tokens: int
    times_s: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    last_step: int | None = None

    @classmethod
    def start(cls, num_prompt_tokens: int, clock: Callable[[], float] = time.perf_counter) -> Timeline:
        """A timeline that begins now."""
        return cls(clock(), num_prompt_tokens)

    def record(self, step: int, now_s: float) -> None:
        """Count one token, emitted by engine step `step` and seen at `now_s`."""
        if step == self.last_step:
            self.counts[-1] += 1
            return
        self.last_step = step
        self.times_s.append(now_s)
        self.counts.append(1)

    @property
    def num_tokens(self) -> int:
        return sum(self.counts)

    @property
    def ttft_s(self) -> float:
        return self.times_s[0] - self.start_s

    def gaps_ms(self) -> list[float]:
        """The gap before each token but those of the first step, in ms."""
        gaps: list[float] = []
        for before, now, count in zip(self.times_s, self.times_s[1:], self.counts[1:], strict=False):
            gaps += [(now - before) * 1e3 / count] * count
        return gaps


def timed(
    chunks: Iterable[Chunk], timelines: Sequence[Timeline], clock: Callable[[], float] = time.perf_counter
) -> Iterator[Chunk]:
    """Pass chunks on, noting when they came in the timeline of their request. All tokens of a step share one time."""
    step, now_s = None, 0.0
    for chunk in chunks:
        if chunk.step != step:
            step, now_s = chunk.step, clock()
        timelines[chunk.request].record(chunk.step, now_s)
        yield chunk


@dataclass(frozen=True)
class Window:
    """Tokens and the seconds they took; windows of several runs add up before they are divided."""

    tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: Window) -> Window:
        return Window(self.tokens + other.tokens, self.seconds + other.seconds)

    @property
    def per_s(self) -> float | None:
        return self.tokens / self.seconds if self.seconds > 0 else None


def decode_window(timelines: Sequence[Timeline]) -> Window:
    """Tokens that came after each of the sequences had its first and until one had its last, and that time.

    Where one was done before all had begun, the time goes on to the last token of all.
    """
    begun = [timeline for timeline in timelines if timeline.times_s]
    if not begun:
        return Window()
    start = max(timeline.times_s[0] for timeline in begun)
    ends = [timeline.times_s[-1] for timeline in begun]
    end = min(ends) if min(ends) > start else max(ends)
    emissions = [pair for timeline in begun for pair in zip(timeline.times_s, timeline.counts, strict=True)]
    return Window(sum(count for time_s, count in emissions if start < time_s <= end), end - start)


def prompt_window(timelines: Sequence[Timeline]) -> Window:
    """Prompt tokens of the sequences that ran at once, and the time until the last of them had its first token."""
    begun = [t for t in timelines if t.times_s]
    if not begun:
        return Window()
    return Window(sum(t.num_prompt_tokens for t in begun), max(t.ttft_s for t in begun))


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` (0 to 1) of the values do not exceed; None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
