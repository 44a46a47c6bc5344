"""`foredraft plan`: does speculation pay, how far should it draft, and up to how many sequences at once?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foredraft.cli.files import check_writable
from foredraft.cli.options import model_options
from foredraft.cli.output import console
from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from foredraft.governor.crossover import Costs

SHOWN_K = 12  # the table reaches at least this far


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
@model_options(context=False, required=False, drafters=False)
@click.option("--tokens", type=int, default=500, show_default=True, help="Length of an answer.")
@click.option("--tokens-per-s", type=float, default=50.0, show_default=True, help="Speed without speculation.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also draw speed-up over k, with --model over concurrency, into a .png or .svg file.",
)
@click.option("--examples", is_flag=True, help="Print published results beside the formula.")
def plan(**options: Any) -> None:
    """Work out, from acceptance and cost, the expected tokens per step, the speed-up, and the best k.

    Tokens per step are (1 - alpha^(k+1)) / (1 - alpha). The speed-up divides them by the time of a step with drafts:
    1 + k c steps without, or what a measured --curve says.

    With --model, the profile of that model on this machine (see `profile`; measured if there is none) says what steps
    cost, those of a --draft included, and the speed-up at the best k is shown for 1 to 64 sequences at once and several
    alphas, with the crossover: the number of sequences from which on no k pays. Then --alpha may be left out.
    """
    out = console()
    if options["examples"]:
        from foredraft.cli.examples import examples_table

        out.print(examples_table())
        return
    _check(options)
    if options["model"] is None:
        cost, max_rows = _cost_of_curve(options)
        _show_k(options, options["c"], cost, max_rows)
        return
    costs, name = _measured(options)
    if options["alpha"] is not None:
        _show_k(options, costs.c(), {"pass_cost": costs.pass_cost}, costs.measured_rows)
    from foredraft.cli.crossover import show

    show(name, costs, options["alpha"], options["plot"])


def _check(options: Mapping[str, Any]) -> None:
    """All that can be refused before anything is measured."""
    from foredraft import theory

    if options["model"] is None:
        for name in ("draft", "draft_vocabulary", "threads"):
            if options[name] is not None:
                raise ConfigError(f"--{name.replace('_', '-')} says how to measure and needs a --model")
        if options["alpha"] is None:
            raise ConfigError("--alpha is missing; give the chance that a drafted token is accepted, 0 to 1")
    elif options["curve"]:
        raise ConfigError("both --model and --curve say what a pass costs; give one of them")
    elif options["draft"] and options["c"]:
        raise ConfigError("both --draft and --c say what a draft costs; give one of them")
    k, tokens, tokens_per_s = options["k"], options["tokens"], options["tokens_per_s"]
    if k < 1 or tokens < 1 or not tokens_per_s > 0:
        raise ConfigError(
            f"--k, --tokens and --tokens-per-s are {k}, {tokens} and {tokens_per_s:g}; allowed is 1 or more, 1 or more "
            "and above 0"
        )
    theory.speedup(0.0 if options["alpha"] is None else options["alpha"], k, options["c"])
    if options["plot"]:
        from foredraft.cli.plot import check_can_plot

        check_can_plot(options["plot"])
        check_writable(options["plot"])


def _cost_of_curve(options: Mapping[str, Any]) -> tuple[dict[str, Callable[[int], float]], int | None]:
    """The argument `pass_cost` for theory.py, if there is a curve, and the most rows that it has."""
    if not options["curve"]:
        return {}, None
    from foredraft.cli.curve import read_curve

    pass_cost, max_rows = read_curve(options["curve"], options["k"] + 1)
    return {"pass_cost": pass_cost}, max_rows


def _measured(options: Mapping[str, Any]) -> tuple[Costs, str]:
    """What passes of the model cost on this machine, and a name for that."""
    from foredraft.cli.kept_profile import kept_or_measured, title
    from foredraft.governor.crossover import profile_costs
    from foredraft.models import catalog

    paths = {role: catalog.resolve(options[role]) for role in ("model", "draft") if options[role]}
    profile, kept = kept_or_measured(paths, options["threads"], options["draft_vocabulary"])
    costs = profile_costs(profile, options["c"])
    if options["alpha"] is not None and options["k"] >= costs.measured_rows:
        raise ConfigError(f"--k is {options['k']}, and passes were measured up to {costs.measured_rows} rows; lower it")
    if kept:
        click.echo(f"measured before ({kept}); foredraft profile --again measures anew", err=True)
    return costs, title(profile)


def _show_k(
    options: Mapping[str, Any], c: float, cost: dict[str, Callable[[int], float]], max_rows: int | None
) -> None:
    """The table over k, for one sequence alone. Its plot too, unless there is a model to draw one of."""
    from foredraft.cli.plan_tables import advice_table, k_table, summary

    alpha, k = options["alpha"], options["k"]
    k_max = max(k, SHOWN_K)
    if max_rows is not None:
        k_max = min(k_max, max_rows - 1)
    out = console()
    out.print(k_table(alpha, k, c, k_max, options["tokens"], options["tokens_per_s"], cost))
    for line in summary(alpha, k, c, k_max, cost):
        out.print(line)
    out.print(advice_table())
    if options["plot"] and options["model"] is None:
        from foredraft.cli.plot import draw_plan

        draw_plan(options["plot"], alpha, c, k_max, cost)
        out.print(f"plot written to {options['plot']}")
