"""The decoder: every supported model, written once in terms of an op set.

Llama (2302.13971), Qwen2, Qwen3 and Gemma 3 are one pre-norm transformer; where they differ is in `Architecture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from foredraft.core import FloatArray, IntArray
from foredraft.kv.cache import PagedKV
from foredraft.models import architecture
from foredraft.models.architecture import Architecture
from foredraft.models.gguf import GGUFFile
from foredraft.models.weights import Weights
from foredraft.ops.base import AttentionSpec, Batch, Layer, Ops


class Decoder:
    """A model ready to run. Immutable after loading; all state of sequences lives in a `PagedKV`."""

    def __init__(self, file: GGUFFile, ops: Ops, kept: IntArray | None = None) -> None:
        """Load every weight of `file` into `ops`.

        kept: int32, rising; the tokens whose logits are computed, in this order. None: all.

        Raises:
            ModelError: unknown architecture, or a tensor that is missing, misshapen or not understood.
        """
        weights = Weights(file.path, file.tensors, ops)
        self.ops = ops
        self.arch = arch = architecture.read(file, weights.optional_vector("rope_freqs.weight"))
        # Of the block that guesses further tokens, where the file has one: no part of the model, so another's to read.
        self.mtp = weights.apart(f"blk.{arch.num_layers}.") if arch.has_mtp else None
        self.embedding = weights.tensor("token_embd.weight", (-1, arch.hidden))
        self.vocab_size = self.embedding.shape[0]
        self.layers = [read_layer(weights, arch, i) for i in range(arch.num_layers)]
        self._prepared_layers = [ops.layer(layer) for layer in self.layers]
        self.output_norm = weights.vector("output_norm.weight", arch.hidden)
        tied = "output.weight" not in file.tensors
        self._output_rows = partial(weights.matrix, "token_embd" if tied else "output", self.vocab_size, arch.hidden)
        self.kept = kept
        self.output = self._output_rows(kept)
        weights.check_all_used()

    def output_rows(self, tokens: IntArray) -> Any:
        """The output matrix of these tokens alone (int32, one or more), for `forward`."""
        return self._output_rows(tokens)

    def forward(self, batch: Batch, kv: PagedKV, more: Any = None) -> FloatArray:
        """One pass over the rows of `batch`; writes their keys and values to `kv`.

        more: what `output_rows` made of further tokens, whose logits come behind the others.

        Returns the logits of the wanted rows, float32 [wanted, vocabulary], or [wanted, len(kept) + further tokens].
        """
        return self._logits(self._layers(batch, kv, ())[0], batch, more)

    def forward_tapped(self, batch: Batch, kv: PagedKV, taps: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Like `forward`, and what learned drafters read: the hidden state of every row after so many layers.

        taps: numbers of layers, ascending, 0 (the embedding) to all of them (what the output norm gets).

        Returns logits and features, float32 [rows, len(taps) * hidden]: one tap's hidden states beside the other's.
        """
        x, features = self._layers(batch, kv, taps)
        return self._logits(x, batch), features

    def _layers(self, batch: Batch, kv: PagedKV, taps: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Hidden states after all layers, and the features."""
        ops, arch = self.ops, self.arch
        x = ops.embed(self.embedding, batch.tokens)
        if arch.embedding_scale != 1:
            x *= np.float32(arch.embedding_scale)
        features = np.empty((len(x), len(taps), arch.hidden), np.float32)
        for depth in range(arch.num_layers + 1):
            if depth in taps:
                features[:, taps.index(depth)] = x
            if depth < arch.num_layers:
                ops.forward(x, self._prepared_layers[depth], kv.layers[depth], batch)
        return x, features.reshape(len(x), -1)

    @property
    def num_logits(self) -> int:
        """Of a row: the vocabulary's size, or how many tokens are kept of it."""
        return self.vocab_size if self.kept is None else len(self.kept)

    def _logits(self, x: FloatArray, batch: Batch, more: Any = None) -> FloatArray:
        if not len(batch.wanted):
            return np.empty((0, self.num_logits), np.float32)
        wanted = x if len(batch.wanted) == len(x) else x[batch.wanted]
        matrices = (self.output,) if more is None else (self.output, more)
        found = self.ops.project(wanted, self.output_norm, self.arch.norm_eps, matrices)
        return found[0] if more is None else np.concatenate(found, axis=1)


def read_layer(weights: Weights, arch: Architecture, index: int) -> Layer:
    """The layer blk.`index` of a model of this kind, or of its MTP block."""
    prefix = f"blk.{index}."
    heads, kv_heads, hidden = arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim, arch.hidden
    ffn = weights.tensor(f"{prefix}ffn_gate.weight", (-1, hidden)).shape[0]

    def norm(name: str, size: int, has: bool = True) -> FloatArray | None:
        return weights.vector(f"{prefix}{name}.weight", size) if has else None

    return Layer(
        attention=AttentionSpec(
            num_heads=arch.num_heads,
            num_kv_heads=arch.num_kv_heads,
            head_dim=arch.head_dim,
            scale=arch.attention_scale,
            rope_frequencies=arch.rope_frequencies[index],
            is_interleaved=arch.is_interleaved,
            window=arch.windows[index],
            q_norm=norm("attn_q_norm", arch.head_dim, arch.has_head_norms),
            k_norm=norm("attn_k_norm", arch.head_dim, arch.has_head_norms),
            norm_eps=arch.norm_eps,
        ),
        attention_norm=weights.vector(f"{prefix}attn_norm.weight", hidden),
        query=weights.matrix(f"{prefix}attn_q", heads, hidden),
        key=weights.matrix(f"{prefix}attn_k", kv_heads, hidden),
        value=weights.matrix(f"{prefix}attn_v", kv_heads, hidden),
        output=weights.matrix(f"{prefix}attn_output", hidden, heads),
        attention_post_norm=norm("post_attention_norm", hidden, arch.has_post_norms),
        ffn_norm=weights.vector(f"{prefix}ffn_norm.weight", hidden),
        gate=weights.matrix(f"{prefix}ffn_gate", ffn, hidden),
        up=weights.matrix(f"{prefix}ffn_up", ffn, hidden),
        down=weights.matrix(f"{prefix}ffn_down", hidden, ffn),
        ffn_post_norm=norm("post_ffw_norm", hidden, arch.has_post_norms),
        activation=arch.activation,
        eps=arch.norm_eps,
    )
