"""An experiment's record as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foredraft.cli.output import console

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS: dict[str, tuple[str, int]] = {  # heading: figure, digits
    "s": ("seconds", 1),
    "tokens": ("tokens", 0),
    "tokens/s": ("tokens_per_s", 1),
    "device ms/token": ("device_ms_per_token", 2),
    "ITL p50 ms": ("itl_p50_ms", 1),
    "p95 ms": ("itl_p95_ms", 1),
    "TTFT p50 ms": ("ttft_p50_ms", 0),
    "alpha": ("alpha", 2),
    "at once": ("concurrency", 1),
    "idle share": ("idle", 2),
    "left out s": ("carry_over_s", 1),
    "carried over": ("num_carried_over", 0),
}


def show(record: Mapping[str, Any]) -> None:
    """Print the windows, the figures of both arms, and what came of it."""
    out = console()
    out.print(_windows(record))
    if record["ratio"]:
        out.print(_comparison(record))
    out.print(f"{record['verdict'] or record['status']}: {record['reason']}")


def _windows(record: Mapping[str, Any]) -> Table:
    from rich.table import Table

    table = Table(
        caption="left out: before the window; carried over: requests in it that began before its arm held",
        caption_justify="left",
    )
    table.add_column("window", justify="right")
    table.add_column("arm", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    arms = dict(zip("AB", record["config"]["arms"], strict=True))
    for number, window in enumerate(record["windows"], 1):
        figures = (_figure(window[name], digits) for name, digits in COLUMNS.values())
        table.add_row(str(number), arms[window["arm"]], *figures, end_section=number % 4 == 0)
    return table


def _comparison(record: Mapping[str, Any]) -> Table:
    from rich.table import Table

    baseline, candidate = record["config"]["arms"]
    caption = f"medians over windows, and {candidate} over {baseline} by blocks (bootstrap intervals of 95%)"
    table = Table(
        caption=f"{caption}\nverdict by {record['compared']}: {record['why_compared']}", caption_justify="left"
    )
    for heading in ("figure", baseline, candidate, "ratio", "from", "to"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for name, ratio in record["bootstrap_ratios"].items():
        medians = (_figure(record["medians"][arm][name], 2) for arm in "AB")
        table.add_row(name, *medians, *(_figure(ratio and ratio[key], 3) for key in ("estimate", "low", "high")))
    return table


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
