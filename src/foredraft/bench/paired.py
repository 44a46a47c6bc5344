"""Speeds of arms over those of others, paired within rounds, and whether `auto` is ever slower. Pure.

The arms of a round follow each other directly, so the ratio of two speeds of one round is freer of the machine's moods
than either. The logarithms of a cell's ratios are taken as normal, which gives the t-interval of their mean. A bound
holds while the 95% interval is not wholly below it: with few or noisy rounds that says little, so the interval is
always shown.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foredraft.bench.arms import parse_arm
from foredraft.bench.records import Cell, Record

OFF_BOUND, BEST_BOUND = 1.0, 0.98

# Student's t, 97.5% quantiles for 1 to 30 degrees of freedom (NIST/SEMATECH e-Handbook of Statistical Methods,
# section 1.3.6.7.2).
_T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip

Speeds = Mapping[Hashable, float]  # by what is paired: the round, and the part of the workload


@dataclass(frozen=True)
class Ratio:
    """A geometric mean over rounds and its 95% interval; one round has no interval, low and high are None."""

    mean: float
    low: float | None
    high: float | None

    def holds(self, bound: float) -> bool | None:
        """Whether the interval is not wholly below `bound`; None without an interval."""
        return None if self.high is None else self.high >= bound

    def is_proven(self, bound: float) -> bool:
        """Whether the interval is wholly at `bound` or above, which is more than not to be below."""
        return self.low is not None and self.low >= bound


@dataclass(frozen=True)
class Comparison:
    """An automatic arm in one cell, against the one without drafts and against `best`, the fixed arm (off is one too)
    with the highest median speed there. None where the arms have no round in common."""

    workload: str
    concurrency: int
    arm: str
    best: str | None
    over_off: Ratio | None
    over_best: Ratio | None
    temperature: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def t_975(degrees: int) -> float:
    """The 97.5% quantile of Student's t; past 30 degrees that of 30, which is a little too wide."""
    return _T_975[min(degrees, len(_T_975)) - 1]


def paired_ratio(ours: Speeds, theirs: Speeds) -> Ratio | None:
    """Our speed over theirs, over the rounds that both have; None where there is none."""
    return geometric_mean(ratios(ours, theirs))


def ratios(ours: Speeds, theirs: Speeds) -> list[float]:
    """Our speed over theirs in each round that both have."""
    return [ours[number] / theirs[number] for number in ours if number in theirs]


def geometric_mean(values: Iterable[float]) -> Ratio | None:
    """Of ratios; None where there is none."""
    logs = [math.log(value) for value in values]
    if not logs:
        return None
    mean = statistics.fmean(logs)
    if len(logs) == 1:
        return Ratio(math.exp(mean), None, None)
    reach = t_975(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach))


def comparisons(records: Sequence[Record]) -> list[Comparison]:
    """One for each cell and automatic arm, in order of appearance; none without an automatic arm."""
    return [comparison for cell, speeds in speeds_by_cell(records).items() for comparison in _of_cell(cell, speeds)]


def speeds_by_cell(records: Sequence[Record]) -> dict[Cell, dict[str, dict[Hashable, float]]]:
    """Decode speeds in order of appearance: by cell, then arm, then what is paired."""
    cells: dict[Cell, dict[str, dict[Hashable, float]]] = {}
    for record in records:
        speeds = cells.setdefault(record.cell, {}).setdefault(record.arm, {})
        if record.tokens_per_s is not None:
            speeds[record.pair] = record.tokens_per_s
    return cells


def _of_cell(cell: Cell, speeds: Mapping[str, Speeds]) -> list[Comparison]:
    workload, concurrency, temperature = cell
    modes = {arm: parse_arm(arm).speculation.mode for arm in speeds}
    fixed = [arm for arm, mode in modes.items() if mode != "auto" and speeds[arm]]
    best = max(fixed, key=lambda arm: statistics.median(speeds[arm].values()), default=None)
    off = next((arm for arm in fixed if modes[arm] == "off"), None)
    return [
        Comparison(
            workload,
            concurrency,
            arm,
            best,
            over_off=paired_ratio(speeds[arm], speeds[off]) if off else None,
            over_best=paired_ratio(speeds[arm], speeds[best]) if best else None,
            temperature=temperature,
        )
        for arm, mode in modes.items()
        if mode == "auto"
    ]
