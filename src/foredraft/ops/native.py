"""The op set of the C++ kernels (csrc/): quantized weights times int8 activations, row invariant, GIL released.

Thin on purpose: it allocates outputs, remembers what was already checked, and maps errors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from foredraft import _native
from foredraft.core import FloatArray, IntArray
from foredraft.errors import ConfigError, ModelError
from foredraft.ops.base import AttentionSpec, Batch, Layer, LayerKV, Ops, Tensor
from foredraft.ops.cores import available_cores


class NativeOps(Ops):
    """Runs on `threads` threads (default: the cores that this process may use). The thread pool and the instruction set
    are the process's: the last NativeOps made decides. FOREDRAFT_ISA names an instruction set to use.

    Raises:
        ConfigError: threads is out of range, or FOREDRAFT_ISA is not available here.
    """

    name = "native"

    def __init__(self, threads: int | None = None) -> None:
        threads = available_cores() if threads is None else threads
        if not 1 <= threads <= 1024:
            raise ConfigError(f"threads is {threads}; allowed is 1 to 1024")
        isa = os.environ.get("FOREDRAFT_ISA") or _native.available_isas()[0]
        try:
            _native.set_isa(isa)
        except ValueError as exc:
            raise ConfigError(f"FOREDRAFT_ISA: {exc}") from exc
        _native.set_threads(threads)
        self._specs: dict[int, tuple[AttentionSpec, _native.Attention]] = {}
        self._batch: tuple[Batch, _native.Batch] | None = None

    def matrix(self, tensor: Tensor, bias: FloatArray | None = None) -> _native.Matrix:
        if len(tensor.shape) != 2:
            raise ModelError(f"tensor {tensor.name} has shape {list(tensor.shape)}; a matrix has two axes")
        try:
            return _native.Matrix(int(tensor.type), *tensor.shape, tensor.data, bias, tensor.is_mapped)
        except ValueError as exc:
            raise ModelError(f"tensor {tensor.name} cannot be used as a matrix: {exc}") from exc

    def embed(self, table: Tensor, tokens: IntArray) -> FloatArray:
        out = np.empty((len(tokens), table.shape[1]), np.float32)
        _native.embed(int(table.type), table.data, tokens, out)
        return out

    def project(
        self, x: FloatArray, norm: FloatArray | None, eps: float, weights: Sequence[_native.Matrix]
    ) -> list[FloatArray]:
        outs = [np.empty((len(x), weight.outputs), np.float32) for weight in weights]
        _native.project(x, norm, eps, weights, outs)
        return outs

    def attend(
        self, q: FloatArray, k: FloatArray, v: FloatArray, spec: AttentionSpec, cache: LayerKV, batch: Batch
    ) -> FloatArray:
        out = np.empty_like(q)
        _native.attend(q, k, v, self._attention(spec), cache.keys, cache.values, self._rows(batch), out)
        return out

    def accumulate(
        self, x: FloatArray, y: FloatArray, weight: _native.Matrix, norm: FloatArray | None, eps: float
    ) -> None:
        _native.accumulate(x, y, weight, norm, eps)

    def feed_forward(
        self,
        x: FloatArray,
        norm: FloatArray,
        gate: _native.Matrix,
        up: _native.Matrix,
        down: _native.Matrix,
        activation: str,
        post_norm: FloatArray | None,
        eps: float,
    ) -> None:
        _native.feed_forward(x, norm, gate, up, down, activation, post_norm, eps)

    def layer(self, weights: Layer) -> _native.Layer:
        return _native.Layer(
            self._attention(weights.attention),
            weights.attention_norm,
            weights.query,
            weights.key,
            weights.value,
            weights.output,
            weights.attention_post_norm,
            weights.ffn_norm,
            weights.gate,
            weights.up,
            weights.down,
            weights.ffn_post_norm,
            weights.activation,
            weights.eps,
        )

    def forward(self, x: FloatArray, layer: _native.Layer, cache: LayerKV, batch: Batch) -> None:
        _native.forward(x, layer, cache.keys, cache.values, self._rows(batch))

    def _attention(self, spec: AttentionSpec) -> _native.Attention:
        known = self._specs.get(id(spec))
        if known is None:
            try:
                native = _native.Attention(
                    spec.num_heads,
                    spec.num_kv_heads,
                    spec.head_dim,
                    spec.scale,
                    spec.rope_frequencies,
                    spec.is_interleaved,
                    spec.window,
                    spec.q_norm,
                    spec.k_norm,
                    spec.norm_eps,
                )
            except ValueError as exc:
                raise ModelError(f"this model's attention cannot be run: {exc}") from exc
            known = self._specs[id(spec)] = (spec, native)  # keeping the spec keeps its id from being used again
        return known[1]

    def _rows(self, batch: Batch) -> _native.Batch:
        """Every layer of a pass brings the same batch: convert and check it once."""
        known = self._batch  # once: another thread may bring another batch meanwhile
        if known is None or known[0] is not batch:
            native = _native.Batch(
                batch.positions,
                batch.sequences,
                batch.slots,
                batch.prefixes,
                batch.ancestors,
                batch.ancestor_offsets,
                batch.page_tables,
            )
            known = self._batch = (batch, native)
        return known[1]
