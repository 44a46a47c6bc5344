"""Traces: files of what the governor decided and what became of it, to be looked at and decided again later.

A trace is gzip'd lines of JSON. The first says what the file is, its version and where it comes from; each other is a
step (trace_format.py). It has numbers and the names of routes and proposers, and nothing of any text.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from foredraft.config import check, option
from foredraft.errors import TraceError
from foredraft.governor.plan import Plan, Snapshot
from foredraft.governor.trace_format import VERSION, Between, Decoder, Encoder, TraceStep
from foredraft.steps import StepRecord

log = logging.getLogger("foredraft")

FORMAT = "foredraft trace"
MAX_MIB = 1024
_GZIP = 31  # zlib's word for a gzip file with the largest window
_CHUNK = 1 << 16
_MAX_LINE = 16 << 20


@dataclass(frozen=True)
class TraceConfig:
    """The section [trace] of a configuration file."""

    file: Path | None = option(
        None, "Write what the governor decides, for `foredraft replay`, into this file; not set: nowhere."
    )
    max_mib: int = option(MAX_MIB, "The file grows no further than this.", minimum=1)

    def __post_init__(self) -> None:
        check(self)


class TraceWriter:
    """Writes a trace while an engine runs, and never gets into its way: what goes wrong after the start (a full disk)
    ends the trace with one warning. Used by the engine's thread alone, until it is closed.

    header: where the trace comes from (provenance). A file that is there already is kept as NAME.old. Every step is
    handed to the system at its end, so that it survives the process, however that ends.

    Raises:
        TraceError: the file cannot be opened.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], max_mib: int = MAX_MIB) -> None:
        self._path, self._max_bytes, self._num_bytes = path, max_mib << 20, 0
        self._encoder, self._zip = Encoder(), zlib.compressobj(level=1, wbits=_GZIP)
        self._pending: tuple[Snapshot, Plan] | None = None
        self._before = Between()
        try:
            if path.is_file():
                path.replace(path.with_name(f"{path.name}.old"))
            self._file: BinaryIO | None = path.open("wb")
        except OSError as error:
            raise TraceError(f"the trace {path} cannot be written: {error.strerror}") from None
        head = {"format": FORMAT, "version": VERSION, **header}
        self._guard(lambda: json.dumps(head, default=str).encode() + b"\n")

    def plan(self, snapshot: Snapshot, plan: Plan) -> None:
        """A decision, before its step runs."""
        self._end_step(None)
        self._pending = snapshot, plan

    def step(self, record: StepRecord) -> None:
        """What became of a step: that of the last decision, or one without."""
        if self._pending:
            self._end_step(record)
        else:
            self._before += Between.of(record)

    def close(self) -> None:
        """Write what is left. Closing again does nothing."""
        self._end_step(None)
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end_step(self, record: StepRecord | None) -> None:
        if self._pending and self._file:
            step = TraceStep(*self._pending, record, self._before)
            self._guard(lambda: self._encoder.line(step))
            self._before = Between()
        self._pending = None

    def _guard(self, line: Callable[[], bytes]) -> None:
        """Write a line; whatever happens, the caller goes on."""
        try:
            self._write(line())
        except OSError as error:
            self._give_up(str(error.strerror))
        except Exception:
            log.exception("a step cannot be written to the trace %s", self._path)
            self._give_up("a fault of ours")

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        self._num_bytes += self._file.write(self._zip.compress(line) + self._zip.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()
        if self._num_bytes > self._max_bytes:
            self._give_up(f"it has reached {self._max_bytes >> 20} MiB")

    def _give_up(self, why: str) -> None:
        log.warning("the trace %s ends here, and everything else goes on: %s", self._path, why)
        self._stop()

    def _stop(self) -> None:
        file, self._file = self._file, None
        if file:
            with suppress(OSError):
                file.write(self._zip.flush())
            with suppress(OSError):
                file.close()


class Trace:
    """A trace in a file; iterate over it, any number of times, for its steps.

    header: its first line. is_cut_off: whether the file breaks off, as after a crash (its steps then end with the last
    whole one); known once all of it has been read.

    Raises, here and while it is read:
        TraceError: the file cannot be read, is no trace, is of a newer version, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_cut_off = False
        lines = self._lines()
        self.header = self._header(next(lines, b""))
        lines.close()

    def __iter__(self) -> Iterator[TraceStep]:
        decoder, lines = Decoder(), self._lines()
        next(lines, None)
        for number, line in enumerate(lines, 1):
            try:
                step = decoder.step(line)
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                raise TraceError(f"{self._path} is damaged: its step {number} cannot be read ({error})") from None
            yield step

    def _header(self, line: bytes) -> dict[str, Any]:
        try:
            header = json.loads(line)
            version = header["version"] if header["format"] == FORMAT else None
        except (ValueError, TypeError, LookupError, RecursionError):
            version = None
        if type(version) is not int or version < 1:
            raise TraceError(f"{self._path} is not a trace; `--trace FILE` of generate and serve writes one")
        if version > VERSION:
            raise TraceError(
                f"{self._path} is a trace of version {version}, this foredraft reads up to {VERSION}; use a newer one"
            )
        return dict(header)

    def _lines(self) -> Generator[bytes, None, None]:
        """The file's whole lines, as far as it can be unpacked; sets `is_cut_off` at its end."""
        unpacker, rest = zlib.decompressobj(_GZIP), b""
        try:
            with self._path.open("rb") as file:
                while data := file.read(_CHUNK):
                    *lines, rest = (rest + unpacker.decompress(data)).split(b"\n")
                    yield from lines
                    if len(rest) > _MAX_LINE or unpacker.unused_data:
                        raise zlib.error
        except OSError as error:
            raise TraceError(f"{self._path} cannot be read: {error.strerror}") from None
        except zlib.error:
            raise TraceError(f"{self._path} is not a trace, or is damaged") from None
        self.is_cut_off = bool(rest) or not unpacker.eof


def read_trace(path: Path) -> Trace:
    """The trace in a file."""
    return Trace(path)
