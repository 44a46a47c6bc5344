"""The tables of `foredraft bench`: speeds of every cell, and how auto compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from foredraft.bench.paired import BEST_BOUND, OFF_BOUND

if TYPE_CHECKING:
    from foredraft.bench.paired import Comparison, Ratio

COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "prompt/s": lambda cell: _figure(cell["prompt_tokens_per_s"], 0),
    "TTFT ms": lambda cell: _figure(cell["ttft_ms"], 0),
    "ITL p50": lambda cell: _figure(cell["itl_p50_ms"], 1),
    "p95 ms": lambda cell: _figure(cell["itl_p95_ms"], 1),
    "alpha": lambda cell: _figure(cell["alpha"], 2),
    "accepted": lambda cell: _figure(cell["acceptance_rate"], 2),
    "per step": lambda cell: _figure(cell["tokens_per_step"], 2),
    "formula": lambda cell: _figure(cell["expected_tokens_per_step"], 2),
    "same text": lambda cell: "yes" if cell["same_text"] else "NO",
}


def cells_table(rows: Sequence[dict[str, Any]], baseline: str) -> Table:
    table = Table(caption="tokens/s and x: decode speed, and over that of the first arm", caption_justify="left")
    for heading in ("workload", "at once", "arm", "tokens/s", "x", *COLUMNS):
        is_text = heading in ("workload", "arm", "same text")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=heading == "arm")
    base = {(r["workload"], r["concurrency"]): r["tokens_per_s"] for r in rows if r["arm"] == baseline}
    for cell in rows:
        speed, before = cell["tokens_per_s"], base[cell["workload"], cell["concurrency"]]
        ratio = speed / before if speed and before else None
        head = (cell["workload"], str(cell["concurrency"]), cell["arm"], _figure(speed, 1), _figure(ratio, 2))
        table.add_row(*head, *(column(cell) for column in COLUMNS.values()))
    return table


def paired_table(compared: Sequence[Comparison]) -> Table:
    table = Table(
        caption="Decode speeds of the same round, one over the other: mean and 95% interval over the rounds. best: the "
        "fixed arm with the highest median.",
        caption_justify="left",
    )
    headings = ("over off", "95%", f">= {OFF_BOUND:g}", "best", "over best", "95%", f">= {BEST_BOUND:g}")
    for heading in ("workload", "at once", "arm", *headings):
        is_text = heading in ("workload", "arm", "best") or heading.startswith(">=")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    for one in compared:
        over_off, over_best = _ratio(one.over_off, OFF_BOUND), _ratio(one.over_best, BEST_BOUND)
        table.add_row(one.workload, str(one.concurrency), one.arm, *over_off, one.best or "-", *over_best)
    return table


def _ratio(ratio: Ratio | None, bound: float) -> tuple[str, str, str]:
    if ratio is None:
        return "-", "-", "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.mean:.3f}", "-", "-"
    return f"{ratio.mean:.3f}", f"{ratio.low:.3f} to {ratio.high:.3f}", "holds" if ratio.holds(bound) else "BROKEN"


def verdicts(compared: Sequence[Comparison]) -> Iterator[str]:
    """A line for each automatic arm and bound."""
    for arm in dict.fromkeys(one.arm for one in compared):
        mine = [one for one in compared if one.arm == arm]
        for bound, what, ratios in (
            (OFF_BOUND, "off", [one.over_off for one in mine]),
            (BEST_BOUND, "the best fixed arm", [one.over_best for one in mine]),
        ):
            known = [ratio for ratio in ratios if ratio and ratio.high is not None]
            if not known:
                yield f"{arm}: whether it is at least {bound:g} x {what} needs that arm and two rounds or more"
                continue
            held = sum(bool(ratio.holds(bound)) for ratio in known)
            proven = sum(ratio.is_proven(bound) for ratio in known)
            yield (
                f"{arm}: at least {bound:g} x {what} holds in {held} of {len(known)} cells; in {proven} the whole "
                "interval is above it"
            )


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
