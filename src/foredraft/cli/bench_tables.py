"""The tables of `foredraft bench`: speeds of every cell, and how auto compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from foredraft.bench.paired import BEST_BOUND, OFF_BOUND

if TYPE_CHECKING:
    from foredraft.bench.paired import Comparison, Ratio
    from foredraft.bench.summary import Summary

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


def cells_table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        caption="tokens/s: decode speed. x: over the first arm in the same round, mean and 95% interval",
        caption_justify="left",
    )
    heats = ["T"] if any(cell["temperature"] for cell in rows) else []
    failed = ["failed"] if any(cell["num_failed"] for cell in rows) else []
    for heading in ("workload", "at once", *heats, "arm", "tokens/s", "x", "95%", *COLUMNS, *failed):
        is_text = heading in ("workload", "arm", "same text")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=heading in ("arm", "95%"))
    for cell in rows:
        ratio = cell["over_first"] or {"mean": None, "low": None, "high": None}
        heat = [f"{cell['temperature']:g}"] if heats else []
        head = (cell["workload"], str(cell["concurrency"]), *heat, cell["arm"], _figure(cell["tokens_per_s"], 1))
        over = (_figure(ratio["mean"], 2), _interval(ratio["low"], ratio["high"], 2))
        last = [str(cell["num_failed"])] if failed else []
        table.add_row(*head, *over, *(column(cell) for column in COLUMNS.values()), *last)
    return table


def proposers_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Who drafted in each cell, and how much of it was accepted."""
    table = Table(caption="alpha: the chance that a token is accepted, given that all before it were")
    for heading in ("workload", "at once", "T", "arm", "proposer", "drafts", "drafted", "accepted", "alpha"):
        is_text = heading in ("workload", "arm", "proposer")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=heading == "arm")
    for cell in rows:
        head = (cell["workload"], str(cell["concurrency"]), f"{cell['temperature']:g}", cell["arm"])
        for name, counts in cell["by_proposer"].items():
            numbers = (str(counts[key]) for key in ("num_drafts", "num_draft_tokens", "num_accepted"))
            table.add_row(*head, name, *numbers, _figure(counts["alpha"], 2))
    return table


def summary_table(found: Sequence[Summary]) -> Table:
    table = Table(title="All cells together", caption="x: mean over all pairs of all cells", caption_justify="left")
    for heading in ("arm", "x", "95%", "pairs", "per step", "alpha", "failed"):
        table.add_column(heading, justify="left" if heading == "arm" else "right")
    for one in found:
        ratio = one.over_first
        over = ("-", "-") if ratio is None else (_figure(ratio.mean, 2), _interval(ratio.low, ratio.high, 2))
        rates = (_figure(one.tokens_per_step, 2), _figure(one.alpha, 2))
        table.add_row(one.arm, *over, str(one.num_pairs), *rates, str(one.num_failed))
    return table


def paired_table(compared: Sequence[Comparison]) -> Table:
    table = Table(
        caption="Decode speeds of the same round, one over the other: mean and 95% interval over the rounds. best: the "
        "fixed arm with the highest median.",
        caption_justify="left",
    )
    headings = ("over off", "95%", f">= {OFF_BOUND:g}", "best", "over best", "95%", f">= {BEST_BOUND:g}")
    heats = ["T"] if any(one.temperature for one in compared) else []
    for heading in ("workload", "at once", *heats, "arm", *headings):
        is_text = heading in ("workload", "arm", "best") or heading.startswith(">=")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    for one in compared:
        over_off, over_best = _ratio(one.over_off, OFF_BOUND), _ratio(one.over_best, BEST_BOUND)
        heat = [f"{one.temperature:g}"] if heats else []
        table.add_row(one.workload, str(one.concurrency), *heat, one.arm, *over_off, one.best or "-", *over_best)
    return table


def _ratio(ratio: Ratio | None, bound: float) -> tuple[str, str, str]:
    if ratio is None:
        return "-", "-", "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.mean:.3f}", "-", "-"
    return f"{ratio.mean:.3f}", _interval(ratio.low, ratio.high, 3), "holds" if ratio.holds(bound) else "BROKEN"


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


def _interval(low: float | None, high: float | None, digits: int) -> str:
    return "-" if low is None or high is None else f"{low:.{digits}f} to {high:.{digits}f}"


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
