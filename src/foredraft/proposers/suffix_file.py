"""The file in which past outputs are kept across restarts.

    foredraft suffixes 1            what it is, and the version of this form
    9f86d081884c7d65...             SHA-256 of all that follows
    {"tokenizer": ..., "byteorder": ..., "texts": [[scope, pool, number of tokens, repeats], ...]}
    the texts' tokens, int32, one text after the other

It is written beside itself and renamed, so that at any time there is a whole one, the old or the new, and it is its
owner's alone to read, since it holds what users were answered.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from foredraft.errors import StoreError

FILE = "suffixes"  # in its directory
_MAGIC, VERSION = b"foredraft suffixes", 1
_TOKEN_BYTES = 4


@dataclass(frozen=True)
class Text:
    """Whose text it is, its tokens as int32 bytes, and how often it was written."""

    scope: str
    pool: str
    tokens: bytes
    repeats: int


def fingerprint(tokens: Iterable[str]) -> str:
    """Of a tokenizer, by the strings of its tokens in the order of their ids."""
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()


def write(path: Path, fingerprint: str, texts: Sequence[Text]) -> None:
    """Replace the file, or make it and its directory.

    Raises:
        StoreError: it cannot be written; an old one is still there.
    """
    table = [[text.scope, text.pool, len(text.tokens) // _TOKEN_BYTES, text.repeats] for text in texts]
    header = json.dumps({"tokenizer": fingerprint, "byteorder": sys.byteorder, "texts": table}).encode()
    content = b"".join((header, b"\n", *(text.tokens for text in texts)))
    digest = hashlib.sha256(content).hexdigest().encode()
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)  # whatever its mode is
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(b"%s %d\n%s\n" % (_MAGIC, VERSION, digest))
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written ({error.strerror})") from error


def read(path: Path, fingerprint: str) -> list[Text]:
    """The texts of a file; none where there is no file.

    fingerprint: of the tokenizer whose tokens are wanted.

    Raises:
        StoreError: it is none, damaged, of a newer version, or of another tokenizer.
    """
    try:
        head, _, rest = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror})") from error
    magic, _, version = head.rpartition(b" ")
    if magic != _MAGIC or not version.isdigit():
        raise StoreError(f"{path} is damaged, or another program's; move it away, or give another directory")
    if int(version) > VERSION:
        raise StoreError(
            f"{path} is of version {int(version)}, this program knows up to {VERSION}; use a newer foredraft, or "
            "another directory"
        )
    digest, _, content = rest.partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != digest:
        raise StoreError(f"{path} is damaged; move it away, or restore it")
    header, _, tokens = content.partition(b"\n")
    found = json.loads(header)
    if (found["tokenizer"], found["byteorder"]) != (fingerprint, sys.byteorder):
        raise StoreError(f"{path} holds the tokens of another tokenizer; give each model a directory of its own")
    texts: list[Text] = []
    start = 0
    for scope, pool, num_tokens, repeats in found["texts"]:
        end = start + num_tokens * _TOKEN_BYTES
        texts.append(Text(scope, pool, tokens[start:end], repeats))
        start = end
    return texts
