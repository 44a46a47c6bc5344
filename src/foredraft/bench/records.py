"""What is kept of a run, and the file of a benchmark, which a later call can go on with."""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from foredraft.bench.runner import Run, Turn
from foredraft.bench.timing import percentile
from foredraft.core import SpeculationStats
from foredraft.errors import ConfigError

Cell = tuple[str, int, float]  # workload, concurrency, temperature

COMPARED = ("foredraft", "cpu", "cpu_family_model", "cores", "models", "options")  # of a file's provenance


@dataclass(frozen=True)
class Record:
    """A run's figures: speeds over all its prompts, the median TTFT, and ITL percentiles of all its tokens.

    Prompt speed and TTFT are None where the prefix cache had the prompts. answers_sha256: of all different answers.
    failures: requests without an answer, by the reason. block: see `Turn`.
    """

    round: int
    workload: str
    concurrency: int
    arm: str
    tokens_per_s: float | None
    prompt_tokens_per_s: float | None
    ttft_ms: float | None
    itl_p50_ms: float | None
    itl_p95_ms: float | None
    answers_sha256: str
    stats: SpeculationStats
    temperature: float = 0.0
    block: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, has_prompt_times: bool = True) -> Record:
        turn = run.turn
        return cls(
            round=turn.round,
            workload=turn.workload,
            concurrency=turn.concurrency,
            arm=turn.arm.name,
            tokens_per_s=run.decode.per_s,
            prompt_tokens_per_s=run.prompt.per_s if has_prompt_times else None,
            ttft_ms=statistics.median(run.ttfts_ms) if run.ttfts_ms and has_prompt_times else None,
            itl_p50_ms=percentile(run.gaps_ms, 0.50),
            itl_p95_ms=percentile(run.gaps_ms, 0.95),
            answers_sha256=hashlib.sha256(repr(sorted(run.answers)).encode()).hexdigest(),
            stats=run.stats,
            temperature=turn.temperature,
            block=turn.block,
            failures=dict(run.failures),
        )

    @property
    def cell(self) -> Cell:
        """What it is compared within."""
        return self.workload, self.concurrency, self.temperature

    @property
    def pair(self) -> tuple[int, int]:
        """Records of a cell with the same one ran directly after each other, over the same requests."""
        return self.round, self.block

    def is_of(self, turn: Turn) -> bool:
        """Whether this is what came of `turn`."""
        mine = (*self.cell, *self.pair, self.arm)
        return mine == (*(turn.workload, turn.concurrency, turn.temperature), turn.round, turn.block, turn.arm.name)

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "stats": vars(self.stats)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """The opposite of `as_dict`; KeyError, TypeError or AttributeError where `values` are something else."""
        stats: dict[str, Any] = {
            name: Counter(value) if isinstance(value, dict) else value for name, value in values["stats"].items()
        }
        return cls(**{**values, "stats": SpeculationStats(**stats)})


def saved_records(saved: Any, provenance: Mapping[str, Any], source: str) -> list[Record]:
    """The runs of a result, if it is one of the same benchmark as `provenance` describes.

    Raises:
        ConfigError: `saved` is something else; the message names `source` and what differs.
    """
    try:
        records = [Record.from_dict(values) for values in saved["runs"]]
        before = {name: saved["provenance"][name] for name in COMPARED}
    except (KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{source} is there and is not a result that can be continued; name another file or remove it"
        ) from None
    differences = [text for name in COMPARED for text in _differences(name, before[name], provenance[name]) if text]
    if differences:
        raise ConfigError(
            f"{source} holds a result of another benchmark ({'; '.join(differences)}); give the same options to "
            "continue it, or name another file"
        )
    return records


def _differences(name: str, there: Any, here: Any) -> list[str]:
    """What differs, as texts; the options and models that differ are named one by one."""
    if isinstance(there, dict) and isinstance(here, dict) and name in ("models", "options"):
        keys = dict.fromkeys((*there, *here))
        return [text for key in keys for text in _differences(key, there.get(key), here.get(key))]
    return [] if there == here else [f"{name} is {_short(there)} there and {_short(here)} here"]


def _short(value: Any) -> str:
    """A file by its name, anything else as it is."""
    if isinstance(value, dict) and "file" in value:
        return f"{value['file']} ({value.get('size')} bytes, sha256 {str(value.get('sha256_of_first_mib'))[:8]})"
    return "not given" if value is None else str(value)


def result(
    provenance: Mapping[str, Any],
    records: Sequence[Record],
    cells: Sequence[Any],
    comparisons: Sequence[Any],
    summaries: Sequence[Any],
) -> dict[str, Any]:
    """The value to save: where it comes from, what follows from it, and every run."""
    return {
        "provenance": dict(provenance),
        "cells": list(cells),
        "comparisons": list(comparisons),
        "summaries": list(summaries),
        "runs": [record.as_dict() for record in records],
    }
