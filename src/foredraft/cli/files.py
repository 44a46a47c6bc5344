"""Reading what the user names, and writing results so that nothing half-written is left behind."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foredraft.errors import ConfigError


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ConfigError: it is missing, is a folder, may not be read, or is not UTF-8; the message names it.
    """
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; convert it first") from None


def read_json(path: Path) -> Any:
    """The value in a JSON file.

    Raises:
        ConfigError: as for `read_text`, or it is not JSON.
    """
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None


def check_writable(path: Path | None) -> None:
    """Make sure, before any work is done, that a file can be written at `path` later. None is fine.

    Raises:
        ConfigError: its folder is missing or cannot be written to, or the path is itself a folder.
    """
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; give the name of a file to write")
    if not folder.is_dir():
        raise ConfigError(f"{path} cannot be written because there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"{path} cannot be written because the folder {folder} is read-only; choose another")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to, which takes the place of `path` if all went well and else is removed."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, all of it or nothing."""
    with replacing(path) as part:
        part.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
