"""Reader of safetensors files over a read-only memory map: raw bytes, nothing converted, nothing run.

Format: https://github.com/huggingface/safetensors#format. The library itself hands out whole tensors of numpy's types,
which lack bfloat16; a header of JSON and a table of offsets need no library. As with GGUF, nothing in a file is
believed: the outcome is its tensors or a `ModelError`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import ModelError
from foredraft.models.gguf import memory_map
from foredraft.models.gguf_cursor import fail
from foredraft.ops.base import Tensor, TensorType

MAX_HEADER = 100_000_000  # the format's own bound
MAX_DIMS = 8

FLOATS = {"F32": TensorType.F32, "F16": TensorType.F16, "BF16": TensorType.BF16}
NUMBERS = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2, **{name: np.dtype(form).itemsize for name, form in NUMBERS.items()}}


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, NDArray[Any]]]:
    """The weights of a file, whose data stays on disk until used, and its arrays of whole numbers or flags, read-only.

    Raises:
        ModelError: whatever is wrong with the path or the bytes; no other exception.
    """
    data = np.frombuffer(memory_map(path, "safetensors file"), np.uint8)
    header, start = _header(path, data)
    tensors: dict[str, Tensor] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        kind, shape, first, last = _entry(path, name, entry)
        if last > data.size - start:
            fail(path, f"has {data.size} bytes, but tensor {name} ends at byte {start + last}; download it again")
        raw = data[start + first : start + last]
        if kind in FLOATS:
            tensors[name] = Tensor(name, FLOATS[kind], shape, raw, is_mapped=True)
        else:
            arrays[name] = np.frombuffer(raw.tobytes(), NUMBERS[kind]).reshape(shape)
    return tensors, arrays


def _header(path: Path, data: NDArray[np.uint8]) -> tuple[Mapping[str, Any], int]:
    """The table of tensors, and where their data starts."""
    length = int.from_bytes(data[:8].tobytes(), "little")
    if not 2 <= length <= min(MAX_HEADER, data.size - 8):
        fail(path, f"has a header of {length} bytes in a file of {data.size}; it is not a whole safetensors file")
    try:
        header = json.loads(data[8 : 8 + length].tobytes().decode())
    except (ValueError, RecursionError) as exc:
        raise ModelError(f"{path} has a header that cannot be read ({exc}); download it again") from exc
    if not isinstance(header, dict):
        fail(path, "has a header that is not a table of tensors; download it again")
    return header, 8 + length


def _entry(path: Path, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Data type, shape, and the first byte and the one after the last, counted from the start of the data."""
    if not name.isprintable():
        fail(path, f"has a tensor name that is not one ({name[:40]!r}); download it again")
    if not isinstance(entry, dict):
        fail(path, f"does not say where tensor {name} is; download it again")
    kind: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not (_are_sizes(shape) and _are_sizes(offsets) and len(shape) <= MAX_DIMS and len(offsets) == 2):
        fail(path, f"gives tensor {name} a shape or a place that is not one; download it again")
    if not isinstance(kind, str) or kind not in _ITEM_BYTES:
        fail(path, f"has tensor {name} in type {kind!r:.40}; known are {', '.join(_ITEM_BYTES)}")
    first, last = offsets
    if last - first != math.prod(shape) * _ITEM_BYTES[kind] or last == first:
        fail(path, f"gives tensor {name} {last - first} bytes for the shape {shape}; download it again")
    return kind, tuple(shape), first, last


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**53 for value in values)
