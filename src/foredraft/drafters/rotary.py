"""The rotary frequencies of a drafter's attention, as Hugging Face's config.json describes them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from foredraft.core import FloatArray
from foredraft.drafters.checkpoint import Checkpoint
from foredraft.models.gguf_cursor import fail


def frequencies(checkpoint: Checkpoint, head_dim: int) -> FloatArray:
    """Angle per position of each rotated pair, float32 [head_dim / 2].

    Raises:
        ModelError: a value makes no sense, or positions are scaled in a way that is not known.
    """
    table = checkpoint.get("rope_parameters", dict, {}) or checkpoint.get("rope_scaling", dict, {})

    def number(key: str, default: float | None = None) -> float:
        value = table[key] if key in table else checkpoint.get(key, float, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            fail(checkpoint.path, f"has {value!r:.60} as {key} of its rotary embedding; it must be a number above 0")
        return float(value)

    base, kind = number("rope_theta", 10_000.0), _kind(table)
    angles = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if kind == "linear":
        angles /= number("factor")
    elif kind == "llama3":
        # Llama 3.1: low frequencies are divided by the factor, high ones are left, those between are blended.
        factor, low, high = number("factor"), number("low_freq_factor"), number("high_freq_factor")
        if high <= low:
            fail(checkpoint.path, f"has high_freq_factor {high}, which must be above low_freq_factor {low}")
        turns = number("original_max_position_embeddings") * angles / (2 * math.pi)
        share = np.clip((turns - low) / (high - low), 0, 1)
        angles *= share + (1 - share) / factor
    elif kind != "default":
        fail(checkpoint.path, f"scales positions as {kind!r:.40}; known are default, linear and llama3")
    return angles.astype(np.float32)


def _kind(table: dict[str, Any]) -> Any:
    return table.get("rope_type", table.get("type", "default"))
