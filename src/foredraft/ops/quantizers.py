"""Quantization of float weights, in numpy, for checkpoints that come as floats: to 8 bits, or to 4 like the target."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foredraft.core import FloatArray
from foredraft.ops import quants
from foredraft.ops.base import BLOCKS, Tensor, TensorType

FLOATS = (TensorType.F32, TensorType.F16, TensorType.BF16)
FOUR_BITS = (TensorType.Q4_0, TensorType.Q4_1, TensorType.Q4_K)
_SLICE = 2**22  # elements at a time, so that a large matrix needs little memory beside its own
_BLOCK = 32
# Steps of Q4_0 that are tried, relative to the one that just reaches the largest weight: a smaller one clips it, but
# rounds the others less.
_STEPS = np.array([1.0, 0.95, 0.9, 0.85, 0.8, 0.75], np.float32)


def quantized(tensor: Tensor, like: TensorType) -> Tensor:
    """A matrix of floats in blocks: of 4 bits (Q4_0) where `like`, the target's own type, has as many, else of 8
    (Q8_0). Any other tensor, and a matrix whose rows are not whole blocks, is returned as it is."""
    if tensor.type not in FLOATS or len(tensor.shape) != 2 or tensor.shape[1] % _BLOCK:
        return tensor
    kind, quantize = (TensorType.Q4_0, _q4_0) if like in FOUR_BITS else (TensorType.Q8_0, _q8_0)
    width = BLOCKS[tensor.type][1]
    parts = [
        quantize(quants.dequantize(tensor.type, tensor.data[start : start + _SLICE * width]).reshape(-1, _BLOCK))
        for start in range(0, tensor.data.size, _SLICE * width)
    ]
    return Tensor(tensor.name, kind, tensor.shape, np.concatenate(parts).view(np.uint8))


def _q8_0(x: FloatArray) -> NDArray[np.void]:
    """x: float32 [blocks, 32]."""
    blocks = np.zeros(len(x), quants.LAYOUTS[TensorType.Q8_0])
    blocks["d"] = np.abs(x).max(1) / 127
    blocks["qs"] = np.clip(np.rint(_divide(x, blocks["d"].astype(np.float32)[:, None])), -127, 127)
    return blocks


def _q4_0(x: FloatArray) -> NDArray[np.void]:
    """Of a few steps the one with the least squared error. The largest weight's sign is that of level -8, since the
    levels reach one further below zero."""
    blocks = np.zeros(len(x), quants.LAYOUTS[TensorType.Q4_0])
    extreme = np.take_along_axis(x, np.abs(x).argmax(1, keepdims=True), 1)
    least = np.full(len(x), np.inf, np.float32)
    for step in _STEPS:
        d = (extreme * step / -8).astype(np.float16)
        levels = np.clip(np.rint(_divide(x, d.astype(np.float32))), -8, 7)
        error = np.square(levels * d.astype(np.float32) - x).sum(1)
        better = error < least
        least[better] = error[better]
        codes = (levels[better] + 8).astype(np.uint8)
        blocks["d"][better] = d[better, 0]
        blocks["qs"][better] = codes[:, :16] | (codes[:, 16:] << 4)
    return blocks


def _divide(x: FloatArray, step: FloatArray) -> FloatArray:
    """x / step, and 0 where a block's step is 0."""
    return np.divide(x, step, out=np.zeros_like(x), where=step != 0)
