"""A running A/B on a pool: which arm holds, what is measured, and when and how it ends. No clock, no I/O.

An experiment hears of the engine's steps and of latencies, says which settings the pool should have, and judges after
every block (switchback.py). A window is: switch, leave out the carry-over, measure. The carry-over is as long as the
longest answer that was seen so far, so that what is measured began under its own arm.

Tokens per second can be compared only while there is always something to do: below that, a faster arm has more time to
spare and no more tokens. Then device time per token is compared, at the load that there is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from foredraft.config import check, option
from foredraft.core import SPECULATION_MODES
from foredraft.errors import ConfigError
from foredraft.governor.pools import DEFAULT, PoolConfig
from foredraft.governor.switchback import (
    Ratio,
    block_log_ratios,
    bootstrap,
    design,
    is_harm,
    ratio,
    verdict,
)
from foredraft.governor.windows import Window
from foredraft.steps import StepRecord

VERSION = 1  # of the record
BLOCKS = 12  # find a difference of 10% nearly always where windows vary by 5% (tests/governor/test_switchback.py)
ARM = "off, auto or on, then :proposers (joined by +), then :k, such as off, auto or on:lookup:8"
MOST_IDLE = 0.02  # of a window, for tokens per second to be compared
MOST_UNLIKE = 1.1  # concurrency of one arm over that of the other, likewise
FIGURES = ("tokens_per_s", "device_ms_per_token", "itl_p50_ms", "itl_p95_ms", "ttft_p50_ms", "alpha", "concurrency")


@dataclass(frozen=True)
class ExperimentConfig:
    """What to compare, and for how long.

    Raises:
        ConfigError: a value is not allowed.
    """

    pool: str = option(DEFAULT, "The pool to try the arms on.")
    arms: tuple[str, ...] = option(("off", "auto"), f"The baseline A and the candidate B, each {ARM}.")
    window_s: float = option(30.0, "Seconds to measure in each window.", minimum=0.01, maximum=86_400)
    carry_over_s: float = option(
        1.0, "Least seconds to leave out after a switch; the longest answer seen so far raises it.", minimum=0
    )
    blocks: int = option(BLOCKS, "Blocks of four windows; fewer than 4 cannot decide anything.", minimum=4, maximum=500)
    seed: int = option(0, "Draws the order of the arms.", minimum=0, maximum=2**53)

    def __post_init__(self) -> None:
        check(self)
        if len(self.arms) != 2 or len(set(self.arms)) < 2:
            raise ConfigError(f"arms are {', '.join(self.arms)}; give two different ones, the baseline first", "arms")
        for arm in self.arms:
            PoolConfig(**changes(arm))


def changes(arm: str) -> dict[str, Any]:
    """The keys of a pool that an arm sets, with their values.

    Raises:
        ConfigError: the arm is not understood.
    """
    mode, *rest = arm.split(":")
    is_number = len(rest) < 2 or rest[1].isdecimal()
    if mode not in SPECULATION_MODES or len(rest) > 2 or not is_number or (rest and (mode == "off" or not rest[0])):
        raise ConfigError(f"arm {arm!r:.80} is not understood; write {ARM}", "arms")
    changed: dict[str, Any] = {"mode": mode}
    if rest:
        changed["proposers"] = tuple(filter(None, rest[0].split("+")))
    if len(rest) == 2:
        changed["k_max"] = int(rest[1])
    return changed


class Experiment:
    """One experiment, from its start to its end. Not safe to use from several threads at once.

    own: the pool's settings before it. routes: those that lead to the pool. All times are of one clock, in seconds.
    After every call, the pool has to be given `setting`, or its own settings once that is None.

    status: "running", then for good one of "finished", "stopped_on_harm", "no_traffic", "stopped" and "failed", for the
    `reason`. verdict: of arm B, "better", "worse" or "no difference", with the first two of these.
    """

    def __init__(self, config: ExperimentConfig, own: PoolConfig, routes: Collection[str], now_s: float) -> None:
        self.config, self.own, self._routes = config, own, frozenset(routes)
        self.arms = {name: replace(own, **changes(arm)) for name, arm in zip("AB", config.arms, strict=True)}
        self.design = design(config.blocks, config.seed)
        self.windows: list[dict[str, Any]] = []
        self.status, self.reason = "running", ""
        self.verdict: str | None = None
        self._compares_throughput = True
        self._seen: dict[int, tuple[float, float]] = {}  # contexts of the pool: when first and last in a step
        self._longest_s = config.window_s  # nothing is known yet of what ran before
        self._window: Window | None = None  # None while the carry-over is left out
        self._switch(now_s)
        self._longest_s = 0.0

    @property
    def arm(self) -> str | None:
        """Which one holds now, "A" or "B"; None once the experiment is over."""
        return self.design[len(self.windows)] if self.status == "running" else None

    @property
    def setting(self) -> PoolConfig | None:
        """What the pool should have now; None once the experiment is over."""
        return self.arms[self.arm] if self.arm else None

    def step(self, record: StepRecord, now_s: float) -> None:
        """The engine ended a step now."""
        for context, route in record.routes.items():
            if route in self._routes:
                first_s = self._seen.get(context, (now_s, now_s))[0]
                self._seen[context] = first_s, now_s
                self._longest_s = max(self._longest_s, now_s - first_s)
                if self._window and first_s <= self._switched_s:
                    self._window.carried_over.add(context)
        if self._window:
            self._window.step(record, now_s)
        self.tick(now_s)

    def tick(self, now_s: float) -> None:
        """Time has passed without a step, or with one. Only between two steps."""
        if self.status != "running":
            return
        if self._window is None:
            if now_s >= self._carry_over_end_s:
                carry_over_s = now_s - self._switched_s
                self._window = Window(self.design[len(self.windows)], now_s, carry_over_s, self._routes)
        elif now_s >= self._window.start_s + self.config.window_s:
            self.windows.append(self._window.figures(now_s))
            self._judge()
            if self.status == "running":
                self._switch(now_s)

    def tokens(self, route: str, num_tokens: int, seconds: float | None) -> None:
        """Tokens of one sequence came together, so long after those before them; None for a sequence's first."""
        if self._window and route in self._routes and seconds is not None:
            self._window.gap(num_tokens, seconds)

    def first_token(self, route: str, seconds: float) -> None:
        """A request's first token came so long after the request."""
        if self._window and route in self._routes:
            self._window.first_token(seconds)

    def end(self, status: str, reason: str, verdict: str | None = None) -> None:
        """Over, unless it is already."""
        if self.status == "running":
            self.status, self.reason, self.verdict = status, reason, verdict
            self._window = None

    def record(self) -> dict[str, Any]:
        """All of it so far, for JSON. Ratios are of arm B over arm A."""
        blocks = {name: self._block_ratios(name) for name in FIGURES}
        ratios = {name: bootstrap(each, self.config.seed) for name, each in blocks.items()}
        measured = self._measured()
        return {
            "version": VERSION,
            "status": self.status,
            "verdict": self.verdict,
            "reason": self.reason,
            "config": asdict(self.config),
            "own_settings": asdict(self.own),
            "arm_settings": {name: asdict(each) for name, each in self.arms.items()},
            "design": "".join(self.design),
            "compared": self._compared,
            "why_compared": self._why_compared(),
            "ratio": measured and measured.as_dict(),
            "bootstrap_ratios": {name: each and each.as_dict() for name, each in ratios.items()},
            "block_log_ratios": {name: list(each) for name, each in blocks.items()},
            "medians": {name: self._medians(name) for name in "AB"},
            "windows": self.windows,
        }

    def _switch(self, now_s: float) -> None:
        """The next window begins, with the carry-over of what ran before it."""
        self._window, self._switched_s = None, now_s
        # No longer than a window: a request that goes on for hours must not hold up the experiment.
        known_s = min(self._longest_s, self.config.window_s)
        self._carry_over_end_s = now_s + max(self.config.carry_over_s, known_s)
        newest_s = max((last_s for _, last_s in self._seen.values()), default=0.0)
        self._seen = {c: times for c, times in self._seen.items() if times[1] >= newest_s - self.config.window_s}

    def _judge(self) -> None:
        """A window has ended; with it perhaps the experiment."""
        if not self.windows[-1]["tokens"]:
            number, pool = len(self.windows), self.config.pool
            self.end("no_traffic", f"pool {pool} had no traffic in window {number}; try again while requests come in")
            return
        is_last = len(self.windows) == len(self.design)
        if len(self.windows) % 4 == 0:
            self._choose_figure()
            measured = self._measured()
            assert measured is not None, "there is a whole block"
            if is_last or is_harm(measured):
                status = "finished" if is_last else "stopped_on_harm"
                self.end(status, self._sentence(measured), verdict(measured))

    def _choose_figure(self) -> None:
        """Leave tokens per second as soon as there was room to spare, and for good: until then both figures say the
        same, so that this gives no second chance of a false alarm."""
        log_concurrency = statistics.fmean(self._block_ratios("concurrency"))
        is_idle = any(window["idle"] > MOST_IDLE for window in self.windows)
        if is_idle or abs(log_concurrency) > math.log(MOST_UNLIKE):
            self._compares_throughput = False

    @property
    def _compared(self) -> str:
        return "tokens_per_s" if self._compares_throughput else "device_ms_per_token"

    def _why_compared(self) -> str:
        if self._compares_throughput:
            return "the pool always had something to do, and as much of it under both arms"
        return "the pool was idle at times or its concurrency differed, so tokens/s follow the requests and not the arm"

    def _measured(self) -> Ratio | None:
        """How much better B is by the figure that is compared."""
        log_ratios = self._block_ratios(self._compared)
        return ratio(log_ratios if self._compares_throughput else [-each for each in log_ratios])

    def _block_ratios(self, name: str) -> list[float]:
        """log(B / A) of a figure, for each whole block whose windows all have it."""
        found = []
        for first in range(0, len(self.windows) - 3, 4):
            block = self.windows[first : first + 4]
            if all(window[name] for window in block):
                found += block_log_ratios([window[name] for window in block], self.design[first : first + 4]).tolist()
        return found

    def _medians(self, arm: str) -> Mapping[str, float | None]:
        """Of each figure over the windows of an arm."""
        windows = [window for window in self.windows if window["arm"] == arm]
        values = {name: [window[name] for window in windows if window[name] is not None] for name in FIGURES}
        return {name: statistics.median(each) if each else None for name, each in values.items()}

    def _sentence(self, measured: Ratio) -> str:
        baseline, candidate = self.config.arms
        unit = "tokens/s" if self._compares_throughput else "tokens per second of device time"
        evidence = f"{len(self.windows) // 4} blocks, 95% interval {measured.low:.3f} to {measured.high:.3f}"
        return f"{candidate} gave {measured.estimate:.3f} times the {unit} of {baseline} ({evidence})"
