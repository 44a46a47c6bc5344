"""What all cells of a benchmark say together: how much each arm brings, and which to use. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foredraft.bench.arms import parse_arm
from foredraft.bench.paired import BEST_BOUND, Ratio, geometric_mean, ratios, speeds_by_cell
from foredraft.bench.records import Record
from foredraft.core import SpeculationStats

WORTH = 1.02  # less of a speed-up is not worth an option


@dataclass(frozen=True)
class Summary:
    """An arm over the first one, which is the plain one: the mean over every pair of every cell; None without pairs."""

    arm: str
    over_first: Ratio | None
    num_pairs: int
    alpha: float | None
    tokens_per_step: float | None
    num_failed: int

    @property
    def pays(self) -> bool:
        """Whether it is faster, as far as can be told: by more than noise where there is an interval."""
        ratio = self.over_first
        return ratio is not None and ratio.mean >= WORTH and (ratio.low is None or ratio.low > 1)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def summaries(records: Sequence[Record]) -> list[Summary]:
    """One for each arm, in order of appearance."""
    names = list(dict.fromkeys(record.arm for record in records))
    cells = speeds_by_cell(records).values()
    made = []
    for arm in names:
        stats, num_failed = SpeculationStats(), 0
        for record in records:
            if record.arm == arm:
                stats.add(record.stats)
                num_failed += sum(record.failures.values())
        paired = [ratio for speeds in cells for ratio in ratios(speeds.get(arm, {}), speeds.get(names[0], {}))]
        mean = geometric_mean(paired)
        made.append(Summary(arm, mean, len(paired), stats.alpha, stats.tokens_per_step, num_failed))
    return made


def recommendation(found: Sequence[Summary]) -> str:
    """Which arm to use, and why, in a sentence; the first is the plain one."""
    known = [(one, one.over_first) for one in found[1:] if one.over_first is not None]
    if not known:
        return "no recommendation: nothing ran beside the first arm"
    known.sort(key=lambda pair: -pair[1].mean)
    best, its_ratio = known[0]
    once = "" if its_ratio.low is not None else "; each ran once, so repeat it (--rounds 3) before you rely on it"
    paying = [pair for pair in known if pair[0].pays]
    if not paying:
        why = "nothing pays here" if its_ratio.mean < WORTH else "nothing is faster by more than the noise"
        return f"use {found[0].arm}: {why}; {best.arm} comes closest, {_shown(its_ratio)}{once}"
    chosen, ratio = paying[0]
    for one, its in paying:
        if parse_arm(one.arm).speculation.mode == "auto" and its.mean >= BEST_BOUND * ratio.mean:
            chosen, ratio = one, its  # as good as the best here, and it leaves off by itself where nothing pays
    others = ", ".join(f"{one.arm} {its.mean:.2f} x" for one, its in known if one is not chosen)
    return f"use {chosen.arm}: {_shown(ratio)}{'; ' if others else ''}{others}{once}"


def _shown(ratio: Ratio) -> str:
    interval = "" if ratio.low is None or ratio.high is None else f" ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{ratio.mean:.2f} x{interval}"
