"""Tiny models with random weights as real GGUF files: every architecture, real tokenizers, nothing downloaded.

Metadata and tensors are complete, so that llama.cpp loads the same file. Matrices are scaled like an initialized
network's, then the output is sharpened, so that greedy text is neither one token for ever nor decided by rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foredraft.core import FloatArray
from foredraft.ops.base import Tensor, TensorType
from gguf_writer import write_gguf
from quantizers import make_tensor

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
MERGES = ("t h", "th e", "i n", "e r", "a n", "o n", "r e", "Ġ a", "Ġ t", "Ġ the", "an d", "Ġ and", "in g", "e n")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class TinyModel:
    """What a tiny file is made of. `vocab_size` beyond the tokenizer's own tokens is padding.

    seed: of the weights. sharpness: the logits' standard deviation, roughly. tied: no output matrix of its own.
    matrix_type: of all matrices; K-quants need sizes that are multiples of 256. has_mtp: an MTP block comes after the
    layers.
    """

    architecture: str = "llama"
    seed: int = 0
    matrix_type: TensorType = TensorType.Q8_0
    hidden: int = 64
    ffn: int = 128
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 32
    context_length: int = 512
    vocab_size: int = 288
    sliding_window: int = 16
    sharpness: float = 5.0
    tied: bool = False
    rope_base: float = 10_000.0
    has_mtp: bool = False


LLAMA = TinyModel("llama")
QWEN2 = TinyModel("qwen2", tied=True, rope_base=1e6)
QWEN3 = TinyModel("qwen3", head_dim=16, rope_base=1e6)
GEMMA3 = TinyModel("gemma3", num_layers=7, num_kv_heads=1, vocab_size=320, tied=True, rope_base=1e6)
MODELS = {model.architecture: model for model in (LLAMA, QWEN2, QWEN3, GEMMA3)}


def write_tiny(path: Path, model: TinyModel = LLAMA, **changes: Any) -> Path:
    """Write the file of `model` with `changes` to its fields; returns `path`."""
    model = replace(model, **changes)
    return write_gguf(path, metadata(model), tensors(model))


def metadata(model: TinyModel) -> dict[str, Any]:
    name = model.architecture
    sizes = {
        "context_length": model.context_length,
        "embedding_length": model.hidden,
        "block_count": model.num_layers + model.has_mtp,
        "feed_forward_length": model.ffn,
        "attention.head_count": model.num_heads,
        "attention.head_count_kv": model.num_kv_heads,
        "attention.key_length": model.head_dim,
        "attention.value_length": model.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": model.rope_base,
        "rope.dimension_count": model.head_dim,
        "vocab_size": model.vocab_size,
    }
    if name == "gemma3":
        sizes["attention.sliding_window"] = model.sliding_window
    if model.has_mtp:
        sizes["nextn_predict_layers"] = 1
    tokenizer = _sentencepiece(model) if name == "gemma3" else _byte_level(model)
    return {
        "general.architecture": name,
        "general.name": f"tiny {name}",
        **{f"{name}.{key}": value for key, value in sizes.items()},
        **{f"tokenizer.{key}": value for key, value in tokenizer.items()},
    }


def tensors(model: TinyModel) -> list[Tensor]:
    rng = np.random.default_rng([model.seed, *model.architecture.encode()])
    hidden, heads, kv_heads = model.hidden, model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    made: list[Tensor] = []

    def matrix(name: str, outputs: int, inputs: int, gain: float = 1.0) -> None:
        values = rng.standard_normal((outputs, inputs)) * gain / np.sqrt(inputs)
        made.append(make_tensor(f"{name}.weight", model.matrix_type, values.astype(np.float32)))

    def vector(name: str, size: int, mean: float = 1.0, spread: float = 0.1) -> None:
        values = mean * (1 + spread * rng.standard_normal(size))
        made.append(make_tensor(name, TensorType.F32, values.astype(np.float32)))

    # Small embeddings (times Gemma's scale), so that layers have a say and a tied output does not echo its input.
    matrix("token_embd", model.vocab_size, hidden, 0.5 if model.architecture != "gemma3" else 0.5 / hidden**0.5)
    gain = model.sharpness if not model.tied else model.sharpness / (0.5 / (hidden**0.5 if _is_gemma(model) else 1))
    vector("output_norm.weight", hidden, gain)
    if not model.tied:
        matrix("output", model.vocab_size, hidden)
    for layer in range(model.num_layers + model.has_mtp):
        prefix = f"blk.{layer}."
        vector(f"{prefix}attn_norm.weight", hidden)
        matrix(f"{prefix}attn_q", heads, hidden, 2.0)
        matrix(f"{prefix}attn_k", kv_heads, hidden, 2.0)
        matrix(f"{prefix}attn_v", kv_heads, hidden)
        matrix(f"{prefix}attn_output", hidden, heads, 2.0)
        if model.architecture == "qwen2":
            for projection, size in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
                made.append(_bias(f"{prefix}attn_{projection}.bias", rng.standard_normal(size)))
        if model.architecture in ("qwen3", "gemma3"):
            vector(f"{prefix}attn_q_norm.weight", model.head_dim)
            vector(f"{prefix}attn_k_norm.weight", model.head_dim)
        if _is_gemma(model):
            vector(f"{prefix}post_attention_norm.weight", hidden)
            vector(f"{prefix}post_ffw_norm.weight", hidden)
        vector(f"{prefix}ffn_norm.weight", hidden)
        matrix(f"{prefix}ffn_gate", model.ffn, hidden)
        matrix(f"{prefix}ffn_up", model.ffn, hidden)
        matrix(f"{prefix}ffn_down", hidden, model.ffn, 2.0)
    if model.has_mtp:
        prefix = f"blk.{model.num_layers}.nextn."
        matrix(f"{prefix}eh_proj", hidden, 2 * hidden)
        for norm in ("enorm", "hnorm", "shared_head_norm"):
            vector(f"{prefix}{norm}.weight", hidden)
    return made


def filled(tensor: Tensor, value: float) -> Tensor:
    """A tensor of the same name, type and shape that holds `value` everywhere."""
    return make_tensor(tensor.name, tensor.type, np.full(tensor.shape, value, np.float32))


def _is_gemma(model: TinyModel) -> bool:
    return model.architecture == "gemma3"


def _bias(name: str, values: FloatArray) -> Tensor:
    return make_tensor(name, TensorType.F32, (0.1 * values).astype(np.float32))


def _byte_level(model: TinyModel) -> dict[str, Any]:
    """GPT-2's byte alphabet, a few merges and ChatML's special tokens."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    alphabet = [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(rest))]
    tokens = [*alphabet, *(merge.replace(" ", "") for merge in MERGES)]
    types = [NORMAL] * len(tokens)
    special = {text: len(tokens) + n for n, text in enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))}
    tokens += special
    types += [CONTROL] * len(special)
    _pad(tokens, types, model.vocab_size)
    return {
        "ggml.model": "gpt2",
        "ggml.pre": "smollm" if model.architecture == "llama" else "qwen2",
        "ggml.tokens": tokens,
        "ggml.token_type": np.array(types, np.int32),
        "ggml.merges": list(MERGES),
        "ggml.bos_token_id": special["<|endoftext|>"],
        "ggml.eos_token_id": special["<|im_end|>"],
        "ggml.padding_token_id": special["<|endoftext|>"],
        "ggml.add_bos_token": np.bool_(False),
        "chat_template": CHAT_TEMPLATE,
    }


def _sentencepiece(model: TinyModel) -> dict[str, Any]:
    """Bytes as fallback, letters and a few words with scores."""
    words = ["▁t", "he", "▁the", "in", "er", "an", "▁a", "and", "▁and", "ing"]
    pieces = ["▁", *"abcdefghijklmnopqrstuvwxyz", ".", "\n", *words]
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    types = [CONTROL] * 3 + [UNKNOWN] + [BYTE] * 256 + [NORMAL] * len(pieces)
    scores = [0.0] * 260 + [-10.0] * (len(pieces) - len(words)) + [-float(rank) for rank in range(1, len(words) + 1)]
    _pad(tokens, types, model.vocab_size)
    scores += [-1000.0] * (len(tokens) - len(scores))
    return {
        "ggml.model": "llama",
        "ggml.pre": "default",
        "ggml.tokens": tokens,
        "ggml.token_type": np.array(types, np.int32),
        "ggml.scores": np.array(scores, np.float32),
        "ggml.bos_token_id": 2,
        "ggml.eos_token_id": 1,
        "ggml.unknown_token_id": 3,
        "ggml.padding_token_id": 0,
        "ggml.add_bos_token": np.bool_(True),
        "ggml.add_space_prefix": np.bool_(False),
    }


def _pad(tokens: list[str], types: list[int], size: int) -> None:
    if len(tokens) > size:
        raise ValueError(f"vocab_size is {size}, but the tokenizer alone has {len(tokens)} tokens")
    types += [UNUSED] * (size - len(tokens))
    tokens += [f"[PAD{n}]" for n in range(len(tokens), size)]
