"""Checkpoints of learned drafters as files, for tests: safetensors, and a directory with config.json."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foredraft.ops.base import TensorType
from quantizers import make_tensor

_FLOATS = {TensorType.F32: "F32", TensorType.F16: "F16", TensorType.BF16: "BF16"}
_NUMBERS = {"<i8": "I64", "<i4": "I32", "|b1": "BOOL", "|u1": "U8"}

Weights = Mapping[str, Any]  # name: float32 array, or an array of whole numbers or flags


def safetensors_bytes(weights: Weights, kind: TensorType = TensorType.F32) -> bytes:
    """A whole file; floats are stored as `kind`."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, values in weights.items():
        if values.dtype == np.float32:
            dtype, raw = _FLOATS[kind], make_tensor(name, kind, values).data.tobytes()
        else:
            dtype, raw = _NUMBERS[values.dtype.str], values.tobytes()
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def write_directory(
    path: Path, config: Mapping[str, Any], weights: Weights, kind: TensorType = TensorType.F32, parts: int = 1
) -> Path:
    """A Hugging Face directory, in `parts` files with an index where there are several."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if parts == 1:
        (path / "model.safetensors").write_bytes(safetensors_bytes(weights, kind))
        return path
    where = {}
    for part in range(parts):
        names = list(weights)[part::parts]
        file = f"model-{part + 1:05}-of-{parts:05}.safetensors"
        (path / file).write_bytes(safetensors_bytes({name: weights[name] for name in names}, kind))
        where |= dict.fromkeys(names, file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return path
