"""`foredraft plan --model`: speed-up over concurrency, the crossovers, and what would move them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Table

from foredraft.cli.output import console
from foredraft.governor.crossover import LEAST_GAIN, MOST_CONCURRENCY, Costs, Curve, Gain, curve

ALPHAS = (0.4, 0.6, 0.8, 0.9, 0.95)
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)
USUAL_ALPHA = 0.8  # what the words are about where none is asked for


def show(name: str, costs: Costs, alpha: float | None, plot: Path | None) -> None:
    """Print the table and the words; draw the plot where one is asked for. name: of model and machine."""
    curves = [curve(value, costs) for value in sorted({*ALPHAS, *(() if alpha is None else (alpha,))})]
    out = console()
    out.print(_table(name, costs, curves))
    for line in changes(USUAL_ALPHA if alpha is None else alpha, curves, costs):
        out.print(line)
    if plot:
        from foredraft.cli.plot import draw_crossovers

        draw_crossovers(plot, name, curves)
        out.print(f"plot written to {plot}")


def _table(name: str, costs: Costs, curves: Sequence[Curve]) -> Table:
    caption = f"Speed-up at the best k; -: no k gives {LEAST_GAIN:g}x. "
    caption += f"~: beyond the {costs.measured_rows} rows measured, extrapolated."
    if costs.draft.seconds[0]:
        caption += f"\nA drafted token takes {costs.c():.3f} of a pass"
        caption += ", taken to be so at any concurrency." if costs.is_draft_scaled else " for one sequence."
    table = Table(title=name, caption=caption, caption_justify="left")
    for heading in ("alpha", *(f"{count} at once" for count in CONCURRENCIES), "crossover"):
        table.add_column(heading, justify="right")
    for one in curves:
        gains = (_cell(one.gains[count - 1]) for count in CONCURRENCIES)
        table.add_row(f"{one.alpha:g}", *gains, _named(one.crossover))
    return table


def _cell(gain: Gain) -> str:
    text = f"{gain.speedup:.2f}x k {gain.k}" if gain.k else "-"
    return f"~ {text}" if gain.is_extrapolated else text


def _named(crossover: int | None) -> str:
    return f"over {MOST_CONCURRENCY}" if crossover is None else str(crossover)


def changes(alpha: float, curves: Sequence[Curve], costs: Costs) -> Iterator[str]:
    """What the crossover is at `alpha`, which is one of the curves', and what would move it."""
    here = next(one for one in curves if one.alpha == alpha)
    yield f"At alpha {alpha:g} {_meaning(here)}."
    if costs.draft.seconds[0]:
        yield _change("A draft of half the cost", here, curve(alpha, costs.with_draft(0.5)))
        yield _change("A draft that costs nothing, such as lookup,", here, curve(alpha, costs.with_draft(0.0)))
    yield _change("Rows that add half as much to a pass", here, curve(alpha, costs.with_rows(0.5)))
    others = [f"{_named(one.crossover)} at alpha {one.alpha:g}" for one in curves if one is not here]
    yield f"The crossover is {', '.join(others)}."


def _meaning(here: Curve) -> str:
    if here.crossover is None:
        return f"drafting pays up to {MOST_CONCURRENCY} sequences at once, and maybe beyond"
    if here.crossover == 1:
        return "no k pays, even for one sequence: leave drafting off"
    best = here.gains[0]
    alone = f"; alone, k {best.k} gives {best.speedup:.2f}x" if best.k else ""
    return f"the crossover is {here.crossover}: with so many sequences at once, or more, leave drafting off{alone}"


def _change(what: str, here: Curve, there: Curve) -> str:
    if here.crossover == there.crossover:
        return f"{what} would leave the crossover at {_named(here.crossover)}."
    return f"{what} would move the crossover from {_named(here.crossover)} to {_named(there.crossover)}."
