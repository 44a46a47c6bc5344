"""A trained head as files: one GGUF file, of 8-bit numbers, or a Hugging Face directory (docs/drafters.md)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foredraft.models.gguf_writer import gguf_bytes
from foredraft.ops.base import Tensor, TensorType
from foredraft.ops.quantizers import quantized
from foredraft.train.shards import write_atomically

Arrays = Mapping[str, NDArray[Any]]
_SAFETENSORS = {"float32": "F32", "int64": "I64", "bool": "BOOL"}


def write_gguf(path: Path, kind: str, config: Mapping[str, Any], arrays: Arrays, about: Mapping[str, Any]) -> None:
    """One file, all of it or nothing.

    config: what a config.json would say. arrays: float32 weights, and whole numbers, which become metadata.
    about: more metadata, such as "general.name".
    """
    metadata: dict[str, Any] = {"general.architecture": kind, **about}
    metadata |= {f"{kind}.{key}": value for key, value in config.items()}
    metadata |= {f"{kind}.{name}": values for name, values in arrays.items() if values.dtype.kind != "f"}
    tensors = [
        quantized(Tensor(name, TensorType.F32, values.shape, np.frombuffer(values.tobytes(), np.uint8)))
        for name, values in arrays.items()
        if values.dtype.kind == "f"
    ]
    write_atomically(path, gguf_bytes(metadata, tensors))


def write_directory(folder: Path, config: Mapping[str, Any], arrays: Arrays) -> None:
    """config.json and model.safetensors, in float32."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    header, position = {}, 0
    for name, values in arrays.items():
        end = position + values.nbytes
        header[name] = {
            "dtype": _SAFETENSORS[str(values.dtype)],
            "shape": list(values.shape),
            "data_offsets": [position, end],
        }
        position = end
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    body = b"".join(values.tobytes() for values in arrays.values())
    write_atomically(folder / "model.safetensors", struct.pack("<Q", len(head)) + head + body)
