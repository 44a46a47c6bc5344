"""Reader of GGUF files, versions 2 and 3 (little-endian), over a read-only memory map.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. A file comes from anywhere, so nothing in it is
believed: each count and length is compared with the bytes that are left before it is used, and whatever the bytes are,
the outcome is a `GGUFFile` or a `ModelError`.
"""

from __future__ import annotations

import math
import mmap
import os
import reprlib
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import ModelError
from foredraft.models.gguf_cursor import Cursor, fail
from foredraft.ops.base import BLOCKS, Tensor, TensorType

T = TypeVar("T")

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMS = 4
DEFAULT_ALIGNMENT = 32

# Tensor types that exist but are not read, so that a message can name them (ggml.h, enum ggml_type).
_OTHER_TYPES = {
    10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
    21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip

_KIND_NAMES = {str: "a string", bool: "true or false", int: "an integer", float: "a number"}


@dataclass(frozen=True)
class GGUFFile:
    """What a GGUF file holds. The memory map lives as long as any tensor's data.

    metadata: scalars as bool, int, float and str; string arrays as list[str]; arrays of numbers as read-only ndarrays
    of the file's own dtype (bool for booleans); arrays of arrays as lists of those. A string that is not UTF-8 has
    replacement characters. tensors: in file order, data uint8 [nbytes], views of the map.
    """

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, Tensor]

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """The value of `key`, or `default` where the file has no such key.

        kind: str, bool, int, float (an integer is taken too), list (of strings) or np.ndarray (of numbers).

        Raises:
            ModelError: the value is of another kind, or the key is missing and there is no default.
        """
        if key not in self.metadata:
            if default is None:
                fail(self.path, f"has no metadata key {key}, which is needed; convert the model again")
            return default
        value = self.metadata[key]
        if kind is float and type(value) is int:
            value = float(value)
        # bool is a subclass of int, but a flag is not a number
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            allowed = _KIND_NAMES.get(kind, "an array")
            fail(self.path, f"has {_describe(value)} as metadata key {key}; it must be {allowed}")
        return value

    def tensor(self, name: str) -> Tensor:
        """The tensor called `name`; ModelError if there is none."""
        if name not in self.tensors:
            fail(self.path, f"has no tensor {name}, which its architecture needs; convert the model again")
        return self.tensors[name]


def read(path: str | os.PathLike[str]) -> GGUFFile:
    """Read header, metadata and tensor table of the GGUF file at `path`; tensor data stays on disk until used.

    Raises:
        ModelError: whatever is wrong with the path or the bytes; no other exception.
    """
    path = Path(path)
    data = memory_map(path)
    if data[:4] != MAGIC:
        fail(path, _foreign(data[:256]))
    cursor = Cursor(path, data, len(MAGIC))
    version = cursor.scalar("<I")
    if version not in VERSIONS:
        if version and version & 0xFFFF == 0:
            fail(path, "is a big-endian GGUF file; only little-endian ones are read, convert the model again")
        fail(path, f"is GGUF version {version}; versions 2 and 3 are read, convert the model again")
    num_tensors, num_keys = cursor.scalar("<Q"), cursor.scalar("<Q")
    metadata = _read_metadata(cursor, num_keys)
    if (parts := metadata.get("split.count")) is not None and parts != 1:
        fail(path, f"is one of {parts} parts of a split model; join them first with llama-gguf-split --merge")
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        fail(path, f"has general.alignment {alignment!r}; it must be a power of two")
    return GGUFFile(path, metadata, _read_tensors(cursor, num_tensors, alignment))


def memory_map(path: Path, what: str = "GGUF file") -> mmap.mmap:
    """Memory map of a regular, non-empty file; `what` it should be is named in errors.

    Raises:
        ModelError: there is no such file, or it cannot be read.
    """
    try:
        # Looked at before it is opened: opening a pipe would wait for a writer.
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            fail(path, f"is a directory; give the {what} in it")
        if not stat.S_ISREG(mode):
            fail(path, f"is not a regular file; give a {what}")
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                fail(path, "is empty; download the model again")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        fail(path, f"does not exist; give the path of a {what}")
    except PermissionError:
        fail(path, "may not be read by this user; change its permissions")
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error}); give the path of a {what}") from error


def _foreign(head: bytes) -> str:
    """What a file without GGUF's magic seems to be, from its first bytes."""
    text = head.lstrip().lower()
    if head.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the model itself; fetch it with git lfs pull"
    if text.startswith((b"<!doctype", b"<html")):
        return "is a web page, not a model; download the file itself"
    if head[8:10] == b'{"':
        return "is a safetensors file; convert it to GGUF"
    if head.startswith(b"PK\x03\x04"):
        return "is a zip archive (perhaps a PyTorch checkpoint); convert it to GGUF"
    if head[:4] in (b"lmgg", b"tjgg", b"fmgg", b"algg"):
        return "is a GGML file from before GGUF; convert the model again"
    if not head.strip(b"\0"):
        return "starts with zeros, so its download was not finished; download the model again"
    return "is not a GGUF file; give the path of a GGUF file"


def _read_metadata(cursor: Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.name("metadata key")
        if key in metadata:
            fail(cursor.path, f"has the metadata key {key} twice; it is corrupt, download it again")
        metadata[key] = cursor.value(cursor.scalar("<I"), key)
    return metadata


class _TensorInfo(NamedTuple):
    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int


def _read_tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, Tensor]:
    table: dict[str, _TensorInfo] = {}
    for _ in range(count):
        info = _read_tensor_info(cursor)
        if info.name in table:
            fail(cursor.path, f"has the tensor {info.name} twice; it is corrupt, download it again")
        table[info.name] = info
    start = -(-cursor.position // alignment) * alignment
    data = np.frombuffer(cursor.data, np.uint8)
    return {name: _place(cursor.path, data, info, start, alignment) for name, info in table.items()}


def _read_tensor_info(cursor: Cursor) -> _TensorInfo:
    name, num_dims = cursor.name("tensor name"), cursor.scalar("<I")
    if num_dims > MAX_DIMS:
        fail(cursor.path, f"gives tensor {name} {num_dims} dimensions; up to {MAX_DIMS} are allowed, it is corrupt")
    shape = tuple(cursor.scalar("<Q") for _ in range(num_dims))[::-1]
    number, offset = cursor.scalar("<I"), cursor.scalar("<Q")
    try:
        return _TensorInfo(name, TensorType(number), shape, offset)
    except ValueError:
        given = _OTHER_TYPES.get(number, f"number {number}")
        known = ", ".join(kind.name for kind in TensorType)
        fail(cursor.path, f"has tensor {name} in type {given}; choose a file with these types only: {known}")


def _place(path: Path, data: NDArray[np.uint8], info: _TensorInfo, start: int, alignment: int) -> Tensor:
    """The tensor whose bytes lie `info.offset` after `start`; checks that they are all there."""
    name, kind, shape, offset = info
    block_len, block_bytes = BLOCKS[kind]
    num_elements = math.prod(shape)
    if num_elements == 0 or (shape or (1,))[-1] % block_len:
        fail(path, f"gives tensor {name} the shape {shape}; rows of {kind.name} are full blocks of {block_len}")
    if offset % alignment:
        fail(path, f"puts tensor {name} at offset {offset}, not a multiple of {alignment}; it is corrupt")
    first = start + offset
    last = first + num_elements // block_len * block_bytes
    if last > data.size:
        fail(path, f"has {data.size} bytes, but tensor {name} ends at byte {last}; it is truncated, download it again")
    return Tensor(name, kind, shape, data[first:last], is_mapped=True)


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.size} numbers"
    if isinstance(value, list):
        return f"an array of {len(value)} values"
    return reprlib.repr(value)
