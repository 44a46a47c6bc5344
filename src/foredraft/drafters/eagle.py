"""EAGLE heads: one decoder layer that reads what the target thought (2401.15077, 2406.16858, 2503.01840)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from foredraft.core import FloatArray, IntArray
from foredraft.drafters import attention
from foredraft.drafters.checkpoint import Checkpoint
from foredraft.drafters.recurrent import Recurrent
from foredraft.kv.cache import PagedKV
from foredraft.models.decoder import Decoder
from foredraft.models.gguf_cursor import fail
from foredraft.models.weights import Weights
from foredraft.ops.base import Batch
from foredraft.ops.reference import rms_norm


class EagleHead(Recurrent):
    """One decoder layer."""

    def __init__(self, checkpoint: Checkpoint, weights: Weights, target: Decoder, layer: str, inputs: int) -> None:
        """layer: the prefix of its layer's tensors; inputs: the width of what its attention reads."""
        if checkpoint.size("num_hidden_layers", 1) != 1:
            fail(checkpoint.path, f"has {checkpoint.size('num_hidden_layers')} layers; heads of one layer are run")
        self._ops = target.ops
        self._eps = checkpoint.get("rms_norm_eps", float, 1e-6)
        self.vocab_size = target.vocab_size
        self.max_positions = checkpoint.size("max_position_embeddings", target.arch.context_length)
        self.hidden = hidden = checkpoint.size("hidden_size")
        activation = checkpoint.get("hidden_act", str, "silu")
        if activation != "silu":
            fail(checkpoint.path, f"uses the activation {activation!r:.40}; known is silu")
        q_norm, k_norm = (weights.optional_vector(f"{layer}self_attn.{name}_norm.weight") for name in "qk")
        self._spec = spec = attention.spec(checkpoint, self._eps, q_norm, k_norm)
        self.kv_shape = (1, spec.num_kv_heads, spec.head_dim)
        self._attention = [
            weights.matrix(f"{layer}self_attn.{name}_proj", size * spec.head_dim, inputs)
            for name, size in (("q", spec.num_heads), ("k", spec.num_kv_heads), ("v", spec.num_kv_heads))
        ]
        self._attention_output = weights.matrix(f"{layer}self_attn.o_proj", hidden, spec.num_heads * spec.head_dim)
        self._ffn_norm = weights.vector(f"{layer}post_attention_layernorm.weight", hidden)
        ffn = weights.tensor(f"{layer}mlp.gate_proj.weight", (-1, hidden)).shape[0]
        self._gate, self._up = (weights.matrix(f"{layer}mlp.{name}_proj", ffn, hidden) for name in ("gate", "up"))
        self._down = weights.matrix(f"{layer}mlp.down_proj", hidden, ffn)
        own_embedding = "embed_tokens.weight" in weights
        if not own_embedding and hidden != target.arch.hidden:
            fail(
                checkpoint.path,
                f"has hidden size {hidden}, the target {target.arch.hidden}: they can share no embedding",
            )
        self._embedding = (
            weights.tensor("embed_tokens.weight", (target.vocab_size, hidden)) if own_embedding else target.embedding
        )
        self._output_norm: FloatArray | None = None
        self._output: Any = target.output

    def forward(self, batch: Batch, hidden: FloatArray, kv: PagedKV) -> tuple[FloatArray, FloatArray]:
        x, inputs = self._enter(self._ops.embed(self._embedding, batch.tokens), hidden)
        q, k, v = self._ops.project(inputs, None, self._eps, self._attention)
        attended = self._ops.attend(q, k, v, self._spec, kv.layers[0], batch)
        self._ops.accumulate(x, attended, self._attention_output, None, self._eps)
        self._ops.feed_forward(x, self._ffn_norm, self._gate, self._up, self._down, "silu", None, self._eps)
        wanted = x[batch.wanted]
        if not len(wanted):
            return np.empty((0, 0), np.float32), wanted
        [logits] = self._ops.project(wanted, self._output_norm, self._eps, (self._output,))
        return logits, self._leave(wanted)

    @abstractmethod
    def _enter(self, embedded: FloatArray, hidden: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The residual stream, of its own memory, and what attention reads."""

    def _leave(self, hidden: FloatArray) -> FloatArray:
        return hidden


class Eagle(EagleHead):
    """EAGLE-1, and EAGLE-2, which draws trees from the same heads. Its features are what the target's output matrix
    reads, and so are its own hidden states."""

    kind = "eagle"

    def __init__(self, checkpoint: Checkpoint, target: Decoder) -> None:
        weights = checkpoint.weights(target.ops)
        hidden = target.arch.hidden
        if checkpoint.size("hidden_size") != hidden:
            fail(
                checkpoint.path,
                f"is for a target of hidden size {checkpoint.size('hidden_size')}, this one has {hidden}",
            )
        super().__init__(checkpoint, weights, target, "layers.0.", hidden)
        self.taps = (target.arch.num_layers,)
        self._target_norm, self._target_eps = target.output_norm, target.arch.norm_eps
        self._fc = weights.matrix("fc", hidden, 2 * hidden)
        if "lm_head.weight" in weights:
            self._output = weights.matrix("lm_head", target.vocab_size, hidden)
        weights.check_all_used()

    def fuse(self, features: FloatArray) -> FloatArray:
        return rms_norm(features, self._target_norm, self._target_eps)

    def _enter(self, embedded: FloatArray, hidden: FloatArray) -> tuple[FloatArray, FloatArray]:
        [x] = self._ops.project(np.concatenate([embedded, hidden], 1), None, self._eps, (self._fc,))
        return x, x


class Eagle3(EagleHead):
    """EAGLE-3: reads hidden states of several depths, fused, and was trained to go on from its own."""

    kind = "eagle3"

    def __init__(self, checkpoint: Checkpoint, target: Decoder) -> None:
        weights = checkpoint.weights(target.ops)
        layer = "midlayer." if "midlayer.hidden_norm.weight" in weights else "layers.0."
        hidden, target_hidden = checkpoint.size("hidden_size"), target.arch.hidden
        super().__init__(checkpoint, weights, target, layer, 2 * hidden)
        self.taps = _taps(checkpoint, target.arch.num_layers)
        fused = len(self.taps) * target_hidden
        width = weights.tensor("fc.weight", (hidden, -1)).shape[1]
        if width != fused:
            fail(
                checkpoint.path,
                f"fuses {width} values, but {len(self.taps)} hidden states of this target have {fused}; "
                "it is for a target of another hidden size or reads another number of layers",
            )
        self._fc = weights.matrix("fc", hidden, fused)
        self._fused_norm = weights.vector("input_norm.weight", fused) if "input_norm.weight" in weights else None
        self._tap_norms = [
            weights.vector(f"fc_norm.{tap}.weight", target_hidden)
            for tap in range(len(self.taps) if "fc_norm.0.weight" in weights else 0)
        ]
        self._input_norm = weights.vector(f"{layer}input_layernorm.weight", hidden)
        self._hidden_norm = weights.vector(f"{layer}hidden_norm.weight", hidden)
        self._norms_residual = checkpoint.get("norm_before_residual", bool, False)
        self._norms_output = checkpoint.get("norm_output", bool, False)
        self._output_norm = weights.vector("norm.weight", hidden)
        num_outputs = weights.tensor("lm_head.weight", (-1, hidden)).shape[0]
        self._output = weights.matrix("lm_head", num_outputs, hidden)
        self.target_ids = _target_ids(checkpoint, num_outputs, target.vocab_size)
        weights.check_all_used()

    def fuse(self, features: FloatArray) -> FloatArray:
        if self._tap_norms:
            by_tap = np.split(features, len(self.taps), 1)
            features = np.concatenate(
                [rms_norm(own, norm, self._eps) for own, norm in zip(by_tap, self._tap_norms, strict=True)], 1
            )
        return self._ops.project(features, self._fused_norm, self._eps, (self._fc,))[0]

    def _enter(self, embedded: FloatArray, hidden: FloatArray) -> tuple[FloatArray, FloatArray]:
        normed = rms_norm(hidden, self._hidden_norm, self._eps)
        inputs = np.concatenate([rms_norm(embedded, self._input_norm, self._eps), normed], 1)
        return (normed if self._norms_residual else hidden.copy()), inputs

    def _leave(self, hidden: FloatArray) -> FloatArray:
        assert self._output_norm is not None
        return rms_norm(hidden, self._output_norm, self._eps) if self._norms_output else hidden


def _taps(checkpoint: Checkpoint, num_layers: int) -> tuple[int, ...]:
    """After how many of the target's layers its hidden states are read.

    Most files say nothing: then it is where EAGLE-3 takes them. Of those that name layers, some count what has run
    (vLLM, speculators) and some the layers from 0, whose outputs they mean (SpecForge, ModelOpt); since nobody reads
    the first layer's, ids that begin with 1 are of the second kind, as SGLang takes them.
    """
    taps = checkpoint.get("taps", list, [])
    if not taps:
        ids = checkpoint.get("eagle_aux_hidden_state_layer_ids", list, []) or [2, num_layers // 2, num_layers - 3]
        taps = [id + 1 if type(id) is int else id for id in ids] if ids[0] == 1 else ids
    if not all(type(tap) is int and 0 <= tap <= num_layers for tap in taps) or sorted(set(taps)) != taps:
        fail(
            checkpoint.path,
            f"reads the target's hidden states after {taps!r:.60} layers; this target has {num_layers}, "
            "and they must ascend: it is for another target",
        )
    return tuple(taps)


def _target_ids(checkpoint: Checkpoint, num_outputs: int, vocab_size: int) -> IntArray | None:
    """The target's token for each of the draft vocabulary's: d2t holds by how much it is ahead."""
    arrays = dict(checkpoint.arrays)
    offsets, flags = arrays.pop("d2t", None), arrays.pop("t2d", None)
    if arrays:
        fail(checkpoint.path, f"has parts that are not supported: tensor {next(iter(arrays))}")
    if offsets is None:
        if num_outputs != vocab_size:
            fail(
                checkpoint.path,
                f"tells {num_outputs} tokens and has no d2t to say which; this target has {vocab_size}",
            )
        return None
    if offsets.shape != (num_outputs,) or offsets.dtype.kind != "i":
        fail(checkpoint.path, f"has d2t of shape {offsets.shape}; expected are {num_outputs} whole numbers")
    ids = np.arange(num_outputs, dtype=np.int64) + offsets
    if ids.min() < 0 or ids.max() >= vocab_size or len(np.unique(ids)) != num_outputs:
        fail(checkpoint.path, f"has a d2t that does not lead to {num_outputs} different ones of {vocab_size} tokens")
    if flags is not None and not np.array_equal(np.flatnonzero(flags), np.sort(ids)):
        fail(checkpoint.path, "has a t2d that marks other tokens than its d2t leads to; the file is damaged")
    return ids.astype(np.int32)


def create(checkpoint: Checkpoint, target: Decoder) -> EagleHead:
    return (Eagle if checkpoint.kind == "eagle" else Eagle3)(checkpoint, target)
