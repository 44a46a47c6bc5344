"""The values of a GGUF header, read one after the other from a memory map."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import ModelError

MAX_ARRAY_DEPTH = 4
MAX_NAME_BYTES = 65535

BOOL, STRING, ARRAY = 7, 8, 9
# Format of each scalar value type, in the letters that struct and numpy share.
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", BOOL: "<B", 10: "<Q", 11: "<q", 12: "<d"}


def fail(path: Path, problem: str) -> NoReturn:
    """Raise ModelError about the file at `path`."""
    raise ModelError(f"{path} {problem}")


class Cursor:
    """A position in the mapped file. Each read checks the bytes left first."""

    def __init__(self, path: Path, data: mmap.mmap, position: int) -> None:
        self.path = path
        self.data = data
        self.end = len(data)
        self.position = position

    def take(self, num_bytes: int) -> int:
        """Step over `num_bytes`; returns where they start."""
        start = self.position
        if num_bytes > self.end - start:
            self.fail_truncated()
        self.position = start + num_bytes
        return start

    def fail_truncated(self) -> NoReturn:
        fail(self.path, f"ends inside its header, at byte {self.end}; it is truncated or corrupt, download it again")

    def scalar(self, form: str) -> Any:
        return struct.unpack_from(form, self.data, self.take(struct.calcsize(form)))[0]

    def name(self, what: str) -> str:
        """A key or tensor name: UTF-8, and printable, since messages contain it."""
        length = self.scalar("<Q")
        start = self.take(length)
        raw = self.data[start : start + min(length, MAX_NAME_BYTES + 1)]
        name = raw.decode(errors="replace")
        if length > MAX_NAME_BYTES or "\ufffd" in name or not name.isprintable():
            fail(self.path, f"has a {what} that is not one ({raw[:40]!r}); it is corrupt, download it again")
        return name

    def strings(self, count: int) -> list[str]:
        """`count` strings. A vocabulary has 150,000 of them, hence the bare loop."""
        data, end, position = self.data, self.end, self.position
        length_at = struct.Struct("<Q").unpack_from
        strings: list[str] = []
        append = strings.append
        for _ in range(count):
            start = position + 8
            if start > end:
                self.fail_truncated()
            position = start + length_at(data, position)[0]
            if position > end:
                self.fail_truncated()
            append(str(data[start:position], "utf-8", "replace"))
        self.position = position
        return strings

    def value(self, kind: int, key: str, depth: int = 0) -> Any:
        """A metadata value of type `kind`, inside `depth` arrays."""
        if kind == STRING:
            return self.strings(1)[0]
        if kind in SCALARS:
            value = self.scalar(SCALARS[kind])
            return value != 0 if kind == BOOL else value
        if kind != ARRAY:
            fail(self.path, f"has a value of unknown type {kind} in metadata key {key}; it is corrupt or too new")
        if depth == MAX_ARRAY_DEPTH:
            fail(self.path, f"nests arrays deeper than {MAX_ARRAY_DEPTH} in metadata key {key}; it is corrupt")
        kind, count = self.scalar("<I"), self.scalar("<Q")
        if kind == STRING:
            return self.strings(count)
        if kind in SCALARS:
            return self.numbers(kind, count)
        return [self.value(kind, key, depth + 1) for _ in range(count)]

    def numbers(self, kind: int, count: int) -> NDArray[Any]:
        dtype = np.dtype(SCALARS[kind])
        start = self.take(count * dtype.itemsize)
        # Copied, because nothing is aligned here.
        numbers = np.frombuffer(self.data[start : self.position], dtype).astype(bool if kind == BOOL else dtype)
        numbers.flags.writeable = False
        return numbers
