"""The figures of benchmarks/governor.py, and how they are shown. Nothing here runs a model."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from governor_traffic import Log

from foredraft.bench.paired import Ratio, paired_ratio
from foredraft.bench.timing import percentile

INTERACTIVE, ENRICHMENT = "interactive", "enrichment"
CONCURRENCY = {INTERACTIVE: 2, ENRICHMENT: 14}
MIXED = {  # modes of the pools that have traffic
    "alone, off": {INTERACTIVE: "off"},
    "alone, auto": {INTERACTIVE: "auto"},
    "both off": {INTERACTIVE: "off", ENRICHMENT: "off"},
    "both auto": {INTERACTIVE: "auto", ENRICHMENT: "auto"},
    "interactive auto": {INTERACTIVE: "auto", ENRICHMENT: "off"},
}
ENRICHMENT_BOUND = 0.98
WINDOW, NEAR = 10, 0.5  # steps whose mean k has settled where it stays so near to the final mean


def shown(ratio: Ratio | None) -> str:
    if ratio is None:
        return "unknown"
    return f"{ratio.mean:.3f}" + ("" if ratio.low is None else f" ({ratio.low:.3f} to {ratio.high:.3f})")


def mixed_figures(number: int, arm: str, log: Log, expected_ends_s: Sequence[float]) -> dict[str, Any]:
    """expected_ends_s: of the steps, had each taken what the cost curve says of its rows."""
    gaps, expected = log.gaps_ms(INTERACTIVE, log.ends_s), log.gaps_ms(INTERACTIVE, expected_ends_s)
    speeds = {route: log.tokens_per_s(route) for route in CONCURRENCY}
    return {
        "round": number,
        "arm": arm,
        "seconds": log.seconds,
        "num_steps": len(log.records),
        "itl_p50_ms": percentile(gaps, 0.50),
        "itl_p95_ms": percentile(gaps, 0.95),
        **{f"{route}_tokens_per_s": speed for route, speed in speeds.items()},
        "tokens_per_s": sum(speeds.values()),
        "mean_rows": log.mean(lambda record: record.num_rows),
        "mean_prompt_rows": log.mean(lambda record: record.num_prompt_rows),
        "mean_draft_rows": log.mean(lambda record: record.num_draft_rows),
        "expected_step_ms": 1e3 * expected_ends_s[-1] / len(log.records),
        "expected_itl_p95_ms": percentile(expected, 0.95),
    }


def show_mixed(records: Sequence[Mapping[str, Any]]) -> None:
    def of(arm: str, figure: str) -> dict[int, float]:
        return {record["round"]: record[figure] for record in records if record["arm"] == arm}

    columns = ("itl_p50_ms", "itl_p95_ms", *(f"{route}_tokens_per_s" for route in CONCURRENCY), "tokens_per_s")
    columns = (*columns, "mean_rows", "mean_prompt_rows", "mean_draft_rows")
    click.echo(" " * 18 + "".join(f"{name.removesuffix('_tokens_per_s'):>17}" for name in columns))
    for arm in MIXED:
        medians = [statistics.median(of(arm, name).values()) for name in columns]
        click.echo(f"{arm:18}" + "".join(f"{value:17.2f}" for value in medians))
    for arm in ("both auto", "interactive auto"):
        ratio = paired_ratio(of(arm, "enrichment_tokens_per_s"), of("both off", "enrichment_tokens_per_s"))
        holds = ratio.holds(ENRICHMENT_BOUND) if ratio else None
        click.echo(f"enrichment tokens/s, {arm} over both off: {shown(ratio)}, at least {ENRICHMENT_BOUND}: {holds}")
    for arm in ("both off", "both auto", "interactive auto"):
        alone = f"alone, {MIXED[arm][INTERACTIVE]}"
        for by, figure in (("the mean pass", "expected_step_ms"), ("each pass", "expected_itl_p95_ms")):
            p95, together, apart = of(alone, "itl_p95_ms"), of(arm, figure), of(alone, figure)
            explained = {number: p95[number] * together[number] / apart[number] for number in p95}
            ratio = paired_ratio(of(arm, "itl_p95_ms"), explained)
            holds = None if ratio is None or ratio.low is None else ratio.low <= 1
            click.echo(
                f"interactive ITL p95, {arm} over {alone} with the rows of {by}: {shown(ratio)}, no worse: {holds}"
            )


def window_means(ks: Sequence[float]) -> list[float]:
    return [statistics.fmean(ks[start : start + WINDOW]) for start in range(len(ks) - WINDOW + 1)]


def settling(ks: Sequence[float]) -> dict[str, float]:
    """Steps to the end of the first window whose mean is near the final one, that of the second half (`reached`), and
    of the first from which on all are (`settled`); and the share of windows since `reached` that are far from it."""
    final = statistics.fmean(ks[len(ks) // 2 :])
    is_far = [abs(mean - final) > NEAR for mean in window_means(ks)]
    reached = is_far.index(False) if False in is_far else len(is_far)
    settled = len(is_far) - (is_far[::-1].index(True) if True in is_far else len(is_far))
    return {
        "final_k": final,
        "reached": reached + WINDOW,
        "settled": settled + WINDOW,
        "share_far": sum(is_far[reached:]) / max(1, len(is_far) - reached),
    }


def settled_line(record: Mapping[str, Any]) -> str:
    copies = statistics.fmean(record["ks"]["copies"])
    num_switches, seconds = record["num_switches"]["free text"], record["seconds"]["free text"]
    return (
        f"{record['concurrency']} at a time, round {record['round']}: k {copies:.2f} for copies, then "
        f"{record['final_k']:.2f}; reached after {record['reached']} steps, settled after {record['settled']}, "
        f"{record['share_far']:.0%} of windows since it was reached far; {num_switches} switches in {seconds:.0f} s"
    )


def draw(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """A panel for each concurrency, a line for each round: the mean k of ten steps, over steps since the change."""
    from matplotlib.figure import Figure

    concurrencies = list(dict.fromkeys(record["concurrency"] for record in records))
    figure = Figure(figsize=(8, 2.8 * len(concurrencies)), layout="constrained")
    for axes, concurrency in zip(figure.subplots(len(concurrencies), squeeze=False)[:, 0], concurrencies, strict=True):
        for record in (record for record in records if record["concurrency"] == concurrency):
            copies, free = record["ks"].values()
            means = window_means([*copies, *free])
            steps = range(WINDOW - len(copies), WINDOW - len(copies) + len(means))
            axes.plot(steps, means, lw=1, alpha=0.7, label=f"round {record['round']}")
        axes.axvline(0, color="0.3", ls="--", lw=1)
        axes.axvspan(0, 50, color="0.9", zorder=0)
        axes.set(title=f"{concurrency} at a time", ylabel=f"k, mean of {WINDOW} steps", ylim=(0, None))
    axes.set(xlabel="steps since the change from copies to free text (shaded: 50)")
    figure.savefig(path, dpi=150)
