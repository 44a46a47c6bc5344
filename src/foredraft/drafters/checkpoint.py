"""A drafter's checkpoint, whatever it lies in: a Hugging Face directory, or one GGUF file of `foredraft train`.

A directory has config.json and the weights as safetensors or, pickled by PyTorch, as pytorch_model.bin or
medusa_lm_head.pt; large ones are in parts with an index. A GGUF file is such a directory in one file: its architecture
is the kind, its metadata "KIND.KEY" are config.json's keys, and its tensors have the same names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from foredraft.drafters import pickled, safetensors
from foredraft.errors import ModelError
from foredraft.models import gguf
from foredraft.models.gguf_cursor import fail
from foredraft.models.weights import Weights
from foredraft.ops.base import Ops, Tensor
from foredraft.ops.quantizers import quantized

T = TypeVar("T")
Arrays = Mapping[str, NDArray[Any]]

KINDS = ("eagle3", "eagle", "medusa", "mtp")
# What a kind is known by: a tensor that only it has.
_MARKS = {
    "mtp": re.compile(r"mtp\.|model\.layers\.\d+\.eh_proj\."),
    "eagle3": re.compile(r"(midlayer|layers\.0)\.hidden_norm\.weight"),
    "medusa": re.compile(r"(medusa_heads?\.)?(\d+\.\d+\.linear|blocks\.\d+\.layers\.\d+)\.weight"),
    "eagle": re.compile(r"layers\.0\.self_attn\.q_proj\.weight"),
}
_ARRAYS = (
    "d2t",
    "t2d",
    "token_map",
)  # of a GGUF file's metadata, those that are a directory's tensors of whole numbers
# Tables inside of config.json whose keys are read as if they were its own (speculators, EAGLE-3, vLLM's EAGLE).
_INNER = ("transformer_layer_config", "eagle_config", "model")
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "medusa_lm_head.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "medusa_lm_head.pt",
)


@dataclass(frozen=True)
class Checkpoint:
    """What a drafter's checkpoint holds.

    kind: one of `KINDS`. config: config.json's keys, those of its inner tables among them. tensors: weights as they lie
    in the file. arrays: tensors of whole numbers or flags, such as the map of a draft vocabulary.
    """

    path: Path
    kind: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    arrays: Arrays

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """A value of the configuration, or `default` where there is none or it is null.

        kind: str, bool, int, float (an integer is taken too), list or dict.

        Raises:
            ModelError: the value is of another kind, or it is missing and there is no default.
        """
        value = self.config.get(key)
        if value is None:
            if default is None:
                fail(self.path, f"does not say {key} in its configuration, which is needed")
            return default
        if kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            fail(self.path, f"has {value!r:.60} as {key} in its configuration; it must be of type {kind.__name__}")
        return value

    def size(self, key: str, default: int | None = None, most: int = 2**24) -> int:
        """A value of the configuration that is a size, 1 to `most`."""
        value = self.get(key, int, default)
        if not 1 <= value <= most:
            fail(self.path, f"has {key} {value} in its configuration; allowed is 1 to {most}")
        return value

    def weights(self, ops: Ops) -> Weights:
        """The tensors, to be asked for one by one; matrices of floats become 8-bit numbers."""
        return Weights(self.path, self.tensors, ops, quantized)


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint at `path`; weights stay on disk until used, where their format allows.

    Raises:
        ModelError: whatever is wrong with the path or with what lies there.
        UnavailableError: the weights are pickled by PyTorch, which is not installed.
    """
    path = Path(path)
    if path.name.endswith((".safetensors", ".pt", ".bin", ".json")):
        fail(path, "is a part of a checkpoint; give the directory that holds it")
    return _directory(path) if path.is_dir() else _file(path)


def _file(path: Path) -> Checkpoint:
    file = gguf.read(path)
    kind = file.get("general.architecture", str)
    if kind not in KINDS:
        fail(
            path, f"is of architecture {kind!r}, not a drafter ({', '.join(KINDS)}); a complete model is a draft model"
        )
    prefix = f"{kind}."
    config = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    arrays = {key: config.pop(key) for key in _ARRAYS if isinstance(config.get(key), np.ndarray)}
    config = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in config.items()}
    return Checkpoint(path, kind, config, file.tensors, arrays)


def _directory(path: Path) -> Checkpoint:
    config = _json(path / "config.json")
    for key in _INNER:
        inner = config.get(key)
        if isinstance(inner, dict):
            config = {**inner, **{name: value for name, value in config.items() if name != key}}
    found = next((path / name for name in _WEIGHTS if (path / name).exists()), None)
    if found is None:
        fail(path, f"has no weights; expected is one of {', '.join(_WEIGHTS)}")
    tensors, arrays = _parts(found) if found.suffix == ".json" else _weights(found)
    return Checkpoint(path, _kind(path, [*tensors, *arrays]), config, tensors, arrays)


def _weights(path: Path) -> tuple[dict[str, Tensor], dict[str, NDArray[Any]]]:
    return safetensors.read(path) if path.suffix == ".safetensors" else pickled.read(path)


def _parts(index: Path) -> tuple[dict[str, Tensor], dict[str, NDArray[Any]]]:
    """The weights of all files that an index names."""
    where = _json(index).get("weight_map")
    if not isinstance(where, dict) or not all(isinstance(name, str) for name in where.values()):
        fail(index, "does not say in which file each tensor is; download it again")
    tensors: dict[str, Tensor] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name in dict.fromkeys(where.values()):
        if Path(name).name != name:  # nothing outside of the directory is read
            fail(index, f"names the file {name!r:.80}, which is not beside it; download it again")
        more_tensors, more_arrays = _weights(index.parent / name)
        tensors |= more_tensors
        arrays |= more_arrays
    missing = next((name for name in where if name not in tensors and name not in arrays), None)
    if missing is not None:
        fail(index, f"names the tensor {missing}, which no file has; download it again")
    return tensors, arrays


def _json(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_bytes())
    except FileNotFoundError as exc:
        raise ModelError(f"{path} is missing; a drafter's directory has config.json and its weights") from exc
    except (OSError, ValueError, RecursionError) as exc:
        raise ModelError(f"{path} cannot be read ({str(exc)[:200]}); download it again") from exc
    if not isinstance(table, dict):
        fail(path, "does not hold a JSON object; download it again")
    return table


def _kind(path: Path, names: list[str]) -> str:
    """By what its tensors are called: configurations often do not say."""
    kind = next((kind for kind, mark in _MARKS.items() if any(mark.match(name) for name in names)), None)
    if kind is None:
        fail(path, f"holds no drafter that is known ({', '.join(KINDS)}); its first tensor is {next(iter(names), '')}")
    return kind
