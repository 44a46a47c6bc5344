"""Pictures: the speed-up over k, the time of a pass over its rows. They need the `plot` extra."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foredraft.cli.files import replacing
from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as part:
        figure.savefig(part, format=path.suffix[1:].lower(), dpi=150)
