"""`foredraft replay`: decide again what a trace has recorded, by other policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foredraft.cli.files import check_writable, write_json
from foredraft.cli.options import split_names
from foredraft.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from rich.table import Table

    from foredraft.governor.calibration import Calibration, Measured
    from foredraft.governor.replay import Replay

K_RANGES = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 64))

Replays = Mapping[str, "Replay"]


@click.command(short_help="Decide again what a trace has recorded.")
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    default="recorded,auto,off,fixed:4",
    show_default=True,
    metavar="A,B",
    help="Who decides: recorded (as it was), auto (the governor), off, or fixed:K, K tokens wherever there is a draft.",
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="Save the figures.")
def replay(trace: Path, policy: str, json_path: Path | None) -> None:
    """Run policies over the steps of a trace, and hold what was predicted against what happened.

    TRACE is a file that --trace of generate or serve has written. Each policy decides in the situations that were
    recorded. Expected figures follow from the recorded survivals and costs; where the same draft or a longer one was
    tried, the tokens are known, and counted as such.
    """
    from foredraft.cli.output import console
    from foredraft.governor.calibration import Observer
    from foredraft.governor.replay import Replayer, policy_named
    from foredraft.governor.trace import read_trace

    names = split_names(policy)
    if not names:
        raise ConfigError("--policy names nobody; give one or more of recorded, auto, off and fixed:K")
    players = {name: Replayer(policy_named(name)) for name in names}
    check_writable(json_path)
    steps, observer = read_trace(trace), Observer()
    for step in steps:
        observer.add(step)
        for player in players.values():
            player.add(step)
    if steps.is_cut_off:
        click.echo(f"{trace} breaks off; read up to its last whole step", err=True)
    replays = {name: player.result() for name, player in players.items()}
    if not replays[names[0]].num_steps:
        raise TraceError(f"{trace} has no step in which the governor decided; trace a run with --speculation auto")
    measured, calibration = observer.measured(), observer.calibration()
    out = console()
    out.print(_policies(replays))
    out.print(_measured(measured), soft_wrap=True)
    if calibration.count:
        out.print(_calibration(calibration))
    if json_path:
        write_json(json_path, _as_json(steps.header, steps.is_cut_off, replays, measured, calibration))


def _policies(replays: Replays) -> Table:
    from rich.table import Table

    [first, *_] = replays.values()
    table = Table(
        title=f"{first.num_steps} steps, {first.num_decisions} decisions",
        caption="expected: by the recorded survivals and costs. known: the same with real tokens for that share of\n"
        "decisions whose outcome the trace holds. differ: from what was recorded. switches: on or off, per minute.",
        caption_justify="left",
    )
    for heading in (
        "policy",
        "tokens/s expected",
        "known",
        "share",
        "tokens/step",
        "mean k",
        "k",
        "differ",
        "switches",
    ):
        table.add_column(heading, justify="left" if heading in ("policy", "k") else "right")
    for name, each in replays.items():
        table.add_row(
            name,
            f"{each.expected_tokens_per_s:.2f}",
            f"{each.tokens_per_s:.2f}",
            f"{each.exact_share:.1%}",
            f"{each.expected_tokens / each.num_steps:.3f}",
            f"{each.mean_k:.2f}",
            _spread(each),
            f"{each.num_different / max(each.num_decisions, 1):.1%}",
            f"{each.switches_per_minute:.1f}",
        )
    return table


def _spread(found: Replay) -> str:
    """The share of decisions for each range of k that has any."""
    parts = []
    for low, high in K_RANGES:
        count = sum(count for k, count in found.k_counts.items() if low <= k <= high)
        if count:
            parts.append(f"{low if low == high else f'{low}-{high}'}: {count / found.num_decisions:.0%}")
    return ", ".join(parts)


def _measured(measured: Measured) -> str:
    between = measured.between
    return (
        f"Measured: {measured.num_steps} steps with {measured.tokens} tokens in {measured.seconds:.3f} s, "
        f"{measured.tokens_per_s:.2f} tokens/s; of which drafts and passes {measured.pass_seconds:.3f} s, "
        f"expected {measured.expected_pass_seconds:.3f} s. Between them: {between.num_steps} steps without a decision, "
        f"{between.num_tokens} tokens in {between.seconds:.3f} s."
    )


def _calibration(calibration: Calibration) -> Table:
    from rich.table import Table

    table = Table(
        title="Calibration of chances to be accepted",
        caption=f"{calibration.count} drafted tokens, each with all before it in its draft.\n"
        f"Brier score {calibration.brier:.4f}, expected calibration error {calibration.error:.4f}.",
        caption_justify="left",
    )
    for heading in ("predicted from", "to", "tokens", "mean predicted", "accepted"):
        table.add_column(heading, justify="right")
    width = 1 / len(calibration.bins)
    for number, each in enumerate(calibration.bins):
        shown = (f"{each.predicted:.3f}", f"{each.observed:.3f}") if each.count else ("", "")
        table.add_row(f"{number * width:.1f}", f"{(number + 1) * width:.1f}", str(each.count), *shown)
    return table


def _as_json(
    header: Mapping[str, Any], is_cut_off: bool, replays: Replays, measured: Measured, calibration: Calibration
) -> dict[str, Any]:
    rates = ("expected_tokens_per_s", "tokens_per_s", "exact_share", "mean_k", "switches_per_minute")
    return {
        "trace": header,
        "is_cut_off": is_cut_off,
        "policies": {
            name: {**asdict(each), **{rate: getattr(each, rate) for rate in rates}} for name, each in replays.items()
        },
        "measured": {**asdict(measured), "tokens_per_s": measured.tokens_per_s},
        "calibration": asdict(calibration),
    }
