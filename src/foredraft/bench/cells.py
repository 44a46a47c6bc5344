"""From records to the cells of a result: medians over rounds, and what all rounds counted together."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from foredraft import theory
from foredraft.bench.arms import parse_arm
from foredraft.bench.paired import Speeds, paired_ratio, speeds_by_cell
from foredraft.bench.records import Cell, Record
from foredraft.core import SpeculationStats

MEASURED = ("tokens_per_s", "prompt_tokens_per_s", "ttft_ms", "itl_p50_ms", "itl_p95_ms")


def cells(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One cell for each workload, concurrency, temperature and arm, in order of appearance.

    `same_text` says whether every answer has the token ids that the first arm gave at the first concurrency, and
    `over_first` is its decode speed over that of the first arm, paired.
    """
    groups: dict[tuple[Cell, str], list[Record]] = {}
    answers: dict[tuple[str, float, int], str] = {}
    for record in records:
        groups.setdefault((record.cell, record.arm), []).append(record)
    for record in sorted(records, key=lambda record: record.arm != records[0].arm):
        answers.setdefault(_text(record), record.answers_sha256)
    speeds = speeds_by_cell(records)
    return [_cell(group, answers, speeds[cell]) for (cell, _), group in groups.items()]


def _text(record: Record) -> tuple[str, float, int]:
    """What an answer may depend on."""
    return record.workload, record.temperature, record.block


def _cell(
    group: Sequence[Record], answers: Mapping[tuple[str, float, int], str], speeds: Mapping[str, Speeds]
) -> dict[str, Any]:
    stats = SpeculationStats()
    for record in group:
        stats.add(record.stats)
    first = group[0]
    over_first = paired_ratio(speeds[first.arm], next(iter(speeds.values())))
    return {
        "workload": first.workload,
        "arm": first.arm,
        "concurrency": first.concurrency,
        "temperature": first.temperature,
        "over_first": over_first and asdict(over_first),
        **{name: _median([getattr(record, name) for record in group]) for name in MEASURED},
        "alpha": stats.alpha,
        "acceptance_rate": stats.acceptance_rate,
        "accepted_per_position": list(stats.accepted_per_position),
        "num_drafts": stats.num_drafts,
        "num_tokens": stats.num_tokens,
        "tokens_per_step": stats.tokens_per_step,
        "expected_tokens_per_step": _expected(first.arm, stats),
        "by_proposer": {
            name: {
                "num_drafts": stats.num_drafts_by_proposer[name],
                "num_draft_tokens": stats.num_draft_tokens_by_proposer[name],
                "num_accepted": stats.num_accepted_by_proposer[name],
                "alpha": stats.alpha_of(name),
            }
            for name in sorted(stats.num_drafts_by_proposer)
        },
        "same_text": all(record.answers_sha256 == answers[_text(record)] for record in group),
        "num_failed": sum(sum(record.failures.values()) for record in group),
        "num_rounds": len(group),
    }


def _median(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def _expected(arm: str, stats: SpeculationStats) -> float | None:
    """What the formula gives for the measured alpha if every step had a full draft; 1 without any draft, and None
    where the arm has no fixed k."""
    speculation = parse_arm(arm).speculation
    if speculation.mode == "auto":
        return None
    if not stats.num_drafts:
        return 1.0 if stats.num_tokens else None
    return None if stats.alpha is None else theory.expected_tokens(stats.alpha, speculation.most)
