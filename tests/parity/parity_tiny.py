"""Tiny models with random weights, one for each kind of decoder, as transformers names their weights and as GGUF does.

Weights and prompt come from numpy's frozen legacy generator, so that the golden logits and the tests see the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from foredraft.core import FloatArray, IntArray
from foredraft.ops.base import Tensor, TensorType
from gguf_writer import write_gguf

HIDDEN, FFN, VOCAB, CONTEXT, EPS = 64, 96, 160, 512, 1e-6
PROMPT_LEN, ROW_STEP = 40, 3  # golden logits are kept for every third row


@dataclass(frozen=True)
class TinyModel:
    """Sizes, and what makes this case worth testing. `rope` is what transformers calls rope parameters."""

    architecture: str
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    is_tied: bool = False
    window: int = 0
    rope_base: float = 10_000.0
    rope: dict[str, Any] = field(default_factory=lambda: {"rope_type": "default"})


LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES = {
    "llama_untied": TinyModel("llama"),
    "llama_tied": TinyModel("llama", 2, 8, 2, 8, is_tied=True, rope={"rope_type": "linear", "factor": 4.0}),
    "llama3_rope": TinyModel("llama", num_kv_heads=1, head_dim=32, rope=LLAMA3_ROPE),
    "qwen2_untied": TinyModel("qwen2", rope_base=1e6),
    "qwen2_tied": TinyModel("qwen2", num_kv_heads=4, is_tied=True),
    "qwen3_untied": TinyModel("qwen3", head_dim=32, rope_base=1e6),
    "qwen3_tied": TinyModel("qwen3", num_kv_heads=1, is_tied=True),
    "gemma3": TinyModel("gemma3", num_layers=7, num_kv_heads=1, head_dim=32, is_tied=True, window=7, rope_base=1e6),
    "gemma3_scaled": TinyModel(
        "gemma3", num_layers=13, is_tied=True, window=16, rope_base=1e6, rope={"rope_type": "linear", "factor": 8.0}
    ),
}


def prompt(name: str) -> IntArray:
    """Random token ids [PROMPT_LEN]."""
    return _random(name + " prompt").randint(0, VOCAB, PROMPT_LEN).astype(np.int32)


def weights(name: str) -> dict[str, FloatArray]:
    """The weights under transformers' names, float32. Scaled so that attention is far from uniform."""
    case, random = CASES[name], _random(name)
    out: dict[str, FloatArray] = {}

    def matrix(key: str, outputs: int, inputs: int, gain: float = 1.0) -> None:
        out[key] = (random.standard_normal((outputs, inputs)) * gain / math.sqrt(inputs)).astype(np.float32)

    def vector(key: str, size: int, mean: float, spread: float = 0.3) -> None:
        out[key] = (mean + random.standard_normal(size) * spread).astype(np.float32)

    norm_mean = 0.0 if case.architecture == "gemma3" else 1.0  # Gemma stores the norm's distance from 1
    heads, kv_heads = case.num_heads * case.head_dim, case.num_kv_heads * case.head_dim
    matrix("model.embed_tokens.weight", VOCAB, HIDDEN)
    for layer in range(case.num_layers):
        prefix = f"model.layers.{layer}."
        for part, size, gain in (("q", heads, 1.5), ("k", kv_heads, 1.5), ("v", kv_heads, 1.0)):
            matrix(f"{prefix}self_attn.{part}_proj.weight", size, HIDDEN, gain)
            if case.architecture == "qwen2":
                vector(f"{prefix}self_attn.{part}_proj.bias", size, 0.0)
        matrix(f"{prefix}self_attn.o_proj.weight", HIDDEN, heads)
        if case.architecture in ("qwen3", "gemma3"):
            for part in ("q_norm", "k_norm"):
                vector(f"{prefix}self_attn.{part}.weight", case.head_dim, norm_mean)
        for part in _NORMS_OF_GEMMA if case.architecture == "gemma3" else _NORMS:
            vector(f"{prefix}{part}.weight", HIDDEN, norm_mean)
        for part, outputs, inputs in (("gate", FFN, HIDDEN), ("up", FFN, HIDDEN), ("down", HIDDEN, FFN)):
            matrix(f"{prefix}mlp.{part}_proj.weight", outputs, inputs)
    vector("model.norm.weight", HIDDEN, norm_mean)
    if not case.is_tied:
        matrix("lm_head.weight", VOCAB, HIDDEN)
    return out


def write(name: str, path: Path, kind: TensorType = TensorType.F32) -> Path:
    """The model as a GGUF file, converted as llama.cpp's converter does; matrices stored as F32 or F16."""
    case = CASES[name]
    tensors = [_tensor(key, _converted(case, key, value), kind) for key, value in weights(name).items()]
    if case.rope["rope_type"] == "llama3":
        tensors.append(Tensor("rope_freqs.weight", TensorType.F32, (case.head_dim // 2,), _raw(_llama3_factors(case))))
    write_gguf(path, _metadata(case), tensors)
    return path


_NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
_NORMS_OF_GEMMA = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _random(name: str) -> np.random.RandomState:
    return np.random.RandomState(crc32(name.encode()))


def _raw(array: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def _tensor(key: str, value: tuple[str, FloatArray], kind: TensorType) -> Tensor:
    name, array = value
    if array.ndim == 1 or kind == TensorType.F32:
        return Tensor(name, TensorType.F32, array.shape, _raw(array))
    return Tensor(name, kind, array.shape, _raw(array.astype(np.float16)))


def _converted(case: TinyModel, key: str, array: FloatArray) -> tuple[str, FloatArray]:
    """GGUF's name of a weight and its values there."""
    stem, ending = key.rsplit(".", 1)
    is_norm = stem.endswith("norm")
    if stem in _WHOLE:
        name = f"{_WHOLE[stem]}.{ending}"
    else:
        _, _, layer, part = stem.split(".", 3)
        parts = _PARTS | (_NORMS_OF_GEMMA if case.architecture == "gemma3" else _NORMS)
        name = f"blk.{layer}.{parts[part]}.{ending}"
    if case.architecture == "gemma3" and is_norm:
        array = array + np.float32(1)
    if case.architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
        # Rotated pairs lie side by side in Llama's files, half a head apart in transformers.
        array = array.reshape(-1, 2, case.head_dim // 2, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
    return name, array


def _llama3_factors(case: TinyModel) -> FloatArray:
    """What rotary frequencies are divided by: long waves by `factor`, short ones by 1, smoothly between (Llama 3.1)."""
    rope = case.rope
    waves = 2 * math.pi * case.rope_base ** (np.arange(0, case.head_dim, 2) / case.head_dim)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((rope["original_max_position_embeddings"] / waves - low) / (high - low), 0, 1)
    return np.asarray(1 / ((1 - smooth) / rope["factor"] + smooth), np.float32)


def _metadata(case: TinyModel) -> dict[str, Any]:
    values: dict[str, Any] = {
        "block_count": case.num_layers,
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "context_length": CONTEXT,
        "attention.head_count": case.num_heads,
        "attention.head_count_kv": case.num_kv_heads,
        "attention.key_length": case.head_dim,
        "attention.value_length": case.head_dim,
        "attention.layer_norm_rms_epsilon": EPS,
        "rope.freq_base": case.rope_base,
    }
    if case.window:
        values["attention.sliding_window"] = case.window
    if case.rope["rope_type"] == "linear":
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": case.rope["factor"]}
    prefixed = {f"{case.architecture}.{key}": value for key, value in values.items()}
    return {"general.architecture": case.architecture, **prefixed}
