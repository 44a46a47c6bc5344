"""Medusa heads in PyTorch (2401.10774, section 2.2.1: the target stays as it is).

Head i's output matrix is the target's own, for the draft vocabulary, times a square matrix that is learned: whole ones
would have many times the parameters and know less of the tokens that are rare in the data. They learn the target's own
distributions, of which the hidden states that are there tell, not the tokens that happened to be drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from foredraft.core import IntArray
from foredraft.train.head import Head, numpy_of
from foredraft.train.least_squares import LeastSquares
from foredraft.train.reader import Batch, Size
from foredraft.train.shards import Document
from foredraft.train.target import TargetWeights

HEAD_WEIGHT = 0.8  # of a head's loss, relative to the one before (the paper's)
RIDGE = 0.01  # relative to the inputs' own variance
SMALL = 0.02  # standard deviation of weights that begin at random


class Medusa(Head):
    """Heads of one layer each. draft_tokens: the target's tokens that they can guess, ascending."""

    kind = "medusa"
    _rows: Tensor
    _norm: Tensor
    _sizes: Tensor

    def __init__(self, target: TargetWeights, draft_tokens: IntArray, num_positions: int, seed: int = 0) -> None:
        super().__init__()
        self.num_positions = num_positions
        self._target, self._draft_tokens, hidden = target, draft_tokens, target.arch.hidden
        generator = torch.Generator().manual_seed(seed)

        def small(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator) * SMALL)

        # Both matrices are of hidden states divided by their sizes.
        self.layers, self.biases = small(num_positions, hidden, hidden), small(num_positions, hidden)
        self.turns = nn.Parameter(torch.eye(hidden).repeat(num_positions, 1, 1))
        self.register_buffer("_sizes", torch.ones(hidden))
        self.register_buffer("_rows", torch.from_numpy(target.output_rows(draft_tokens)), persistent=False)
        self.register_buffer("_norm", torch.from_numpy(target.output_norm()), persistent=False)
        places = np.full(target.vocab_size, -1)
        places[draft_tokens] = np.arange(len(draft_tokens))
        self._places = torch.from_numpy(places)

    @torch.no_grad()
    def start(self, batches: Iterable[Batch]) -> None:
        """Begin as the best linear guesses of the target's later hidden states, by least squares over some batches."""
        states = [self._hidden(document) for batch in batches for document in batch.documents]
        # Some states are many times as large as others; a step of training must not be.
        self._sizes.copy_(torch.cat(states).square().mean(0).sqrt())
        for head in range(self.num_positions):
            to_later = LeastSquares(RIDGE)
            for x in states:
                to_later.add(self._after_layer(x[: -1 - head], head), x[1 + head :])
            self.turns[head] = to_later.solve()

    def loss(self, batch: Batch) -> Tensor:
        total, weight = torch.zeros(()), 0.0
        for x, document in ((self._hidden(document), document) for document in batch.documents):
            first = document.prompt_len - 1
            with torch.no_grad():
                told = F.softmax(x[first + 1 :] @ self._rows.T, 1)
            tokens = torch.from_numpy(document.tokens.astype(np.int64))
            for head in range(self.num_positions):
                count = len(tokens) - first - 2 - head
                if count < 1:
                    break
                is_known = self._places[tokens[first + 2 + head :]] >= 0
                guessed = F.log_softmax(self._logits(x[first : first + count], head), 1)
                cross_entropy = -(told[head : head + count] * guessed).sum(1)
                total = total + HEAD_WEIGHT**head * (cross_entropy * is_known).sum()
                weight += HEAD_WEIGHT**head * float(is_known.sum())
        return total / max(weight, 1.0)

    @torch.no_grad()
    def hits(self, batch: Batch) -> NDArray[np.int64]:
        found = np.zeros(self.num_positions + 1, np.int64)
        for document in batch.documents:
            first = document.prompt_len - 1
            count = len(document.tokens) - first - 1 - self.num_positions  # only drafts that all heads can be told of
            if count < 1:
                continue
            x, alive = self._hidden(document)[first : first + count], np.ones(count, np.bool_)
            found[0] += count
            for head in range(self.num_positions):
                guessed = self._draft_tokens[self._logits(x, head).argmax(1).numpy()]
                alive &= guessed == document.tokens[first + 2 + head :][:count]
                found[head + 1] += alive.sum()
        return found

    def num_operations(self, size: Size) -> float:
        hidden = self._target.arch.hidden
        by_head = 6 * 2 * hidden**2 + 4 * self._rows.numel()
        return float(size.num_answer_tokens * (self.num_positions * by_head + 2 * self._rows.numel()))

    def config(self) -> Mapping[str, Any]:
        return {
            "hidden_size": self._target.arch.hidden,
            "num_heads": self.num_positions,
            "num_hidden_layers": 1,
            "medusa_fc_bias": True,
            "vocab_size": self._target.vocab_size,
            "truncated_vocab_size": len(self._draft_tokens),
            "num_target_layers": self._target.arch.num_layers,
            "tokenizer_sha256": self._target.tokenizer_sha256,
        }

    def tensors(self) -> Mapping[str, NDArray[Any]]:
        tensors: dict[str, NDArray[Any]] = {"token_map": self._draft_tokens.astype(np.int64)}
        for head in range(self.num_positions):
            tensors[f"blocks.{head}.layers.0.weight"] = numpy_of(self.layers[head] / self._sizes)
            tensors[f"blocks.{head}.layers.0.bias"] = numpy_of(self.biases[head])
            tensors[f"lm_heads.{head}.weight"] = numpy_of(self._rows @ (self.turns[head] / self._sizes))
        return tensors

    def _hidden(self, document: Document) -> Tensor:
        """Of every token, the last hidden state as the target's output matrix reads it."""
        x = torch.from_numpy(document.features[:, -self._target.arch.hidden :].astype(np.float32))
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self._target.arch.norm_eps) * self._norm

    def _logits(self, x: Tensor, head: int) -> Tensor:
        return self._after_layer(x, head) @ self.turns[head].T @ self._rows.T

    def _after_layer(self, x: Tensor, head: int) -> Tensor:
        """Divided by the sizes of hidden states."""
        return (x + F.silu(F.linear(x / self._sizes, self.layers[head], self.biases[head]))) / self._sizes
