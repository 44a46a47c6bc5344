"""The MTP block that a model brings along to guess the token after the next (DeepSeek-V3 2412.19437, section 2.2).

It is one more decoder layer, behind eh_proj(cat(enorm(embedding of token i + 1), hnorm(hidden state of position i))),
with an output norm of its own. The hidden state is the target's after its output norm, and to guess further the block
goes on from its own after its output norm: so SGLang and vLLM run DeepSeek's, GLM's and Qwen's, which are accepted less
otherwise. Of positions only the differences matter, so that a block's may be counted from anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from foredraft.core import FloatArray
from foredraft.drafters import attention
from foredraft.drafters.checkpoint import Checkpoint
from foredraft.drafters.recurrent import Recurrent
from foredraft.kv.cache import PagedKV
from foredraft.models.decoder import Decoder, read_layer
from foredraft.models.gguf_cursor import fail
from foredraft.models.weights import Weights
from foredraft.ops.base import Batch, Layer, Tensor
from foredraft.ops.reference import rms_norm

# Tensors of what is not run, in Hugging Face's names and in GGUF's.
_UNKNOWN = (
    (re.compile(r"_a_proj|_b_proj|attn_(q|kv)_[ab]"), "latent attention"),
    (re.compile(r"experts?\.|mlp\.gate\.|_exps|_shexp|ffn_gate_inp"), "a mixture of experts"),
)


@dataclass(frozen=True)
class Parts:
    """What a block is made of, whatever the names of its tensors. max_positions: rows that it was trained for."""

    embedding: Tensor
    embedding_norm: FloatArray
    hidden_norm: FloatArray
    joint: Any
    layer: Layer
    output_norm: FloatArray
    output: Any
    max_positions: int


class MtpBlock(Recurrent):
    """One block, which is run again to guess further."""

    kind = "mtp"

    def __init__(self, parts: Parts, target: Decoder) -> None:
        self._parts, self._target, self._layer = parts, target, target.ops.layer(parts.layer)
        self.taps = (target.arch.num_layers,)
        self.vocab_size, self.max_positions = target.vocab_size, parts.max_positions
        self.kv_shape = (1, parts.layer.attention.num_kv_heads, parts.layer.attention.head_dim)

    def fuse(self, features: FloatArray) -> FloatArray:
        return rms_norm(features, self._target.output_norm, self._target.arch.norm_eps)

    def forward(self, batch: Batch, hidden: FloatArray, kv: PagedKV) -> tuple[FloatArray, FloatArray]:
        ops, parts, eps = self._target.ops, self._parts, self._parts.layer.eps
        embedded = rms_norm(ops.embed(parts.embedding, batch.tokens), parts.embedding_norm, eps)
        both = np.concatenate([embedded, rms_norm(hidden, parts.hidden_norm, eps)], 1)
        [x] = ops.project(both, None, eps, (parts.joint,))
        ops.forward(x, self._layer, kv.layers[0], batch)
        out = rms_norm(x[batch.wanted], parts.output_norm, eps)
        [logits] = ops.project(out, None, eps, (parts.output,))
        return logits, out

    def rehearse(self, batch: Batch, kv: PagedKV) -> object:
        return self.forward(batch, np.zeros((len(batch.tokens), self._target.arch.hidden), np.float32), kv)


def of_target(target: Decoder) -> MtpBlock | None:
    """The block in the target's own file, if there is one; its tensors are named as in llama.cpp.

    Raises:
        ModelError: a tensor is missing, misshapen or not understood.
    """
    weights, arch = target.mtp, target.arch
    if weights is None:
        return None
    _check_known(weights)
    own, hidden = f"blk.{arch.num_layers}.nextn.", arch.hidden
    norm = weights.optional_vector(f"{own}shared_head_norm.weight")
    parts = Parts(
        embedding=_embedding(weights, f"{own}embed_tokens", target),
        embedding_norm=weights.vector(f"{own}enorm.weight", hidden),
        hidden_norm=weights.vector(f"{own}hnorm.weight", hidden),
        joint=_joint(weights, f"{own}eh_proj", hidden),
        layer=read_layer(weights, arch, arch.num_layers),
        output_norm=target.output_norm if norm is None else norm,
        output=_output(weights, f"{own}shared_head_head", target),
        max_positions=arch.context_length,
    )
    weights.check_all_used()
    return MtpBlock(parts, target)


def create(checkpoint: Checkpoint, target: Decoder) -> MtpBlock:
    """The block in a drafter's file, or in the directory of the target's own checkpoint, in the names of DeepSeek or of
    Qwen3-Next.

    Raises:
        ModelError: it is for another target, is not dense, or a tensor is missing, misshapen or not understood.
    """
    everything = checkpoint.weights(target.ops)
    named = {match[1] for name in checkpoint.tensors if (match := re.match(r"(model\.layers\.\d+\.)eh_proj\.", name))}
    if len(named) > 1:
        fail(checkpoint.path, f"has {len(named)} MTP blocks; one is run")
    prefix = named.pop() if named else "mtp."
    weights = everything.apart(prefix)
    for model in ("model.", "lm_head."):  # the target's own
        everything.apart(model)
    everything.check_all_used()
    if weights is None:
        fail(checkpoint.path, "has no MTP block; expected are tensors such as mtp.fc.weight")
    _check_known(weights)
    parts = (_qwen if prefix == "mtp." else _deepseek)(checkpoint, weights, prefix, target)
    weights.check_all_used()
    return MtpBlock(parts, target)


def _deepseek(checkpoint: Checkpoint, weights: Weights, prefix: str, target: Decoder) -> Parts:
    hidden = target.arch.hidden
    return Parts(
        embedding=_embedding(weights, f"{prefix}embed_tokens", target),
        embedding_norm=weights.vector(f"{prefix}enorm.weight", hidden),
        hidden_norm=weights.vector(f"{prefix}hnorm.weight", hidden),
        joint=_joint(weights, f"{prefix}eh_proj", hidden),
        layer=_layer(checkpoint, weights, prefix, hidden, weights.vector),
        output_norm=weights.vector(f"{prefix}shared_head.norm.weight", hidden),
        output=_output(weights, f"{prefix}shared_head.head", target),
        max_positions=checkpoint.size("max_position_embeddings", target.arch.context_length),
    )


def _qwen(checkpoint: Checkpoint, weights: Weights, prefix: str, target: Decoder) -> Parts:
    hidden = target.arch.hidden

    def norm(name: str, size: int) -> FloatArray:
        return weights.vector(name, size) + 1  # these files hold by how much a weight differs from 1

    return Parts(
        embedding=target.embedding,
        embedding_norm=norm(f"{prefix}pre_fc_norm_embedding.weight", hidden),
        hidden_norm=norm(f"{prefix}pre_fc_norm_hidden.weight", hidden),
        joint=_joint(weights, f"{prefix}fc", hidden),
        layer=_layer(checkpoint, weights, f"{prefix}layers.0.", hidden, norm),
        output_norm=norm(f"{prefix}norm.weight", hidden),
        output=target.output,
        max_positions=checkpoint.size("max_position_embeddings", target.arch.context_length),
    )


def _layer(
    checkpoint: Checkpoint, weights: Weights, prefix: str, hidden: int, norm: Callable[[str, int], FloatArray]
) -> Layer:
    """A decoder layer in Hugging Face's names."""
    activation = checkpoint.get("hidden_act", str, "silu")
    if activation != "silu":
        fail(checkpoint.path, f"uses the activation {activation!r:.40}; known is silu")
    eps = checkpoint.get("rms_norm_eps", float, 1e-6)
    q_norm, k_norm = (
        norm(name, -1) if (name := f"{prefix}self_attn.{which}_norm.weight") in weights else None for which in "qk"
    )
    attention_spec = attention.spec(checkpoint, eps, q_norm, k_norm)
    heads, kv_heads = (n * attention_spec.head_dim for n in (attention_spec.num_heads, attention_spec.num_kv_heads))
    ffn = weights.tensor(f"{prefix}mlp.gate_proj.weight", (-1, hidden)).shape[0]
    return Layer(
        attention=attention_spec,
        attention_norm=norm(f"{prefix}input_layernorm.weight", hidden),
        query=weights.matrix(f"{prefix}self_attn.q_proj", heads, hidden),
        key=weights.matrix(f"{prefix}self_attn.k_proj", kv_heads, hidden),
        value=weights.matrix(f"{prefix}self_attn.v_proj", kv_heads, hidden),
        output=weights.matrix(f"{prefix}self_attn.o_proj", hidden, heads),
        attention_post_norm=None,
        ffn_norm=norm(f"{prefix}post_attention_layernorm.weight", hidden),
        gate=weights.matrix(f"{prefix}mlp.gate_proj", ffn, hidden),
        up=weights.matrix(f"{prefix}mlp.up_proj", ffn, hidden),
        down=weights.matrix(f"{prefix}mlp.down_proj", hidden, ffn),
        ffn_post_norm=None,
        activation=activation,
        eps=eps,
    )


def _joint(weights: Weights, name: str, hidden: int) -> Any:
    width = weights.tensor(f"{name}.weight", (-1, -1)).shape[1]
    if width != 2 * hidden:
        fail(
            weights.path,
            f"has an MTP block for hidden states of {width // 2} numbers, the target's have {hidden}; "
            "choose one that was trained for this target",
        )
    return weights.matrix(name, hidden, width)


def _embedding(weights: Weights, name: str, target: Decoder) -> Tensor:
    name = f"{name}.weight"
    return weights.tensor(name, (target.vocab_size, target.arch.hidden)) if name in weights else target.embedding


def _output(weights: Weights, name: str, target: Decoder) -> Any:
    has = f"{name}.weight" in weights
    return weights.matrix(name, target.vocab_size, target.arch.hidden) if has else target.output


def _check_known(weights: Weights) -> None:
    for pattern, what in _UNKNOWN:
        found = next((name for name in weights.names if pattern.search(name)), None)
        if found is not None:
            fail(weights.path, f"has an MTP block with {what} (tensor {found}); blocks that are dense are run")
