"""A measured cost curve from a file: what a pass over so many rows takes."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foredraft.cli.files import read_text
from foredraft.errors import ConfigError


def read_curve(path: Path, max_rows: int) -> tuple[Callable[[int], float], int]:
    """The time of a pass over n rows, linear between the measured points, and the most rows that were measured.

    The file is a JSON object of rows and milliseconds, such as {"1": 24.1, "2": 24.6, "8": 31.0}, or what
    `foredraft profile --json` saved, of which the smallest context is taken.

    Raises:
        ConfigError: the file is neither of them, or does not reach from 1 to `max_rows`.
    """
    points = _points(path)
    rows = [row for row, _ in points]
    if rows[0] != 1 or rows[-1] < max_rows:
        raise ConfigError(
            f"{path} covers {rows[0]} to {rows[-1]} rows; it has to reach from 1 to k + 1 = {max_rows} rows, so "
            "measure more or lower --k"
        )

    def pass_cost(n: int) -> float:
        i = bisect_left(rows, n)
        if rows[i] == n:
            return points[i][1]
        (low, low_ms), (high, high_ms) = points[i - 1], points[i]
        return low_ms + (high_ms - low_ms) * (n - low) / (high - low)

    return pass_cost, rows[-1]


def _points(path: Path) -> list[tuple[int, float]]:
    problem = (
        f"{path} is not a cost curve; save one with foredraft profile --json, or write a JSON object of rows and "
        'milliseconds, such as {"1": 24.1, "8": 31}'
    )
    try:
        values = json.loads(read_text(path))
        pairs = _of_profile(values["points"]) if "points" in values else values.items()
        points = sorted((int(rows), float(ms)) for rows, ms in pairs)
    except (ValueError, TypeError, AttributeError, KeyError):
        raise ConfigError(problem) from None
    if not points or points[0][0] < 1 or not all(0 < ms < math.inf for _, ms in points):
        raise ConfigError(problem)
    return points


def _of_profile(points: list[dict[str, Any]]) -> list[tuple[int, float]]:
    context = min(point["context"] for point in points)
    return [(point["rows"], point["ms"]) for point in points if point["context"] == context]
