"""Pictures: speed-ups over k, the time of a pass over its rows, how auto compares. They need the `plot` extra."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foredraft.cli.files import replacing
from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from foredraft.bench.paired import Comparison, Ratio
    from foredraft.governor.crossover import Curve
    from foredraft.governor.profile import Profile

FORMATS = ("png", "svg", "pdf")
OTHER_ALPHAS = (0.2, 0.4, 0.6, 0.8, 0.9)


def check_can_plot(path: Path) -> None:
    """Make sure that a plot of this name can be drawn.

    Raises:
        ConfigError: matplotlib is not installed, or the file's ending is not one that it can write.
    """
    if path.suffix[1:].lower() not in FORMATS:
        raise ConfigError(f"--plot is {path}; allowed are names that end in .{', .'.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib, which is not installed; run pip install 'foredraft[plot]'")


def draw_plan(path: Path, alpha: float, c: float, k_max: int, cost: dict[str, Any]) -> None:
    """Write the plot: the asked alpha strong, a few others thin, and the line below which drafting loses."""
    from matplotlib.figure import Figure

    from foredraft import theory

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    ks = list(range(k_max + 1))
    for value in sorted({*OTHER_ALPHAS, alpha}):
        gains = [theory.speedup(value, k, c, **cost) for k in ks]
        is_asked = value == alpha
        axes.plot(
            ks, gains, marker="o" if is_asked else "", lw=2.5 if is_asked else 1, color="C0" if is_asked else "0.6"
        )
        end = (ks[-1], gains[-1])
        axes.annotate(f"α {value:g}", end, (7, 0), textcoords="offset points", va="center", fontsize=8)
    best = theory.best_k(alpha, c, k_max, **cost)
    axes.plot(best, theory.speedup(alpha, best, c, **cost), "o", ms=11, mfc="none", mec="C3", label=f"best: k {best}")
    axes.axhline(1, color="0.3", ls="--", lw=1, label="as fast as without drafts")
    axes.set(xlabel="k, drafted tokens per step", ylabel="speed-up", title=f"alpha {alpha:g}, c {c:g}", xticks=ks)
    axes.set_xlim(0, k_max * 1.08)
    axes.legend(loc="upper left")
    _save(figure, path)


def draw_profile(path: Path, name: str, profile: Profile) -> None:
    """Write the plot: a line for each context, and beside it the time of as many passes over one row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for context in sorted({point.context for point in profile.points}):
        points = [point for point in profile.points if point.context == context]
        rows, times_ms = [point.rows for point in points], [point.ms for point in points]
        (line,) = axes.plot(rows, times_ms, marker="o", label=f"after {context} tokens")
        axes.plot(rows, [times_ms[0] * count for count in rows], ls=":", color=line.get_color())
    axes.plot([], [], ls=":", color="0.3", label="as many passes over one row")
    top = max(point.ms for point in profile.points)
    axes.set(xlabel="rows of a pass", ylabel="ms", title=name, xlim=(0, None), ylim=(0, 1.1 * top))
    axes.legend(loc="lower right")
    _save(figure, path)


def draw_crossovers(path: Path, name: str, curves: Sequence[Curve]) -> None:
    """Write the plot: speed-up over concurrency for each alpha, dashed where it is extrapolated, crossovers ringed."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(1, color="0.3", lw=1)
    for number, one in enumerate(curves, 1):
        color = colormaps["viridis_r"](number / len(curves))
        counts = [gain.concurrency for gain in one.gains]
        gains = [gain.speedup for gain in one.gains]
        measured = next((i for i, gain in enumerate(one.gains) if gain.is_extrapolated), len(counts))
        end = "none" if one.crossover is None else one.crossover
        axes.plot(counts[:measured], gains[:measured], color=color, label=f"α {one.alpha:g}, crossover {end}")
        axes.plot(counts[max(0, measured - 1) :], gains[max(0, measured - 1) :], ls="--", color=color)
        if one.crossover is not None:
            axes.plot(one.crossover, 1, "o", ms=9, mfc="none", mec=color, mew=2)
    axes.plot([], [], ls="--", color="0.3", label="extrapolated")
    ticks = [2**power for power in range(len(curves[0].gains).bit_length())]
    axes.set(xlabel="sequences at once", ylabel="speed-up at the best k", title=name, xscale="log")
    axes.set_xticks(ticks, ticks)
    axes.set_xticks([], minor=True)
    axes.set_ylim(bottom=0.8)
    axes.legend()
    _save(figure, path)


def draw_heat_map(path: Path, compared: Sequence[Comparison]) -> None:
    """Write the plot: for each automatic arm, its speed over off's and over the best fixed arm's, in every cell.

    A frame marks a bound that is broken, a name below a ratio the best fixed arm.
    """
    from matplotlib.figure import Figure

    from foredraft.bench.paired import BEST_BOUND, OFF_BOUND

    arms = list(dict.fromkeys(one.arm for one in compared))
    workloads = list(dict.fromkeys(one.workload for one in compared))
    columns = sorted({one.concurrency for one in compared})
    size = (2 + 2 * max(3, 1.15 * len(columns)), len(arms) * (1.5 + 0.7 * len(workloads)))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(arms), 2, squeeze=False)
    for arm, (left, right) in zip(arms, panels, strict=True):
        for axes, bound, what in ((left, OFF_BOUND, "off"), (right, BEST_BOUND, "the best fixed arm")):
            axes.set(title=f"{arm} over {what}\n(framed: below {bound:g})", xlabel="requests at a time")
            axes.set_xticks(range(len(columns)), columns)
            axes.set_yticks(range(len(workloads)), workloads)
            axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(workloads) - 0.5, -0.5))
        for one in (one for one in compared if one.arm == arm):
            place = (columns.index(one.concurrency), workloads.index(one.workload))
            _heat_cell(left, place, one.over_off, OFF_BOUND, "")
            _heat_cell(right, place, one.over_best, BEST_BOUND, one.best or "")
    _save(figure, path)


def _heat_cell(axes: Axes, place: tuple[int, int], ratio: Ratio | None, bound: float, note: str) -> None:
    """A colored square around `place`: white for 1, red below, blue above, full color from a factor of 1.5 on."""
    if ratio is None:
        return
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    depth = math.log(ratio.mean) / math.log(1.5)
    color = colormaps["RdBu"](0.5 + 0.3 * max(-1.0, min(depth, 1.0)))
    x, y = place
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fc=color, ec="white", lw=1))
    if ratio.holds(bound) is False:
        axes.add_patch(Rectangle((x - 0.44, y - 0.44), 0.88, 0.88, fill=False, ec="black", lw=2))
    axes.text(x, y - 0.12 * bool(note), f"{ratio.mean:.2f}", ha="center", va="center")
    axes.text(x, y + 0.25, note, ha="center", va="center", fontsize=6)


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as part:
        figure.savefig(part, format=path.suffix[1:].lower(), dpi=150)


def draw_training(path: Path, record: Mapping[str, Any]) -> None:
    """Write the plot: the share of drafts accepted up to each position over the answer tokens that were seen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    tokens = [point["tokens"] for point in record["points"]]
    for position, shares in enumerate(zip(*(point["acceptance"] for point in record["points"]), strict=True), 1):
        axes.plot(tokens, shares, marker=".", label=f"position {position}")
    axes.set(
        xlabel="answer tokens trained on",
        ylabel="drafts accepted up to a position (held out)",
        title=f"{record['kind']} for {record['target']['file']}",
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    axes.legend()
    with replacing(path) as part:
        figure.savefig(part, format=path.suffix[1:].lower(), dpi=150)
