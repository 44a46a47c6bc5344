"""A small GGUF writer, for tests that need a file of their own (a tiny model, or a broken one)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foredraft.ops.base import Tensor

ARRAY, STRING = 9, 8
_NUMBERS = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "bool": 7, "u8": 10, "i8": 11, "f8": 12}
TYPE_OF = {np.dtype(name): number for name, number in _NUMBERS.items()}


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(given: Any) -> tuple[int, bytes]:
    """Value type and payload. Python ints become uint32 (int32 if negative), floats float32; numpy scalars and arrays
    keep their type; a list is an array of strings, or of arrays."""
    if isinstance(given, (str, bytes)):
        return STRING, string(given)
    if isinstance(given, list):
        kinds, payloads = zip(*map(value, given), strict=True) if given else ((STRING,), ())
        return ARRAY, struct.pack("<IQ", kinds[0], len(given)) + b"".join(payloads)
    if isinstance(given, np.ndarray):
        return ARRAY, struct.pack("<IQ", TYPE_OF[given.dtype], given.size) + given.tobytes()
    if type(given) is int:
        given = np.uint32(given) if given >= 0 else np.int32(given)
    if type(given) is float:
        given = np.float32(given)
    scalar = np.asarray(given)
    return TYPE_OF[scalar.dtype], scalar.tobytes()


def gguf_bytes(metadata: Mapping[str, Any], tensors: Iterable[Tensor], version: int = 3) -> bytes:
    """A whole file. `general.alignment` in `metadata` is obeyed."""
    tensors = list(tensors)
    alignment = int(metadata.get("general.alignment", 32))
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, given in metadata.items():
        kind, payload = value(given)
        header += string(key) + struct.pack("<I", kind) + payload
    body = b""
    for tensor in tensors:
        dims = tensor.shape[::-1]
        header += string(tensor.name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        header += struct.pack("<IQ", tensor.type, len(body))
        body += padded(tensor.data.tobytes(), alignment)
    return padded(header, alignment) + body


def padded(data: bytes, alignment: int) -> bytes:
    return data + bytes(-len(data) % alignment)


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Iterable[Tensor]) -> Path:
    path.write_bytes(gguf_bytes(metadata, tensors))
    return path
