"""From runs to the cells of a result: medians over rounds, with every round's figures beside them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from foredraft import theory
from foredraft.bench.arms import Arm
from foredraft.bench.runner import Run
from foredraft.bench.timing import percentile
from foredraft.core import SpeculationStats

MEASURED = ("tokens_per_s", "prompt_tokens_per_s", "ttft_ms", "itl_p50_ms", "itl_p95_ms")


def figures(run: Run) -> dict[str, float | None]:
    """What was measured in one run: speeds over all its prompts, the median TTFT, ITL percentiles of all tokens."""
    return {
        "tokens_per_s": run.decode.per_s,
        "prompt_tokens_per_s": run.prompt.per_s,
        "ttft_ms": statistics.median(run.ttfts_ms) if run.ttfts_ms else None,
        "itl_p50_ms": percentile(run.gaps_ms, 0.50),
        "itl_p95_ms": percentile(run.gaps_ms, 0.95),
    }


def cells(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One cell for each workload, concurrency and arm, in order of appearance.

    `same_text` says whether every answer has the token ids that the first arm gave at the first concurrency.
    """
    groups: dict[tuple[str, int, str], list[Run]] = {}
    answers: dict[str, list[tuple[int, ...]]] = {}
    for run in runs:
        groups.setdefault((run.workload, run.concurrency, run.arm.name), []).append(run)
        answers.setdefault(run.workload, run.answers)
    return [_cell(group, answers[group[0].workload]) for group in groups.values()]


def _cell(group: Sequence[Run], expected: list[tuple[int, ...]]) -> dict[str, Any]:
    rounds = [figures(run) for run in group]
    stats = SpeculationStats()
    for run in group:
        stats.add(run.stats)
    first = group[0]
    return {
        "workload": first.workload,
        "arm": first.arm.name,
        "concurrency": first.concurrency,
        **{name: _median([figure[name] for figure in rounds]) for name in MEASURED},
        "alpha": stats.alpha,
        "acceptance_rate": stats.acceptance_rate,
        "accepted_per_position": list(stats.accepted_per_position),
        "num_drafts": stats.num_drafts,
        "num_tokens": stats.num_tokens,
        "tokens_per_step": stats.tokens_per_step,
        "expected_tokens_per_step": _expected(first.arm, stats),
        "same_text": all(run.answers == expected for run in group),
        "rounds": rounds,
    }


def _median(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def _expected(arm: Arm, stats: SpeculationStats) -> float | None:
    """What the formula gives for the measured alpha if every step had a full draft; 1 without any draft."""
    if not stats.num_drafts:
        return 1.0 if stats.num_tokens else None
    return None if stats.alpha is None else theory.expected_tokens(stats.alpha, arm.speculation.most)
