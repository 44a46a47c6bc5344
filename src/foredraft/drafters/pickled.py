"""Weights that PyTorch has pickled, read by PyTorch's restricted loader alone: a pickle may otherwise run anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import ModelError, UnavailableError
from foredraft.models.gguf_cursor import fail
from foredraft.ops.base import Tensor, TensorType


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, NDArray[Any]]]:
    """The weights of a file, and its arrays of whole numbers or flags.

    Raises:
        UnavailableError: PyTorch is not installed.
        ModelError: the restricted loader refuses the file, or it holds something else than named tensors.
    """
    try:
        import torch
    except ImportError as exc:
        raise UnavailableError(
            f"{path} is pickled by PyTorch, which is not installed: pip install 'foredraft[train]', "
            "or give the checkpoint as safetensors"
        ) from exc
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as exc:  # of unpickling, zip files and storages alike
        raise ModelError(f"{path} cannot be read as PyTorch weights: {str(exc).splitlines()[0][:200]}") from exc
    if not isinstance(held, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in held.items()
    ):
        fail(path, "does not hold tensors by name; give a checkpoint's state dict")
    floats = {torch.float32: TensorType.F32, torch.float16: TensorType.F16, torch.bfloat16: TensorType.BF16}
    tensors: dict[str, Tensor] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in held.items():
        value = value.detach().contiguous()
        if value.dtype in floats:
            raw = value.reshape(-1).view(torch.uint8).numpy()
            tensors[name] = Tensor(name, floats[value.dtype], tuple(value.shape), raw)
        elif value.is_floating_point() or value.is_complex():
            fail(path, f"has tensor {name} in type {value.dtype}; known are float32, float16 and bfloat16")
        else:
            arrays[name] = np.asarray(value.numpy())
    return tensors, arrays
