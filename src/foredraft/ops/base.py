"""The op-set seam: what a decoder is written in.

A model is one pure function over these few operations (models/decoder.py). `reference.py` is the readable
specification in numpy, float32, with dequantized weights; `native.py` calls the C++ kernels. Activations are
C-contiguous float32 arrays [rows, width] in both.

Row invariance is part of the contract of `native`: the numbers of a row depend on its own token path only, never on
the other rows of the pass, their number or order, on threads, or on where pages lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foredraft.core import FloatArray, IntArray


class TensorType(IntEnum):
    """GGUF tensor types that foredraft reads; the numbers are the file format's own (ggml.h, enum ggml_type)."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    BF16 = 30


# type: (elements in a block, bytes of a block). Blocks lie along the last axis (a matrix's inputs).
BLOCKS: dict[TensorType, tuple[int, int]] = {
    TensorType.F32: (1, 4),
    TensorType.F16: (1, 2),
    TensorType.Q4_0: (32, 18),
    TensorType.Q4_1: (32, 20),
    TensorType.Q5_0: (32, 22),
    TensorType.Q5_1: (32, 24),
    TensorType.Q8_0: (32, 34),
    TensorType.Q4_K: (256, 144),
    TensorType.Q5_K: (256, 176),
    TensorType.Q6_K: (256, 210),
    TensorType.BF16: (1, 2),
}


@dataclass(frozen=True)
class Tensor:
    """A tensor as it lies in a file. `shape` is in numpy order: a matrix is (outputs, inputs), row after row.

    `data` is the raw bytes, uint8 [nbytes]. is_mapped: they are a view of a file's read-only memory map, whose memory
    may be given back to the system at any time and is read again when it is used again.
    """

    name: str
    type: TensorType
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    is_mapped: bool = False


@dataclass(frozen=True)
class AttentionSpec:
    """What one layer's attention needs to know besides its inputs.

    rope_frequencies: float32 [head_dim / 2], the angle per position of each rotated pair. is_interleaved: pairs are
    (2i, 2i + 1) as in Llama's files, else (i, i + head_dim / 2). window: a row sees only the last `window` positions,
    its own included; 0 means all. q_norm, k_norm: RMS norm weights [head_dim] applied per head before rotation.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    rope_frequencies: FloatArray
    is_interleaved: bool
    window: int = 0
    q_norm: FloatArray | None = None
    k_norm: FloatArray | None = None
    norm_eps: float = 1e-6


@dataclass(frozen=True)
class Layer:
    """Weights of one layer of a decoder. Matrices are what the op set's `matrix` made; norms are float32 [hidden].

    The post norms, where a model has them, normalize what attention and feed-forward network add to the hidden state.
    activation, eps: see `Ops.feed_forward`.
    """

    attention: AttentionSpec
    attention_norm: FloatArray
    query: Any
    key: Any
    value: Any
    output: Any
    attention_post_norm: FloatArray | None
    ffn_norm: FloatArray
    gate: Any
    up: Any
    down: Any
    ffn_post_norm: FloatArray | None
    activation: str
    eps: float


@dataclass(frozen=True)
class Batch:
    """The rows of one pass, for any mix of sequences, prefill, decode and drafts (chains or trees).

    Each sequence has its own slots, counted from 0, laid on pages of a paged KV cache: slot s of a sequence lies on
    page `page_tables[sequence, s // page_size]` at offset `s % page_size`. A row writes its keys and values into its
    `slots` entry, then attends, in this order, to the sequence's slots [0, prefix) and to its `ancestors`, of which its
    own slot is the last. For a chain the prefix already reaches to the parent and `ancestors` is the row itself;
    for a tree the prefix ends at the committed rows and `ancestors` is the path below them. That order is position
    order: the i-th attended slot holds position i. Every row's ancestors are in the KV cache before the pass or are
    rows of this pass (in any order).

    tokens, positions, sequences, slots, prefixes: int32 [rows]. page_tables: int32 [sequences, max_pages].
    ancestors: int32 [total]; row r's are ancestors[ancestor_offsets[r] : ancestor_offsets[r + 1]].
    wanted: int32, the rows whose logits are wanted, ascending.
    """

    tokens: IntArray
    positions: IntArray
    sequences: IntArray
    slots: IntArray
    prefixes: IntArray
    ancestors: IntArray
    ancestor_offsets: IntArray
    page_tables: IntArray
    wanted: IntArray


@dataclass(frozen=True)
class LayerKV:
    """One layer's keys and values, float16, mutated by `attend`.

    Keys are stored transposed, [pages, kv heads, head_dim, page_size], so that scores of a page's keys are computed
    in vector lanes without a horizontal sum; values are [pages, kv heads, page_size, head_dim].
    """

    keys: NDArray[np.float16]
    values: NDArray[np.float16]


class Ops(ABC):
    """An op set. Matrices and layers are opaque to the decoder: made by `matrix` and `layer`, passed back to the other
    operations."""

    name: str

    @abstractmethod
    def matrix(self, tensor: Tensor, bias: FloatArray | None = None) -> Any:
        """Prepare a weight matrix [outputs, inputs] (and its bias [outputs]) for multiplication.

        Raises ModelError naming the tensor if its shape or type cannot be taken.
        """

    @abstractmethod
    def embed(self, table: Tensor, tokens: IntArray) -> FloatArray:
        """Rows of an embedding table [vocabulary, hidden], dequantized: [rows, hidden]."""

    @abstractmethod
    def project(self, x: FloatArray, norm: FloatArray | None, eps: float, weights: Sequence[Any]) -> list[FloatArray]:
        """Multiply x [rows, inputs], RMS-normalized by `norm` [inputs] if given, with matrices that share this input.

        Returns one [rows, outputs] per matrix, biases added. x is not changed.
        """

    @abstractmethod
    def attend(
        self, q: FloatArray, k: FloatArray, v: FloatArray, spec: AttentionSpec, cache: LayerKV, batch: Batch
    ) -> FloatArray:
        """Normalize (if the spec says so) and rotate q [rows, heads * dim] and k [rows, kv heads * dim], write k and v
        to the cache as float16, then softmax attention over what each row may see: [rows, heads * dim].

        q, k and v may be overwritten.
        """

    @abstractmethod
    def accumulate(self, x: FloatArray, y: FloatArray, weight: Any, norm: FloatArray | None, eps: float) -> None:
        """x += W y, or x += RMSNorm(W y) * norm where a norm after the projection is given. Mutates x."""

    @abstractmethod
    def feed_forward(
        self,
        x: FloatArray,
        norm: FloatArray,
        gate: Any,
        up: Any,
        down: Any,
        activation: str,
        post_norm: FloatArray | None,
        eps: float,
    ) -> None:
        """x += [post_norm of] down(act(gate h) * (up h)), h = RMSNorm(x) * norm; activation "silu" or "gelu" (the tanh
        approximation). Mutates x."""

    def layer(self, weights: Layer) -> Any:
        """Prepare a layer for `forward`."""
        return weights

    def forward(self, x: FloatArray, layer: Any, cache: LayerKV, batch: Batch) -> None:
        """Pass x [rows, hidden] through a layer that `layer` prepared. Mutates x, and the cache as `attend` does.

        This is the definition; an op set may do it in one go, with the same numbers.
        """
        q, k, v = self.project(x, layer.attention_norm, layer.eps, (layer.query, layer.key, layer.value))
        attended = self.attend(q, k, v, layer.attention, cache, batch)
        self.accumulate(x, attended, layer.output, layer.attention_post_norm, layer.eps)
        self.feed_forward(
            x, layer.ffn_norm, layer.gate, layer.up, layer.down, layer.activation, layer.ffn_post_norm, layer.eps
        )
