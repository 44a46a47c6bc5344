"""A window of an experiment: what a pool did while one arm held, as figures. Pure: times are passed in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foredraft.steps import StepRecord

PAUSE_S = 0.05  # between two steps: a longer one means that nothing was there to do, not that a client was answering


@dataclass
class Window:
    """Collects from `start_s` on, which is the end of a step, so that whole steps are counted.

    arm: "A" or "B". carry_over_s: what was left out before. routes: of the pool. share: the part of the device that
    was the pool's in the last step of the window before. carried_over: contexts in it that began before the arm held.

    A step's time is shared out over the sequences that decide a token in it, drafts or not: by rows, an arm would be
    charged for rows that cost next to nothing. A step that only reads prompts does not say whose; it is shared out as
    the one before.
    """

    arm: str
    start_s: float
    carry_over_s: float
    routes: Collection[str]
    share: float = 1.0
    tokens: int = 0
    other_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted: int = 0
    num_rejections: int = 0
    device_s: float = 0.0
    idle_s: float = 0.0
    carried_over: set[int] = field(default_factory=set)
    _decode_s: float = 0.0  # time of steps in which the pool decided tokens
    _sequence_s: float = 0.0  # the same for each of its sequences
    _last_s: float | None = None  # when the last step ended
    _itls_s: list[float] = field(default_factory=list)
    _ttfts_s: list[float] = field(default_factory=list)

    def step(self, record: StepRecord, now_s: float) -> None:
        """A step ended now."""
        ours = {context for context, route in record.routes.items() if route in self.routes}
        if record.routes:
            self.share = len(ours) / len(record.routes)
        self._pause(now_s - record.seconds)
        self._last_s = now_s
        self.device_s += record.seconds * self.share
        if not self.share:
            self.idle_s += record.seconds
        if ours:
            self._decode_s += record.seconds
            self._sequence_s += record.seconds * len(ours)
        for context, count in record.num_tokens.items():
            if context in ours:
                self.tokens += count
            else:
                self.other_tokens += count
        for draft in record.drafts:
            if draft.context_id in ours:
                self.num_draft_tokens += draft.num_tokens
                self.num_accepted += draft.num_accepted
                self.num_rejections += draft.is_rejected

    def gap(self, num_tokens: int, seconds: float) -> None:
        """Tokens of one sequence came together, so long after those before them: as many equal gaps."""
        self._itls_s += [seconds / num_tokens] * num_tokens

    def first_token(self, seconds: float) -> None:
        """A request's first token came so long after the request."""
        self._ttfts_s.append(seconds)

    def figures(self, end_s: float) -> dict[str, Any]:
        """All of it, at the end. None stands for a figure that nothing was seen of.

        idle: the share of time in which the pool ran nothing. concurrency: its sequences in a step, over the time in
        which there were any.
        """
        self._pause(end_s)
        seconds = end_s - self.start_s
        trials = self.num_accepted + self.num_rejections
        return {
            "arm": self.arm,
            "carry_over_s": self.carry_over_s,
            "num_carried_over": len(self.carried_over),
            "seconds": seconds,
            "tokens": self.tokens,
            "device_seconds": self.device_s,
            "tokens_per_s": self.tokens / seconds,
            "device_ms_per_token": self.device_s * 1e3 / self.tokens if self.tokens else None,
            "itl_p50_ms": _percentile_ms(self._itls_s, 0.5),
            "itl_p95_ms": _percentile_ms(self._itls_s, 0.95),
            "ttft_p50_ms": _percentile_ms(self._ttfts_s, 0.5),
            "num_first_tokens": len(self._ttfts_s),
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted": self.num_accepted,
            "alpha": self.num_accepted / trials if trials else None,
            "concurrency": self._sequence_s / self._decode_s if self._decode_s else None,
            "idle": self.idle_s / seconds,
            "other_tokens_per_s": self.other_tokens / seconds,
        }

    def _pause(self, until_s: float) -> None:
        """Nothing ran from the last step until then."""
        pause_s = until_s - (self.start_s if self._last_s is None else self._last_s)
        if pause_s > PAUSE_S:
            self.idle_s += pause_s


def _percentile_ms(seconds: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of the values do not exceed, as everywhere in this project."""
    return float(np.quantile(seconds, share, method="inverted_cdf")) * 1e3 if seconds else None
