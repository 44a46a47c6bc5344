"""The seam between the training loop and the networks that it trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foredraft.train.reader import Batch, Size


class Head(nn.Module, ABC):
    """A drafter in training. Its parameters that ask for a gradient are trained; its state dict is what a checkpoint
    holds.

    kind: one of drafters.checkpoint.KINDS. num_positions: how many tokens ahead it learns to guess.
    """

    kind: str
    num_positions: int

    def start(self, batches: Iterable[Batch]) -> None:
        """Begin better than at random, by a look at some batches; the loop calls this once, before the first step."""

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Mean loss over the batch's answer tokens, a scalar with a gradient."""

    @abstractmethod
    def hits(self, batch: Batch) -> NDArray[np.int64]:
        """How drafts from every answer token of the batch would have fared, where the target is greedy.

        Returns [num_positions + 1]: the drafts made, then how many were right up to each position.
        """

    @abstractmethod
    def num_operations(self, size: Size) -> float:
        """Floating-point operations of training on so much data once."""

    @abstractmethod
    def config(self) -> Mapping[str, Any]:
        """The head's config.json, which drafters/ reads."""

    @abstractmethod
    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """The head's weights under the names that drafters/ reads; float32, and whole numbers such as d2t."""


def numpy_of(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().to(torch.float32).numpy())
