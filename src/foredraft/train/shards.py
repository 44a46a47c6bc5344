"""Training data on disk: shards of documents with the target's hidden states, and meta.json that says whose they are.

A shard is an .npz file that is there in full or not at all. Its arrays: tokens int32 [tokens], features float16
[tokens, taps * hidden], offsets int64 [documents + 1] into both, and for each document prompt_lens int32, prompts int64
(the number of the prompt that it answers), temperatures float32 and origins, text.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foredraft.core import IntArray
from foredraft.errors import ConfigError

META = "meta.json"
Half = NDArray[np.float16]


@dataclass(frozen=True)
class Meta:
    """Whose hidden states a folder holds, and how its answers were drawn.

    target: file, size and checksum of its beginning (provenance.identity). taps: see Decoder.forward_tapped.
    """

    target: dict[str, Any]
    hidden: int
    num_layers: int
    vocab_size: int
    tokenizer_sha256: str
    taps: tuple[int, ...]
    sampling: dict[str, Any]


@dataclass(frozen=True)
class Document:
    """A prompt and its answer, with the features of every token: float16 [tokens, len(taps) * hidden].

    prompt: its number among the prompts. temperature: at which the answer was drawn. origin: whose text is in the
    prompt, and its license.
    """

    prompt: int
    prompt_len: int
    temperature: float
    origin: str
    tokens: IntArray
    features: Half

    @property
    def num_answer_tokens(self) -> int:
        return len(self.tokens) - self.prompt_len


def open_folder(folder: Path, meta: Meta) -> None:
    """Make `folder` one for data of `meta`, or see that it is one.

    Raises:
        ConfigError: it holds data of another target or other taps, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / META).exists():
            write_atomically(folder / META, json.dumps(asdict(meta), indent=1).encode())
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from None
    found, wanted = asdict(read_meta(folder)), asdict(meta)
    for key in wanted:
        if found[key] != wanted[key]:
            raise ConfigError(
                f"{folder} holds data made with {key} {_short(found[key])}, this is {_short(wanted[key])}; "
                "choose another folder"
            )


def read_meta(folder: Path) -> Meta:
    """Raises ConfigError where there is no such folder of data."""
    try:
        values = json.loads((folder / META).read_bytes())
        return Meta(**{**values, "taps": tuple(values["taps"])})
    except OSError:
        raise ConfigError(f"{folder} holds no training data; make some with foredraft train data") from None
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"{folder / META} is not understood; make the data again into another folder") from None


def shards(folder: Path) -> list[Path]:
    """The finished shards, in the order in which they were made."""
    return sorted(folder.glob("shard-*.npz"))


def write_shard(folder: Path, documents: Sequence[Document]) -> Path:
    lengths = [len(document.tokens) for document in documents]
    arrays: dict[str, Any] = {
        "tokens": np.concatenate([document.tokens for document in documents]),
        "features": np.concatenate([document.features for document in documents]),
        "offsets": np.cumsum([0, *lengths]),
        "prompt_lens": np.array([document.prompt_len for document in documents], np.int32),
        "prompts": np.array([document.prompt for document in documents]),
        "temperatures": np.array([document.temperature for document in documents], np.float32),
        "origins": np.array([document.origin for document in documents]),
    }
    numbers = [int(path.stem.removeprefix("shard-")) for path in shards(folder)]
    path = folder / f"shard-{max(numbers, default=-1) + 1:05}.npz"
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return path


def read_shard(path: Path) -> Iterator[Document]:
    """The documents of a shard.

    Raises:
        ConfigError: the file is damaged.
    """
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            tokens, features, offsets = arrays["tokens"], arrays["features"], arrays["offsets"]
            about = [arrays[name] for name in ("prompts", "prompt_lens", "temperatures", "origins")]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path} is damaged ({error}); remove it, and its documents are made again") from None
    for number, (prompt, prompt_len, temperature, origin) in enumerate(zip(*about, strict=True)):
        rows = slice(offsets[number], offsets[number + 1])
        yield Document(int(prompt), int(prompt_len), float(temperature), str(origin), tokens[rows], features[rows])


def counts(folder: Path) -> tuple[set[int], int]:
    """Of the finished shards: the numbers of the prompts they answer, and how many tokens the answers have."""
    answered: set[int] = set()
    num_tokens = 0
    for path in shards(folder):
        with np.load(path) as arrays:  # the features stay on disk
            answered.update(arrays["prompts"].tolist())
            num_tokens += len(arrays["tokens"]) - int(arrays["prompt_lens"].sum())
    return answered, num_tokens


def write_atomically(path: Path, data: bytes) -> None:
    """All of it, on the disk, or nothing."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _short(value: object) -> str:
    return f"{json.dumps(value):.120}"
