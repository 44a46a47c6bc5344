"""Writer of GGUF files, version 3: metadata and tensors as they are given."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from foredraft.models.gguf import DEFAULT_ALIGNMENT, MAGIC
from foredraft.ops.base import Tensor

_ARRAY, _STRING = 9, 8
_NUMBERS = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "bool": 7, "u8": 10, "i8": 11, "f8": 12}
_TYPES = {np.dtype(name): number for name, number in _NUMBERS.items()}


def gguf_bytes(metadata: Mapping[str, Any], tensors: Iterable[Tensor]) -> bytes:
    """A whole file.

    metadata: str, bool, int (written as uint32, or int32 below 0), float (float64), arrays of numbers, and lists of
    one of these kinds.
    """
    tensors = list(tensors)
    header = MAGIC + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        kind, payload = _value(value)
        header += _string(key) + struct.pack("<I", kind) + payload
    body = bytearray()
    for tensor in tensors:
        sizes = tensor.shape[::-1]
        header += _string(tensor.name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        header += struct.pack("<IQ", tensor.type, len(body))
        body += _padded(tensor.data.tobytes())
    return _padded(header) + bytes(body)


def _value(value: Any) -> tuple[int, bytes]:
    """Type and payload."""
    if isinstance(value, str):
        return _STRING, _string(value)
    if isinstance(value, list):
        kinds, payloads = zip(*map(_value, value), strict=True) if value else ((_STRING,), ())
        return _ARRAY, struct.pack("<IQ", kinds[0], len(value)) + b"".join(payloads)
    if isinstance(value, np.ndarray):
        return _ARRAY, struct.pack("<IQ", _TYPES[value.dtype], value.size) + value.tobytes()
    if type(value) is int:
        value = np.uint32(value) if value >= 0 else np.int32(value)
    scalar = np.asarray(value)
    return _TYPES[scalar.dtype], scalar.tobytes()


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % DEFAULT_ALIGNMENT)
