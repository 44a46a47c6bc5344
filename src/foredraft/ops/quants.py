"""Dequantization of every tensor type that is read, in numpy: the readable definition of the block formats.

The layouts are those of ggml (ggml-common.h, `block_*`), the arithmetic and its order those of `dequantize_row_*`
(ggml-quants.c), so values are equal to ggml's bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from foredraft.core import FloatArray, IntArray
from foredraft.ops.base import Tensor, TensorType

Bytes = NDArray[np.uint8]

_K_SCALES = [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12)]

# One block of each type as it lies in memory. Nibbles and high bits are unpacked by the functions below.
LAYOUTS: dict[TensorType, np.dtype[np.void]] = {
    TensorType.Q4_0: np.dtype([("d", "<f2"), ("qs", "u1", 16)]),
    TensorType.Q4_1: np.dtype([("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)]),
    TensorType.Q5_0: np.dtype([("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)]),
    TensorType.Q5_1: np.dtype([("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)]),
    TensorType.Q8_0: np.dtype([("d", "<f2"), ("qs", "i1", 32)]),
    TensorType.Q4_K: np.dtype([*_K_SCALES, ("qs", "u1", 128)]),
    TensorType.Q5_K: np.dtype([*_K_SCALES, ("qh", "u1", 32), ("qs", "u1", 128)]),
    TensorType.Q6_K: np.dtype([("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")]),
}


def dequantize(kind: TensorType, data: Bytes) -> FloatArray:
    """Values of whole blocks. data: uint8 [n * bytes of a block], contiguous. Returns a new float32 [n * block length].

    A block whose scale is not finite gives infinities or NaN, without a warning.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if kind is TensorType.F32:
            return data.view("<f4").astype(np.float32)
        if kind is TensorType.F16:
            return data.view("<f2").astype(np.float32)
        if kind is TensorType.BF16:
            return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
        return _DEQUANTIZE[kind](data.view(LAYOUTS[kind])).reshape(-1)


def rows(tensor: Tensor, indices: IntArray) -> FloatArray:
    """Chosen rows of a matrix [outputs, inputs], dequantized: float32 [len(indices), inputs]."""
    chosen = gather(tensor, indices)
    return dequantize(tensor.type, chosen.data).reshape(chosen.shape)


def gather(tensor: Tensor, indices: IntArray) -> Tensor:
    """A matrix of chosen rows of a matrix [outputs, inputs], the same bytes: blocks lie within rows.

    Only those rows are read. Indices must lie in [0, outputs).
    """
    outputs, inputs = tensor.shape
    chosen = tensor.data.reshape(outputs, tensor.data.size // outputs)[indices]
    return Tensor(tensor.name, tensor.type, (len(indices), inputs), chosen.reshape(-1))


def _scale(blocks: NDArray[np.void], field: str = "d") -> FloatArray:
    """A half-precision field of every block: float32 [blocks, 1]."""
    return blocks[field].astype(np.float32)[:, None]


def _unpack(packed: Bytes, run: int, width: int) -> Bytes:
    """Numbers of `width` bits: the lowest bits of each of `run` bytes, then their next bits, then the next `run` bytes.

    [blocks, bytes] -> [blocks, bytes * 8 / width].
    """
    num_blocks, num_bytes = packed.shape
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    mask = np.uint8(2**width - 1)
    numbers: Bytes = (packed.reshape(num_blocks, num_bytes // run, 1, run) >> shifts) & mask
    return numbers.reshape(num_blocks, num_bytes * 8 // width)


def _five_bits(blocks: NDArray[np.void]) -> Bytes:
    """Q5_0 and Q5_1: bit i of the 32-bit `qh` is the fifth bit of element i."""
    high = np.unpackbits(blocks["qh"], axis=1, bitorder="little")
    return _unpack(blocks["qs"], 16, 4) | (high << np.uint8(4))


def _scales_and_mins(packed: Bytes) -> tuple[FloatArray, FloatArray]:
    """Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minimums in 12 bytes; float32 [blocks, 8, 1] each.

    The first four of each are the low six bits of bytes 0-3 and 4-7. The last four have their low four bits in the
    nibbles of bytes 8-11 and their high two bits atop those of the first four (get_scale_min_k4 in ggml-quants.c).
    """
    a, b, c = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([a & 63, (c & 15) | ((a >> 6) << 4)], axis=1)
    mins = np.concatenate([b & 63, (c >> 4) | ((b >> 6) << 4)], axis=1)
    return scales.astype(np.float32)[..., None], mins.astype(np.float32)[..., None]


def _scale_and_subtract(blocks: NDArray[np.void], q: Bytes) -> FloatArray:
    """Q4_K and Q5_K: eight sub-blocks of 32, each with its own scale and minimum."""
    scales, mins = _scales_and_mins(blocks["scales"])
    scales *= _scale(blocks)[..., None]
    mins *= _scale(blocks, "dmin")[..., None]
    return scales * q.reshape(len(q), 8, 32).astype(np.float32) - mins


def _q4_0(blocks: NDArray[np.void]) -> FloatArray:
    return _scale(blocks) * (_unpack(blocks["qs"], 16, 4).astype(np.float32) - 8)


def _q4_1(blocks: NDArray[np.void]) -> FloatArray:
    return _scale(blocks) * _unpack(blocks["qs"], 16, 4).astype(np.float32) + _scale(blocks, "m")


def _q5_0(blocks: NDArray[np.void]) -> FloatArray:
    return _scale(blocks) * (_five_bits(blocks).astype(np.float32) - 16)


def _q5_1(blocks: NDArray[np.void]) -> FloatArray:
    return _scale(blocks) * _five_bits(blocks).astype(np.float32) + _scale(blocks, "m")


def _q8_0(blocks: NDArray[np.void]) -> FloatArray:
    return _scale(blocks) * blocks["qs"].astype(np.float32)


def _q4_k(blocks: NDArray[np.void]) -> FloatArray:
    return _scale_and_subtract(blocks, _unpack(blocks["qs"], 32, 4))


def _q5_k(blocks: NDArray[np.void]) -> FloatArray:
    return _scale_and_subtract(blocks, _unpack(blocks["qs"], 32, 4) | (_unpack(blocks["qh"], 32, 1) << np.uint8(4)))


def _q6_k(blocks: NDArray[np.void]) -> FloatArray:
    """Sixteen sub-blocks of 16, each with a signed 8-bit scale; four low and two high bits per element, minus 32."""
    q = _unpack(blocks["ql"], 64, 4) | (_unpack(blocks["qh"], 32, 2) << np.uint8(4))
    scales = _scale(blocks) * blocks["scales"].astype(np.float32)
    return scales[..., None] * (q.reshape(len(q), 16, 16).astype(np.float32) - 32)


_DEQUANTIZE: dict[TensorType, Callable[[NDArray[np.void]], FloatArray]] = {
    TensorType.Q4_0: _q4_0,
    TensorType.Q4_1: _q4_1,
    TensorType.Q5_0: _q5_0,
    TensorType.Q5_1: _q5_1,
    TensorType.Q8_0: _q8_0,
    TensorType.Q4_K: _q4_k,
    TensorType.Q5_K: _q5_k,
    TensorType.Q6_K: _q6_k,
}
