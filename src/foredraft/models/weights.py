"""Strict accounting of a file's tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foredraft.core import FloatArray, IntArray
from foredraft.errors import ModelError
from foredraft.ops import quants
from foredraft.ops.base import Ops, Tensor


class Weights:
    """Hands out tensors by name with their shapes checked, and remembers which: one that nobody asked for means that
    the model has parts we do not understand, and running without them would give wrong numbers."""

    def __init__(
        self,
        path: Path,
        tensors: Mapping[str, Tensor],
        ops: Ops,
        pack: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    ) -> None:
        """pack: what is done to a matrix's tensor before the op set takes it; it keeps the shape."""
        self.path, self._tensors, self._ops, self._pack = path, tensors, ops, pack
        self._used: set[str] = set()

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor `name`; -1 in `shape` allows any size there."""
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ModelError(f"{self.path}: tensor {name} is missing; the file is incomplete, fetch it again")
        self._used.add(name)
        fits = len(tensor.shape) == len(shape) and all(
            want in (-1, have) for want, have in zip(shape, tensor.shape, strict=True)
        )
        if not fits:
            raise ModelError(f"{self.path}: tensor {name} has shape {tensor.shape}, expected {shape}")
        return tensor

    def vector(self, name: str, size: int) -> FloatArray:
        tensor = self.tensor(name, (size,))
        return np.array(quants.dequantize(tensor.type, tensor.data), np.float32)

    def optional_vector(self, name: str) -> FloatArray | None:
        return self.vector(name, -1) if name in self._tensors else None

    def matrix(self, name: str, outputs: int, inputs: int, kept: IntArray | None = None) -> Any:
        """The matrix `name`.weight and, where the file has one, its bias; of both only the rows `kept`, if given."""
        tensor = self.tensor(f"{name}.weight", (outputs, inputs))
        bias = self.vector(f"{name}.bias", outputs) if f"{name}.bias" in self._tensors else None
        if kept is not None:
            tensor, bias = quants.gather(tensor, kept), None if bias is None else bias[kept]
        return self._ops.matrix(self._pack(tensor), bias)

    def apart(self, prefix: str) -> Weights | None:
        """The tensors whose names begin so, to be accounted for by somebody else; None where there is none."""
        tensors = {name: tensor for name, tensor in self._tensors.items() if name.startswith(prefix)}
        self._used.update(tensors)
        return Weights(self.path, tensors, self._ops, self._pack) if tensors else None

    def check_all_used(self) -> None:
        unknown = sorted(set(self._tensors) - self._used)
        if unknown:
            raise ModelError(
                f"{self.path}: this model has parts that are not supported: tensor {unknown[0]}"
                + (f" and {len(unknown) - 1} more" if len(unknown) > 1 else "")
            )
