"""Heads of one decoder layer that go on from their own hidden states, unrolled in training as they will be in drafts
(the training-time test of EAGLE-3, 2503.01840, section 3).

Row t holds the target's hidden state of position t and the embedding of token t + 1, and guesses token t + 2. At depth
s it holds its own hidden state of depth s - 1 and the embedding of token t + 1 + s, and guesses token t + 2 + s. There
it sees what it will see when it drafts: the rows up to t as they were at depth 0, with the target's hidden states, and
of its own later depths only those of row t itself.

         depth 0 (rows)          1  2      position of depth s in row t: t + s
    row t  0 1 2 ... t          [t][t]

Rows of the prompt only give keys and values, at depth 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from foredraft.core import IntArray
from foredraft.train.head import Head
from foredraft.train.reader import Batch, Size
from foredraft.train.shards import Document, Half
from foredraft.train.target import TargetWeights

DEPTH_WEIGHT = 0.8  # of a depth's loss, relative to the one before


@dataclass(frozen=True)
class Rows:
    """A document's rows. first: the first row that guesses; count: how many do at depth 0."""

    document: Document

    @property
    def num_rows(self) -> int:
        return len(self.document.tokens) - 1

    @property
    def first(self) -> int:
        return self.document.prompt_len - 1

    @property
    def count(self) -> int:
        return self.num_rows - self.first

    def tokens(self, ahead: int, start: int = 0) -> IntArray:
        """Token t + ahead for the rows t from `start` on, as far as there are any."""
        return self.document.tokens[start + ahead : self.num_rows + 1]


class Unrolled(Head):
    """What such heads have in common. Subclasses make the parameters that are declared here.

    draft_tokens: the target's tokens that are guessed among, ascending.
    """

    q_proj: nn.Parameter
    k_proj: nn.Parameter
    v_proj: nn.Parameter
    o_proj: nn.Parameter
    q_bias: nn.Parameter | None
    k_bias: nn.Parameter | None
    q_norm: nn.Parameter | None
    k_norm: nn.Parameter | None
    post_attention_layernorm: nn.Parameter
    gate_proj: nn.Parameter
    up_proj: nn.Parameter
    down_proj: nn.Parameter
    norm: nn.Parameter
    lm_head: Tensor
    _target_norm: Tensor

    def __init__(self, target: TargetWeights, draft_tokens: IntArray, num_positions: int, num_kv_heads: int) -> None:
        super().__init__()
        self.q_bias = self.k_bias = self.q_norm = self.k_norm = None  # those that a subclass does not make
        self.num_positions = num_positions
        arch = target.arch
        self._target, self._draft_tokens = target, draft_tokens
        self._heads, self._kv_heads, self._head_dim, self._eps = (
            arch.num_heads,
            num_kv_heads,
            arch.head_dim,
            arch.norm_eps,
        )
        self.register_buffer("lm_head", torch.from_numpy(target.output_rows(draft_tokens)))
        self.register_buffer("_target_norm", torch.from_numpy(target.output_norm()), persistent=False)
        frequencies = arch.head_dim // 2
        angles = target.rope_base ** (-torch.arange(frequencies, dtype=torch.float64) / frequencies)
        self._frequencies = angles.to(torch.float32)
        self._is_draft = np.zeros(target.vocab_size, np.bool_)
        self._is_draft[draft_tokens] = True

    @abstractmethod
    def _fused(self, features: Tensor) -> Tensor:
        """The target's hidden states, all taps of the data, as `_entered` takes them: [rows, hidden]."""

    @abstractmethod
    def _entered(self, tokens: IntArray, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Of tokens and hidden states of the positions before them: the residual stream, and what attention reads."""

    def _left(self, x: Tensor) -> Tensor:
        """What the next depth goes on from."""
        return x

    @property
    @abstractmethod
    def _num_weights(self) -> tuple[int, int]:
        """How many a row passes once, and how many at each depth, before its layer."""

    def loss(self, batch: Batch) -> Tensor:
        rows = [Rows(document) for document in batch.documents]
        with torch.no_grad():
            wanted = self._target_probs(rows)
        total, weight = torch.zeros(()), 0.0
        for depth, logits in enumerate(self._depths(rows)):
            for each, guessed, told in zip(rows, logits, wanted, strict=True):
                told = told[depth:]
                known = torch.from_numpy(self._is_draft[each.tokens(depth + 2, each.first)])
                share = DEPTH_WEIGHT**depth
                cross_entropy = -(told[: len(known)] * F.log_softmax(guessed[: len(known)], 1)).sum(1)
                total = total + share * (cross_entropy * known).sum()
                weight += share * float(known.sum())
        return total / max(weight, 1.0)

    @torch.no_grad()
    def hits(self, batch: Batch) -> NDArray[np.int64]:
        found = np.zeros(self.num_positions + 1, np.int64)
        rows = [Rows(document) for document in batch.documents]
        last = self.num_positions - 1  # only drafts that all depths can be told of
        alive = [np.ones(max(each.count - 1 - last, 0), np.bool_) for each in rows]
        found[0] = sum(map(len, alive))
        for depth, logits in enumerate(self._depths(rows)):
            for number, (each, guessed) in enumerate(zip(rows, logits, strict=True)):
                count = len(alive[number])
                tokens = self._draft_tokens[guessed[:count].argmax(1).numpy()]
                alive[number] &= tokens == each.tokens(depth + 2, each.first)[:count]
                found[depth + 1] += alive[number].sum()
        return found

    def num_operations(self, size: Size) -> float:
        layer = sum(p.numel() for p in (self.q_proj, self.o_proj, self.gate_proj, self.up_proj, self.down_proj))
        once, each = self._num_weights
        shared = self.k_proj.numel() + self.v_proj.numel() + each
        head = self.lm_head.numel()
        by_answer = self.num_positions * (6 * (layer + shared) + 4 * head) + 2 * head + 6 * once
        by_prompt = 6 * (shared + once)
        return float(size.num_answer_tokens * by_answer + (size.num_tokens - size.num_answer_tokens) * by_prompt)

    def _target_probs(self, rows: list[Rows]) -> list[Tensor]:
        """The target's distribution over the draft vocabulary of token t + 2, for the rows that guess."""
        hidden = self._target.arch.hidden
        last = [each.document.features[each.first + 1 :, -hidden:] for each in rows]
        x = torch.from_numpy(np.concatenate(last).astype(np.float32))
        logits = self._normed(x, self._target_norm) @ self.lm_head.T
        return list(torch.split(F.softmax(logits, 1), [len(part) for part in last]))

    def _depths(self, rows: list[Rows]) -> Iterator[list[Tensor]]:
        """Logits of each depth in turn, for each document: [rows that guess, draft vocabulary]. At depth s the last
        s + 1 of them guess tokens that the document has not."""
        counts = [each.count for each in rows]
        features = np.concatenate([each.document.features[: each.num_rows] for each in rows])
        hidden = self._fused(torch.from_numpy(features.astype(np.float32)))
        x, inputs = self._entered(np.concatenate([each.tokens(1) for each in rows]), hidden)
        positions = torch.from_numpy(np.concatenate([np.arange(each.num_rows) for each in rows]))
        sizes = [each.num_rows for each in rows]
        keys, values = (torch.split(part, sizes) for part in self._keys_and_values(inputs, positions))
        starts = np.cumsum([0, *sizes[:-1]])
        guessing = torch.from_numpy(
            np.concatenate(
                [start + np.arange(each.first, each.num_rows) for start, each in zip(starts, rows, strict=True)]
            )
        )
        x, inputs, positions = x[guessing], inputs[guessing], positions[guessing]
        own: list[tuple[Tensor, Tensor]] = []  # keys and values of depths from 1 on
        for depth in range(self.num_positions):
            if depth:
                x, inputs = self._entered(np.concatenate([_padded(each, depth + 1) for each in rows]), hidden)
                own.append(self._keys_and_values(inputs, positions + depth))
            queries = torch.split(self._queries(inputs, positions + depth), counts)
            own_by_row = [(torch.split(key, counts), torch.split(value, counts)) for key, value in own]
            attended = [
                _attend(queries[i], keys[i], values[i], [(key[i], value[i]) for key, value in own_by_row], row.first)
                for i, row in enumerate(rows)
            ]
            x = x + torch.cat(attended) @ self.o_proj.T
            x = x + self._activations(x) @ self.down_proj.T
            hidden = self._left(x)
            yield list(torch.split(self._normed(x, self.norm) @ self.lm_head.T, counts))

    def _activations(self, x: Tensor) -> Tensor:
        normed = self._normed(x, self.post_attention_layernorm)
        return F.silu(normed @ self.gate_proj.T) * (normed @ self.up_proj.T)

    def _queries(self, inputs: Tensor, positions: Tensor) -> Tensor:
        """[rows, heads, size]."""
        return self._rotated(F.linear(inputs, self.q_proj, self.q_bias), self._heads, self.q_norm, positions)

    def _keys_and_values(self, inputs: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, heads, size] each: of every head, those that it shares with others."""
        keys = self._rotated(F.linear(inputs, self.k_proj, self.k_bias), self._kv_heads, self.k_norm, positions)
        values = (inputs @ self.v_proj.T).view(len(inputs), self._kv_heads, self._head_dim)
        group = self._heads // self._kv_heads
        return keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)

    def _rotated(self, x: Tensor, heads: int, norm: Tensor | None, positions: Tensor) -> Tensor:
        """By head, with the rotary embedding; halves of a head are rotated against each other."""
        x = x.view(len(x), heads, self._head_dim)
        if norm is not None:
            x = self._normed(x, norm)
        angles = positions[:, None, None].to(torch.float32) * self._frequencies
        cos, sin = angles.cos(), angles.sin()
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)

    def _embedded(self, tokens: IntArray) -> Tensor:
        different, where = np.unique(tokens, return_inverse=True)
        return torch.from_numpy(self._target.embeddings(different))[torch.from_numpy(where)]

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self._eps) * weight


def float_of(features: Half) -> Tensor:
    return torch.from_numpy(features.astype(np.float32))


def unit(x: Tensor) -> Tensor:
    """Scaled to a mean square of 1, as norms do; the output norm makes nothing else of it."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True))


def _padded(rows: Rows, ahead: int) -> IntArray:
    """Token t + ahead for the rows that guess; the last token where there is none."""
    found = rows.tokens(ahead, rows.first)
    return np.pad(found, (0, rows.count - len(found)), mode="edge")


def _attend(queries: Tensor, keys: Tensor, values: Tensor, own: list[tuple[Tensor, Tensor]], first: int) -> Tensor:
    """A document's attention at one depth: [rows that guess, heads * size].

    queries [rows that guess, heads, size]: those of the rows from `first` on. keys, values [rows, heads, size]: of
    depth 0. own: of the rows that guess, at each later depth.
    """
    count, scale = len(queries), queries.shape[-1] ** -0.5
    queries = queries.transpose(0, 1)
    scores = queries @ keys.permute(1, 2, 0) * scale
    hidden = torch.ones(count, len(keys), dtype=torch.bool).triu(first + 1)
    scores = scores.masked_fill(hidden, -torch.inf)
    beside = [(queries * key.transpose(0, 1)).sum(-1, keepdim=True) * scale for key, _ in own]
    weights = torch.cat([scores, *beside], -1).softmax(-1)
    out = weights[..., : len(keys)] @ values.transpose(0, 1)
    for depth, (_, value) in enumerate(own):
        out = out + weights[..., len(keys) + depth, None] * value.transpose(0, 1)
    return out.transpose(0, 1).flatten(1)
