"""Quantizers for tests: simple and correct (each value to the nearest level of its block), not tuned for quality."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foredraft.core import FloatArray
from foredraft.ops.base import BLOCKS, Tensor, TensorType
from foredraft.ops.quants import LAYOUTS, Bytes


def make_tensor(name: str, kind: TensorType, values: FloatArray) -> Tensor:
    """A tensor of type `kind` that holds `values` as nearly as it can; rows must be whole blocks."""
    return Tensor(name, kind, values.shape, np.frombuffer(quantize(kind, values), np.uint8))


def quantize(kind: TensorType, values: FloatArray) -> bytes:
    """Blocks of `kind` for float32 values, in order; their number must be a multiple of the block length."""
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    if kind is TensorType.F32:
        return flat.tobytes()
    if kind is TensorType.F16:
        return flat.astype(np.float16).tobytes()
    if kind is TensorType.BF16:
        bits = flat.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()
    x = flat.reshape(-1, BLOCKS[kind][0])
    blocks = np.zeros(len(x), LAYOUTS[kind])
    if kind is TensorType.Q8_0:
        _q8_0(x, blocks)
    elif kind in (TensorType.Q4_0, TensorType.Q5_0):
        _symmetric(x, blocks, 4 if kind is TensorType.Q4_0 else 5)
    elif kind in (TensorType.Q4_1, TensorType.Q5_1):
        _affine(x, blocks, 4 if kind is TensorType.Q4_1 else 5)
    elif kind is TensorType.Q6_K:
        _q6_k(x, blocks)
    else:
        _k_affine(x, blocks, 4 if kind is TensorType.Q4_K else 5)
    return blocks.tobytes()


def _divide(x: FloatArray, step: FloatArray) -> FloatArray:
    """x / step, and 0 where a block's step is 0."""
    return np.divide(x, step, out=np.zeros_like(x), where=step != 0)


def _levels(x: FloatArray, low: int, high: int) -> NDArray[np.int64]:
    return np.clip(np.floor(x + 0.5), low, high).astype(np.int64)


def _pack(numbers: NDArray[np.int64], run: int, width: int) -> Bytes:
    """The inverse of quants._unpack."""
    per_byte = 8 // width
    shifts = np.arange(0, 8, width)[:, None]
    return (
        (numbers.reshape(len(numbers), -1, per_byte, run) << shifts).sum(2).reshape(len(numbers), -1).astype(np.uint8)
    )


def _set_32(blocks: NDArray[np.void], q: NDArray[np.int64], bits: int) -> None:
    blocks["qs"] = _pack(q & 15, 16, 4)
    if bits == 5:
        blocks["qh"] = np.packbits((q >> 4).astype(np.uint8), axis=1, bitorder="little")


def _q8_0(x: FloatArray, blocks: NDArray[np.void]) -> None:
    step = np.abs(x).max(1, keepdims=True) / 127
    blocks["d"] = step[:, 0]
    ratio = _divide(x, step)
    blocks["qs"] = np.sign(ratio) * np.floor(np.abs(ratio) + 0.5)


def _symmetric(x: FloatArray, blocks: NDArray[np.void], bits: int) -> None:
    """The value of largest magnitude becomes the lowest level, as the levels reach one further below zero."""
    half = 2 ** (bits - 1)
    extreme = np.take_along_axis(x, np.abs(x).argmax(1, keepdims=True), 1)
    step = extreme / -half
    blocks["d"] = step[:, 0]
    _set_32(blocks, _levels(_divide(x, step) + half, 0, 2 * half - 1), bits)


def _affine(x: FloatArray, blocks: NDArray[np.void], bits: int) -> None:
    low = x.min(1, keepdims=True)
    step = (x.max(1, keepdims=True) - low) / (2**bits - 1)
    blocks["d"], blocks["m"] = step[:, 0], low[:, 0]
    _set_32(blocks, _levels(_divide(x - low, step), 0, 2**bits - 1), bits)


def _k_affine(x: FloatArray, blocks: NDArray[np.void], bits: int) -> None:
    """Q4_K, Q5_K: eight sub-blocks; steps and minimums are themselves rounded up to 6-bit multiples of two scales."""
    x = x.reshape(-1, 8, 32)
    low = np.maximum(-x.min(2), 0)
    step = (x.max(2) + low) / (2**bits - 1)
    for field, wanted in (("d", step), ("dmin", low)):
        blocks[field] = wanted.max(1) / 63
    d, dmin = (blocks[field].astype(np.float32)[:, None] for field in ("d", "dmin"))
    scales, mins = _levels(_divide(step, d + 0 * step), 0, 63), _levels(_divide(low, dmin + 0 * low), 0, 63)
    real_step, real_low = (d * scales).astype(np.float32)[..., None], (dmin * mins).astype(np.float32)[..., None]
    q = _levels(_divide(x + real_low, real_step + 0 * x), 0, 2**bits - 1).reshape(-1, 256)
    blocks["qs"] = _pack(q & 15, 32, 4)
    if bits == 5:
        blocks["qh"] = _pack(q >> 4, 32, 1)
    high = np.concatenate([scales[:, 4:] >> 4, mins[:, 4:] >> 4], 1) << 6
    first = np.concatenate([scales[:, :4], mins[:, :4]], 1) | high
    blocks["scales"] = np.concatenate([first, (scales[:, 4:] & 15) | ((mins[:, 4:] & 15) << 4)], 1)


def _q6_k(x: FloatArray, blocks: NDArray[np.void]) -> None:
    x = x.reshape(-1, 16, 16)
    step = np.abs(x).max(2) / 31
    blocks["d"] = step.max(1) / 127
    d = blocks["d"].astype(np.float32)[:, None]
    scales = _levels(_divide(step, d + 0 * step), -128, 127)
    real_step = (d * scales).astype(np.float32)[..., None]
    q = (_levels(_divide(x, real_step + 0 * x), -32, 31) + 32).reshape(-1, 256)
    blocks["scales"] = scales
    blocks["ql"], blocks["qh"] = _pack(q & 15, 64, 4), _pack(q >> 4, 32, 2)
