"""What kind of decoder a file holds: a typed description read from its metadata.

The kinds differ in few places only; each place is a field here, so that decoder.py has no `if llama`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from foredraft.core import FloatArray
from foredraft.errors import ModelError
from foredraft.models.gguf import GGUFFile

SLIDING_PATTERN = 6  # Gemma 3: five layers with a window, then one that sees everything (2503.19786, section 2)
LOCAL_ROPE_BASE = 10_000.0  # Gemma 3: the rotary base of the layers with a window

Frequencies = Callable[[float, float], FloatArray]


@dataclass(frozen=True)
class Architecture:
    """Sizes and habits of a decoder.

    num_layers: those of the model itself; has_mtp: an MTP block follows them, one more layer in the file.
    rope_frequencies, windows: one entry per layer, the block's last. embedding_scale multiplies the embeddings.
    """

    name: str
    num_layers: int
    has_mtp: bool
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    norm_eps: float
    rope_frequencies: tuple[FloatArray, ...]
    windows: tuple[int, ...]
    is_interleaved: bool
    activation: str
    embedding_scale: float
    attention_scale: float
    has_head_norms: bool
    has_post_norms: bool


def read(file: GGUFFile, rope_factors: FloatArray | None = None) -> Architecture:
    """Describe the decoder in `file`. rope_factors [head_dim / 2] divide the rotary frequencies (Llama 3.1).

    Raises:
        ModelError: an unknown architecture (the message lists the known ones), a missing or senseless value, or a
            feature that is not supported.
    """
    name = file.get("general.architecture", str)
    if name not in _HABITS:
        raise ModelError(f"{file.path}: architecture {name!r} is not supported; known are {', '.join(_HABITS)}")

    def size(key: str, default: int | None = None, most: int = 2**24) -> int:
        value = file.get(f"{name}.{key}", int, default=default)
        if not 1 <= value <= most:
            raise ModelError(f"{file.path}: {name}.{key} is {value}; allowed is 1 to {most}")
        return value

    layers, hidden, heads = size("block_count", most=1000), size("embedding_length"), size("attention.head_count")
    mtp_blocks = file.get(f"{name}.nextn_predict_layers", int, default=0)
    if not 0 <= mtp_blocks <= min(layers - 1, 1):
        raise ModelError(
            f"{file.path}: {name}.nextn_predict_layers is {mtp_blocks}; supported are 0 and 1 of several layers"
        )
    kv_heads = size("attention.head_count_kv", heads)
    head_dim = size("attention.key_length", max(hidden // heads, 1))
    if heads % kv_heads or head_dim % 2 or size("attention.value_length", head_dim) != head_dim:
        raise ModelError(f"{file.path}: {heads} heads, {kv_heads} KV heads of {head_dim} do not fit together")
    if size("rope.dimension_count", head_dim) != head_dim:
        raise ModelError(f"{file.path}: partial rotary embeddings are not supported ({name}.rope.dimension_count)")
    if file.get(f"{name}.expert_count", int, default=0):
        raise ModelError(f"{file.path}: mixtures of experts are not supported ({name}.expert_count)")
    eps = file.get(f"{name}.attention.layer_norm_rms_epsilon", float)
    if not 0 <= eps < 1:
        raise ModelError(f"{file.path}: {name}.attention.layer_norm_rms_epsilon is {eps}; allowed is 0 to below 1")
    frequencies = _frequencies(file, head_dim, rope_factors)
    everywhere = frequencies(file.get(f"{name}.rope.freq_base", float, default=10_000.0), _linear_factor(file, name))
    return _HABITS[name](
        Architecture(
            name=name,
            num_layers=layers - mtp_blocks,
            has_mtp=bool(mtp_blocks),
            hidden=hidden,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            context_length=size("context_length"),
            norm_eps=eps,
            rope_frequencies=(everywhere,) * layers,
            windows=(0,) * layers,
            is_interleaved=False,
            activation="silu",
            embedding_scale=1.0,
            attention_scale=head_dim**-0.5,
            has_head_norms=False,
            has_post_norms=False,
        ),
        file,
        frequencies,
    )


def _linear_factor(file: GGUFFile, name: str) -> float:
    """The factor positions are divided by; only linear scaling is known besides per-frequency factors."""
    kind = file.get(f"{name}.rope.scaling.type", str, default="none")
    if kind not in ("none", "linear"):
        raise ModelError(f"{file.path}: rotary scaling {kind!r} is not supported; known are none and linear")
    return file.get(f"{name}.rope.scaling.factor", float, default=1.0) if kind == "linear" else 1.0


def _frequencies(file: GGUFFile, head_dim: int, rope_factors: FloatArray | None) -> Frequencies:
    """Rotary frequencies [head_dim / 2] as a function of base and linear factor."""
    if rope_factors is not None and not (rope_factors.shape == (head_dim // 2,) and np.all(rope_factors > 0)):
        raise ModelError(
            f"{file.path}: tensor rope_freqs.weight has {rope_factors.size} values; needed are {head_dim // 2} above 0"
        )

    def frequencies(base: float, factor: float) -> FloatArray:
        if not (math.isfinite(base) and base > 0 and math.isfinite(factor) and factor > 0):
            raise ModelError(f"{file.path}: rotary base {base} or scaling factor {factor} is not a positive number")
        angles = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim) / factor
        return (angles if rope_factors is None else angles / rope_factors).astype(np.float32)

    return frequencies


def _llama(base: Architecture, file: GGUFFile, frequencies: Frequencies) -> Architecture:
    return replace(base, is_interleaved=True)


def _qwen2(base: Architecture, file: GGUFFile, frequencies: Frequencies) -> Architecture:
    return base


def _qwen3(base: Architecture, file: GGUFFile, frequencies: Frequencies) -> Architecture:
    return replace(base, has_head_norms=True)


def _gemma3(base: Architecture, file: GGUFFile, frequencies: Frequencies) -> Architecture:
    window = file.get("gemma3.attention.sliding_window", int, default=0)
    pattern = file.get("gemma3.attention.sliding_window_pattern", int, default=SLIDING_PATTERN)
    for key, value, least in (("sliding_window", window, 0), ("sliding_window_pattern", pattern, 1)):
        if not least <= value <= 2**24:
            raise ModelError(f"{file.path}: gemma3.attention.{key} is {value}; the file is damaged, fetch it again")
    is_local = [(layer + 1) % pattern != 0 for layer in range(len(base.windows))]
    local = frequencies(file.get("gemma3.rope.freq_base_swa", float, default=LOCAL_ROPE_BASE), 1.0)
    # The 27B model, told by its 62 layers, scales queries by its hidden size per head instead of the head's own.
    scale = (base.hidden / base.num_heads) ** -0.5 if base.num_layers == 62 else base.attention_scale
    return replace(
        base,
        windows=tuple(window if here else 0 for here in is_local),
        rope_frequencies=tuple(
            local if here else everywhere for here, everywhere in zip(is_local, base.rope_frequencies, strict=True)
        ),
        activation="gelu",
        embedding_scale=base.hidden**0.5,
        attention_scale=scale,
        has_head_norms=True,
        has_post_norms=True,
    )


_HABITS: dict[str, Callable[[Architecture, GGUFFile, Frequencies], Architecture]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
}
