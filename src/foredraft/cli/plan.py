"""`foredraft plan`: does speculation pay, and how far should it draft?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foredraft.cli.files import check_writable
from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

SHOWN_K = 12  # the table reaches at least this far

ADVICE = (
    ("The output copies its input (code edits, quoting, forms)", "lookup, k 5 to 10"),
    ("Interactive chat at low concurrency", "a trained head or the model's own MTP block, k 3 to 5"),
    ("A pool near compute saturation", "off; measure first"),
)


@click.command(short_help="Work out whether drafting pays, and the best k.")
@click.option("--alpha", type=float, help="Chance that a drafted token is accepted, given that all before it were.")
@click.option("--k", type=int, default=4, show_default=True, help="Drafted tokens per step.")
@click.option("--c", type=float, default=0.0, show_default=True, help="Time of a draft step / time of a target step.")
@click.option(
    "--curve",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measured pass times: what `foredraft profile --json` saved (its smallest context counts), or a JSON object "
    "{rows: ms}; without it a pass costs the same for any number of rows.",
)
@click.option("--tokens", type=int, default=500, show_default=True, help="Length of an answer.")
@click.option("--tokens-per-s", type=float, default=50.0, show_default=True, help="Speed without speculation.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also draw speed-up over k into a .png or .svg file.",
)
@click.option("--examples", is_flag=True, help="Print published results beside the formula.")
def plan(
    alpha: float | None,
    k: int,
    c: float,
    curve: Path | None,
    tokens: int,
    tokens_per_s: float,
    plot: Path | None,
    examples: bool,
) -> None:
    """Work out, from acceptance and cost, the expected tokens per step, the speed-up, and the best k.

    Tokens per step are (1 - alpha^(k+1)) / (1 - alpha). The speed-up divides them by the time of a step with drafts:
    1 + k c steps without, or what a measured --curve says.
    """
    from foredraft.cli.output import console

    out = console()
    if examples:
        from foredraft.cli.examples import examples_table

        out.print(examples_table())
        return
    if alpha is None:
        raise ConfigError("--alpha is missing; give the chance that a drafted token is accepted, 0 to 1")
    if k < 1 or tokens < 1 or not tokens_per_s > 0:
        raise ConfigError(
            f"--k, --tokens and --tokens-per-s are {k}, {tokens} and {tokens_per_s:g}; allowed is 1 or more, 1 or more "
            "and above 0"
        )
    k_max = max(k, SHOWN_K)
    cost: dict[str, Callable[[int], float]] = {}
    if curve:
        from foredraft.cli.curve import read_curve

        cost["pass_cost"], max_rows = read_curve(curve, k + 1)
        k_max = min(k_max, max_rows - 1)
    if plot:
        from foredraft.cli.plot import check_can_plot

        check_can_plot(plot)
        check_writable(plot)
    out.print(_table(alpha, k, c, k_max, tokens, tokens_per_s, cost))
    for line in _summary(alpha, k, c, k_max, cost):
        out.print(line)
    out.print(_advice())
    if plot:
        from foredraft.cli.plot import draw_plan

        draw_plan(plot, alpha, c, k_max, cost)
        out.print(f"plot written to {plot}")


def _table(alpha: float, k: int, c: float, k_max: int, tokens: int, tokens_per_s: float, cost: dict[str, Any]) -> Table:
    from rich.table import Table

    from foredraft import theory

    best = theory.best_k(alpha, c, k_max, **cost)
    table = Table(
        title=f"alpha {alpha:g}, c {c:g}; answers of {tokens} tokens, {tokens_per_s:g} tokens/s without drafts"
    )
    for heading in ("k", "tokens per step", "speed-up", "break-even alpha", "tokens/s", "device-seconds saved", ""):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for row_k in range(1, k_max + 1):
        gain = theory.speedup(alpha, row_k, c, **cost)
        even = theory.break_even_alpha(row_k, c, **cost)
        table.add_row(
            str(row_k),
            f"{theory.expected_tokens(alpha, row_k):.4f}",
            f"{gain:.4f}",
            "never" if even is None else f"{even:.3f}",
            f"{tokens_per_s * gain:.1f}",
            f"{theory.seconds_saved(tokens, 1 / tokens_per_s, gain):.2f}",
            ", ".join(["asked for"] * (row_k == k) + ["best"] * (row_k == best)),
            style="bold" if row_k in (k, best) else "",
        )
    return table


def _summary(alpha: float, k: int, c: float, k_max: int, cost: dict[str, Any]) -> list[str]:
    from foredraft import theory

    best = theory.best_k(alpha, c, k_max, **cost)
    gain = theory.speedup(alpha, k, c, **cost)
    here = "faster" if gain > 1 else "not faster"
    advice = (
        f"k {best} is best: {theory.speedup(alpha, best, c, **cost):.3f}x" if best else "no k pays: leave drafting off"
    )
    lines = [
        f"k {k}: {theory.expected_tokens(alpha, k):.3f} tokens per step, {gain:.3f}x, {here} than without drafts.",
        f"Of k 1 to {k_max}, {advice}.",
    ]
    if c == 0 and not cost:
        lines.append("Neither drafts nor rows cost anything here, so more is always better; give --c or a --curve.")
    return lines


def _advice() -> Table:
    from rich.table import Table

    table = Table(title="Where to start")
    table.add_column("situation")
    table.add_column("speculation")
    for situation, what in ADVICE:
        table.add_row(situation, what)
    return table
