"""The specification of every operation: numpy, float32, dequantized weights, one row at a time where that reads best.

It is slow and meant to be read. BLAS products are not row-invariant, so it is compared with `native` by tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foredraft.core import FloatArray, IntArray
from foredraft.errors import ModelError
from foredraft.ops import quants
from foredraft.ops.base import AttentionSpec, Batch, LayerKV, Ops, Tensor


@dataclass(frozen=True)
class DenseMatrix:
    """Weights [outputs, inputs] and an optional bias [outputs], float32."""

    weights: FloatArray
    bias: FloatArray | None

    @property
    def num_bytes(self) -> int:
        return self.weights.nbytes


class ReferenceOps(Ops):
    """See `Ops`; nothing here is kept between calls."""

    name = "reference"

    def matrix(self, tensor: Tensor, bias: FloatArray | None = None) -> DenseMatrix:
        if len(tensor.shape) != 2:
            raise ModelError(f"tensor {tensor.name} has shape {tensor.shape}; a weight matrix has two dimensions")
        return DenseMatrix(quants.dequantize(tensor.type, tensor.data).reshape(tensor.shape), bias)

    def embed(self, table: Tensor, tokens: IntArray) -> FloatArray:
        return quants.rows(table, tokens)

    def project(
        self, x: FloatArray, norm: FloatArray | None, eps: float, weights: Sequence[DenseMatrix]
    ) -> list[FloatArray]:
        h = x if norm is None else rms_norm(x, norm, eps)
        return [_multiply(h, weight) for weight in weights]

    def attend(
        self, q: FloatArray, k: FloatArray, v: FloatArray, spec: AttentionSpec, cache: LayerKV, batch: Batch
    ) -> FloatArray:
        rows, group = len(q), spec.num_heads // spec.num_kv_heads
        queries = _prepare(q, spec.q_norm, spec.num_heads, spec, batch.positions)
        keys = _prepare(k, spec.k_norm, spec.num_kv_heads, spec, batch.positions)
        values = v.reshape(rows, spec.num_kv_heads, spec.head_dim)
        page_size = cache.keys.shape[3]
        pages = batch.page_tables[batch.sequences, batch.slots // page_size]
        cache.keys[pages, :, :, batch.slots % page_size] = keys.astype(np.float16)
        cache.values[pages, :, batch.slots % page_size] = values.astype(np.float16)
        out = np.empty_like(queries)
        for row in range(rows):
            slots = _visible_slots(batch, row, spec.window)
            pages, offsets = batch.page_tables[batch.sequences[row], slots // page_size], slots % page_size
            row_keys = cache.keys[pages, :, :, offsets].astype(np.float32)  # [slots, kv heads, dim]
            row_values = cache.values[pages, :, offsets].astype(np.float32)
            for head in range(spec.num_heads):
                scores = row_keys[:, head // group] @ queries[row, head] * np.float32(spec.scale)
                weights = np.exp(scores - scores.max())
                out[row, head] = weights @ row_values[:, head // group] / weights.sum()
        return out.reshape(rows, -1)

    def accumulate(
        self, x: FloatArray, y: FloatArray, weight: DenseMatrix, norm: FloatArray | None, eps: float
    ) -> None:
        product = _multiply(y, weight)
        x += product if norm is None else rms_norm(product, norm, eps)

    def feed_forward(
        self,
        x: FloatArray,
        norm: FloatArray,
        gate: DenseMatrix,
        up: DenseMatrix,
        down: DenseMatrix,
        activation: str,
        post_norm: FloatArray | None,
        eps: float,
    ) -> None:
        h = rms_norm(x, norm, eps)
        self.accumulate(x, ACTIVATIONS[activation](_multiply(h, gate)) * _multiply(h, up), down, post_norm, eps)


def rms_norm(x: FloatArray, weight: FloatArray, eps: float) -> FloatArray:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang & Sennrich 2019)."""
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight, np.float32)


def rotate(x: FloatArray, positions: IntArray, spec: AttentionSpec) -> FloatArray:
    """Rotary embedding (Su et al. 2021) of x [rows, heads, dim]."""
    angles = positions[:, None, None].astype(np.float32) * spec.rope_frequencies
    cos, sin = np.cos(angles), np.sin(angles)
    half = spec.head_dim // 2
    first, second = (x[..., 0::2], x[..., 1::2]) if spec.is_interleaved else (x[..., :half], x[..., half:])
    out = np.empty_like(x)
    into = (out[..., 0::2], out[..., 1::2]) if spec.is_interleaved else (out[..., :half], out[..., half:])
    into[0][:], into[1][:] = first * cos - second * sin, first * sin + second * cos
    return out


def silu(x: FloatArray) -> FloatArray:
    return np.asarray(x / (1 + np.exp(-np.clip(x, -80, None))), np.float32)


def gelu(x: FloatArray) -> FloatArray:
    """The tanh approximation (Hendrycks & Gimpel 2016)."""
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), np.float32)


ACTIVATIONS = {"silu": silu, "gelu": gelu}


def _multiply(x: FloatArray, matrix: DenseMatrix) -> FloatArray:
    product = x @ matrix.weights.T
    return product if matrix.bias is None else product + matrix.bias


def _prepare(
    x: FloatArray, norm: FloatArray | None, heads: int, spec: AttentionSpec, positions: IntArray
) -> FloatArray:
    per_head = x.reshape(len(x), heads, spec.head_dim)
    if norm is not None:
        per_head = rms_norm(per_head, norm, spec.norm_eps)
    return rotate(per_head, positions, spec)


def _visible_slots(batch: Batch, row: int, window: int) -> IntArray:
    start, end = batch.ancestor_offsets[row : row + 2]
    slots = np.concatenate([np.arange(batch.prefixes[row], dtype=np.int32), batch.ancestors[start:end]])
    return slots[-window:] if window else slots
