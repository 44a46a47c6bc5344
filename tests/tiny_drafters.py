"""Tiny learned drafters with random weights, as checkpoints for the tiny models of tests/tiny.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tiny
from checkpoint_writer import write_directory
from foredraft.core import FloatArray
from foredraft.ops import quants
from foredraft.ops.base import TensorType
from gguf_writer import write_gguf
from quantizers import make_tensor
from tiny import LLAMA, TinyModel

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "max_position_embeddings": 512,
    "hidden_act": "silu",
}
TAPS = (0, 1, 2)


def eagle3(model: TinyModel = LLAMA, draft_vocab: int = 96, seed: int = 0, **changes: Any) -> tuple[dict, dict]:
    """Configuration and weights of an EAGLE-3 head. `changes` go to the configuration; its optional norms follow it."""
    config = {**CONFIG, "vocab_size": model.vocab_size, "draft_vocab_size": draft_vocab, "taps": list(TAPS), **changes}
    rng = np.random.default_rng([3, seed])
    hidden = config["hidden_size"]
    weights = _layer(rng, config, "midlayer.", 2 * hidden)
    for name in ("hidden_norm", "input_layernorm"):
        weights[f"midlayer.{name}.weight"] = _norm(rng, hidden)
    weights["fc.weight"] = _matrix(rng, hidden, len(config["taps"]) * model.hidden)
    if config.get("norm_before_fc"):
        weights["input_norm.weight"] = _norm(rng, len(config["taps"]) * model.hidden)
    if config.get("fc_norm"):
        weights |= {f"fc_norm.{tap}.weight": _norm(rng, model.hidden) for tap in range(len(config["taps"]))}
    weights["norm.weight"] = _norm(rng, hidden, 4.0)
    weights["lm_head.weight"] = _matrix(rng, draft_vocab, hidden)
    if draft_vocab < model.vocab_size:
        ids = np.sort(rng.choice(model.vocab_size, draft_vocab, replace=False))
        weights["d2t"] = ids - np.arange(draft_vocab)
        weights["t2d"] = np.isin(np.arange(model.vocab_size), ids)
    return config, weights


def eagle(model: TinyModel = LLAMA, seed: int = 0, **changes: Any) -> tuple[dict, dict]:
    """Configuration and weights of an EAGLE-1 head."""
    config = {**CONFIG, "vocab_size": model.vocab_size, "hidden_size": model.hidden, **changes}
    rng = np.random.default_rng([1, seed])
    weights = _layer(rng, config, "layers.0.", model.hidden)
    weights["fc.weight"] = _matrix(rng, model.hidden, 2 * model.hidden)
    weights["fc.bias"] = _matrix(rng, 1, model.hidden)[0]
    weights["embed_tokens.weight"] = _matrix(rng, model.vocab_size, model.hidden)
    return config, weights


def medusa(
    model: TinyModel = LLAMA, num_heads: int = 3, num_layers: int = 1, draft_vocab: int | None = None, seed: int = 0
) -> tuple[dict, dict]:
    """Configuration and weights of Medusa heads in vLLM's names: with a draft vocabulary, one output matrix for all."""
    rng = np.random.default_rng([2, seed])
    config = {"hidden_size": model.hidden, "num_heads": num_heads, "num_hidden_layers": num_layers}
    weights: dict[str, Any] = {}
    for head in range(num_heads):
        for depth in range(num_layers):
            weights[f"blocks.{head}.layers.{depth}.weight"] = _matrix(rng, model.hidden, model.hidden)
            weights[f"blocks.{head}.layers.{depth}.bias"] = _matrix(rng, 1, model.hidden)[0]
        if draft_vocab is None:
            weights[f"lm_heads.{head}.weight"] = _matrix(rng, model.vocab_size, model.hidden)
    if draft_vocab is not None:
        weights["lm_head.weight"] = _matrix(rng, draft_vocab, model.hidden)
        weights["token_map"] = np.sort(rng.choice(model.vocab_size, draft_vocab, replace=False))
        config["truncated_vocab_size"] = draft_vocab
    return config, weights


def mtp(model: TinyModel = LLAMA, naming: str = "deepseek", seed: int = 0, **changes: Any) -> tuple[dict, dict]:
    """Configuration and weights of an MTP block, named as DeepSeek's or as Qwen3-Next's."""
    config = {**CONFIG, "vocab_size": model.vocab_size, "hidden_size": model.hidden, **changes}
    rng = np.random.default_rng([4, seed])
    hidden, own = model.hidden, f"model.layers.{model.num_layers}."
    layer = own if naming == "deepseek" else "mtp.layers.0."
    weights = _layer(rng, config, layer, hidden)
    weights[f"{layer}input_layernorm.weight"] = _norm(rng, hidden)
    for name in "qk":
        weights[f"{layer}self_attn.{name}_norm.weight"] = _norm(rng, config["head_dim"])
    names = ("enorm", "hnorm", "shared_head.norm", "eh_proj")
    if naming == "qwen":
        own, names = "mtp.", ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc")
    for name in names[:2]:
        weights[f"{own}{name}.weight"] = _norm(rng, hidden)
    weights[f"{own}{names[2]}.weight"] = _norm(rng, hidden, 2.0)
    weights[f"{own}{names[3]}.weight"] = _matrix(rng, hidden, 2 * hidden)
    if naming == "qwen":
        weights = {name: values - 1 if values.ndim == 1 else values for name, values in weights.items()}
    return config, weights


def write_medusa(path: Path, model: TinyModel = LLAMA, **changes: Any) -> Path:
    return write_directory(path, *medusa(model, **changes))


def write_eagle3(path: Path, model: TinyModel = LLAMA, **changes: Any) -> Path:
    return write_directory(path, *eagle3(model, **changes))


def write_eagle(path: Path, model: TinyModel = LLAMA, **changes: Any) -> Path:
    return write_directory(path, *eagle(model, **changes))


def write_knowing(folder: Path, seed: int = 0, noise: float = 0.0) -> tuple[Path, Path]:
    """A target that goes by its last token alone, and an EAGLE-1 head that knows: its embedding is the target's, which
    it passes on, so that its logits are the target's but for their scale. noise: spoils that."""
    model = replace(LLAMA, seed=seed, sharpness=2.0)
    tensors = {tensor.name: tensor for tensor in tiny.tensors(model)}
    for name, tensor in tensors.items():
        if name.endswith(("attn_output.weight", "ffn_down.weight")):
            tensors[name] = tiny.filled(tensor, 0.0)
    norm = tiny.filled(tensors["output_norm.weight"], 2.0)
    tensors["output_norm.weight"] = norm
    target = write_gguf(folder / "target.gguf", tiny.metadata(model), tensors.values())
    config, weights = eagle(model, seed)
    embedding = quants.dequantize(TensorType.Q8_0, tensors["token_embd.weight"].data).reshape(-1, model.hidden)
    scale = 2.0 / float(np.sqrt(np.square(embedding).mean()))
    rng = np.random.default_rng([2, seed])
    weights["embed_tokens.weight"] = embedding
    passes = np.eye(model.hidden) + noise * rng.standard_normal((model.hidden, model.hidden))
    weights["fc.weight"] = np.concatenate([scale * passes, np.zeros_like(passes)], 1).astype(np.float32)
    for name in ("fc.bias", "layers.0.self_attn.o_proj.weight", "layers.0.mlp.down_proj.weight"):
        weights[name] = np.zeros_like(weights[name])
    return target, write_directory(folder / "knowing", config, weights)


def write_file(path: Path, kind: str, config: dict, weights: dict, matrix: TensorType = TensorType.Q8_0) -> Path:
    """The same as one GGUF file."""
    metadata: dict[str, Any] = {"general.architecture": kind}
    tensors = []
    for key, value in config.items():
        if isinstance(value, str | int | float):
            metadata[f"{kind}.{key}"] = value
        elif value and isinstance(value[0], int):
            metadata[f"{kind}.{key}"] = np.array(value, np.int32)
    for name, values in weights.items():
        if values.dtype == np.float32:
            tensors.append(make_tensor(name, matrix if values.ndim == 2 else TensorType.F32, values))
        else:
            metadata[f"{kind}.{name}"] = values
    return write_gguf(path, metadata, tensors)


def _layer(rng: np.random.Generator, config: dict, prefix: str, inputs: int) -> dict[str, Any]:
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = (config[f"num_{name}_heads"] * config["head_dim"] for name in ("attention", "key_value"))
    return {
        f"{prefix}self_attn.q_proj.weight": _matrix(rng, heads, inputs),
        f"{prefix}self_attn.k_proj.weight": _matrix(rng, kv_heads, inputs),
        f"{prefix}self_attn.v_proj.weight": _matrix(rng, kv_heads, inputs),
        f"{prefix}self_attn.o_proj.weight": _matrix(rng, hidden, heads),
        f"{prefix}mlp.gate_proj.weight": _matrix(rng, ffn, hidden),
        f"{prefix}mlp.up_proj.weight": _matrix(rng, ffn, hidden),
        f"{prefix}mlp.down_proj.weight": _matrix(rng, hidden, ffn),
        f"{prefix}post_attention_layernorm.weight": _norm(rng, hidden),
    }


def _matrix(rng: np.random.Generator, outputs: int, inputs: int) -> FloatArray:
    return (rng.standard_normal((outputs, inputs)) * 1.5 / np.sqrt(inputs)).astype(np.float32)


def _norm(rng: np.random.Generator, size: int, mean: float = 1.0) -> FloatArray:
    return (mean * (1 + 0.1 * rng.standard_normal(size))).astype(np.float32)
