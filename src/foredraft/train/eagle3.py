"""The EAGLE-3 head in PyTorch, with its training-time test (2503.01840, section 3).

Row t holds the target's fused features of position t and the embedding of token t + 1, and guesses token t + 2. It is
then unrolled over its own output: at depth s row t holds its hidden state of depth s - 1 and the embedding of token
t + 1 + s, and guesses token t + 2 + s. There it sees what it will see when it drafts: the rows up to t as they were at
depth 0, which have the target's features, and of its own later depths only those of row t itself.

         depth 0 (rows)          1  2      position of depth s in row t: t + s
    row t  0 1 2 ... t          [t][t]

Rows of the prompt only give keys and values, at depth 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
from foredraft.train.shards import Document, Half
from foredraft.train.target import TargetWeights

DEPTH_WEIGHT = 0.8  # of a depth's loss, relative to the one before
SMALL = 0.02  # standard deviation of weights that begin at random
OWN_ROW = 2 / 3  # of the heads begin by looking at their own row, which is the only way to the embedding
SHARPNESS, SHARP_PAIRS = 40.0, 8  # how much more the own row scores than far ones; pairs of a head that tell it
RIDGE = 0.01  # relative to the inputs' own variance


@dataclass(frozen=True)
class _Rows:
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


class Eagle3(Head):
    """An EAGLE-3 head for a target, begun with the target's own weights where they help.

    taps: those of the data, the target's last layer at the end: `fc` reads all but this, of which the target's own
    distribution follows. draft_tokens: the target's tokens that the head can guess, ascending.
    """

    kind = "eagle3"

    def __init__(
        self, target: TargetWeights, taps: tuple[int, ...], draft_tokens: IntArray, num_positions: int, seed: int = 0
    ) -> None:
        super().__init__()
        self.num_positions = num_positions
        arch = target.arch
        self._target, self._taps, self._draft_tokens = target, taps, draft_tokens
        self._heads, self._head_dim, self._eps = arch.num_heads, arch.head_dim, arch.norm_eps
        hidden, layer = arch.hidden, target.last_layer()
        generator = torch.Generator().manual_seed(seed)

        def near(values: NDArray[np.float32]) -> nn.Parameter:
            return nn.Parameter(torch.from_numpy(np.ascontiguousarray(values)))

        def small(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator) * SMALL)

        width = self._heads * self._head_dim
        self.fc = small(hidden, (len(taps) - 1) * hidden)  # of features divided by their sizes
        self._sizes: Tensor
        self.register_buffer("_sizes", torch.ones(self.fc.shape[1]))
        self.hidden_norm, self.input_layernorm = nn.Parameter(torch.ones(hidden)), nn.Parameter(torch.ones(hidden))
        self.q_proj, self.k_proj, self.v_proj = (small(width, 2 * hidden) for _ in range(3))
        self.q_bias, self.k_bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))
        self.o_proj = small(hidden, width)
        self.post_attention_layernorm = near(layer["ffn_norm"])
        self.gate_proj, self.up_proj = near(layer["ffn_gate"]), near(layer["ffn_up"])
        self.down_proj = nn.Parameter(torch.zeros(hidden, len(layer["ffn_gate"])))
        self.norm = near(target.output_norm())
        self.lm_head: Tensor
        self._target_norm: Tensor
        self.register_buffer("lm_head", torch.from_numpy(target.output_rows(draft_tokens)))
        self.register_buffer("_target_norm", torch.from_numpy(target.output_norm()), persistent=False)
        frequencies = arch.head_dim // 2
        angles = target.rope_base ** (-torch.arange(frequencies, dtype=torch.float64) / frequencies)
        self._frequencies = angles.to(torch.float32)
        self._is_draft = np.zeros(target.vocab_size, np.bool_)
        self._is_draft[draft_tokens] = True

    @torch.no_grad()
    def start(self, batches: Iterable[Batch]) -> None:
        """Begin as the best linear guess of the target's next hidden state, by least squares over some batches.

        `fc` tells the last hidden state of a position from those that are tapped. Two thirds of the heads look at their
        own row only (constant queries and keys, which the rotary embedding makes fall with distance) and add what that
        and the next token's embedding say about the next position. The feed-forward part begins with the activations of
        the target's last layer, of which it tells what is still lacking.
        """
        hidden = self._target.arch.hidden
        to_last, to_next, to_rest = LeastSquares(RIDGE), LeastSquares(RIDGE), LeastSquares(RIDGE)
        rows = [_Rows(document) for batch in batches for document in batch.documents]
        for each in rows:
            features = _float(each.document.features)
            to_last.add(features[:, :-hidden], _unit(features[:, -hidden:]))
        # Some of a target's features are a thousand times as large as others; a step of training must not be.
        self._sizes.copy_(to_last.input_sizes)
        self.fc.copy_(to_last.solve() * self._sizes)
        for each in rows:
            now, inputs, wanted = self._for_start(each)
            to_next.add(inputs, wanted - now)
        rank = min(round(self._heads * OWN_ROW) * self._head_dim, hidden)
        self.o_proj[:, :rank], self.v_proj[:rank] = to_next.solve_in(rank)
        for each in rows:
            now, inputs, wanted = self._for_start(each)
            guess = now + inputs @ self.v_proj[:rank].T @ self.o_proj[:, :rank].T
            to_rest.add(self._activations(guess), wanted - guess)
        self.down_proj.copy_(to_rest.solve())
        num_own = -(-rank // self._head_dim)
        for weight, bias in ((self.q_proj, self.q_bias), (self.k_proj, self.k_bias)):
            weight[: num_own * self._head_dim] = 0
            by_head = bias.view(self._heads, 2, self._head_dim // 2)
            by_head[:num_own, 0, :SHARP_PAIRS] = (SHARPNESS / SHARP_PAIRS) ** 0.5 * self._head_dim**0.25

    def _for_start(self, rows: _Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Of every row what enters the residual stream and what attention reads, and what should come out."""
        features, hidden = _float(rows.document.features), self._target.arch.hidden
        now = self._fused(features[:-1, :-hidden])
        return now, self._inputs(rows.tokens(1), now), _unit(features[1:, -hidden:])

    def _fused(self, features: Tensor) -> Tensor:
        return (features / self._sizes) @ self.fc.T

    def _activations(self, x: Tensor) -> Tensor:
        normed = self._normed(x, self.post_attention_layernorm)
        return F.silu(normed @ self.gate_proj.T) * (normed @ self.up_proj.T)

    def loss(self, batch: Batch) -> Tensor:
        rows = [_Rows(document) for document in batch.documents]
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
        rows = [_Rows(document) for document in batch.documents]
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
        shared = self.k_proj.numel() + self.v_proj.numel()
        head = self.lm_head.numel()
        by_answer = self.num_positions * (6 * (layer + shared) + 4 * head) + 2 * head + 6 * self.fc.numel()
        by_prompt = 6 * (shared + self.fc.numel())
        return float(size.num_answer_tokens * by_answer + (size.num_tokens - size.num_answer_tokens) * by_prompt)

    def config(self) -> Mapping[str, Any]:
        arch = self._target.arch
        return {
            "hidden_size": arch.hidden,
            "intermediate_size": len(self.gate_proj),
            "num_hidden_layers": 1,
            "num_attention_heads": self._heads,
            "num_key_value_heads": self._heads,
            "head_dim": self._head_dim,
            "attention_bias": True,
            "hidden_act": "silu",
            "rms_norm_eps": self._eps,
            "rope_theta": self._target.rope_base,
            "vocab_size": self._target.vocab_size,
            "draft_vocab_size": len(self._draft_tokens),
            "target_hidden_size": arch.hidden,
            "num_target_layers": arch.num_layers,
            "tokenizer_sha256": self._target.tokenizer_sha256,
            "taps": list(self._taps[:-1]),
            "num_positions": self.num_positions,
        }

    def tensors(self) -> Mapping[str, NDArray[Any]]:
        places = {"norm": "norm", "lm_head": "lm_head"}
        for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
            places[name] = f"midlayer.{name}"
        places |= {f"{name}_proj": f"midlayer.self_attn.{name}_proj" for name in "qkvo"}
        places |= {f"{name}_proj": f"midlayer.mlp.{name}_proj" for name in ("gate", "up", "down")}
        tensors: dict[str, NDArray[Any]] = {
            f"{place}.weight": numpy_of(getattr(self, name)) for name, place in places.items()
        }
        tensors["fc.weight"] = numpy_of(self.fc / self._sizes)
        for name in "qk":
            tensors[f"midlayer.self_attn.{name}_proj.bias"] = numpy_of(getattr(self, f"{name}_bias"))
        tensors["d2t"] = self._draft_tokens.astype(np.int64) - np.arange(len(self._draft_tokens))
        return tensors

    def _target_probs(self, rows: list[_Rows]) -> list[Tensor]:
        """The target's distribution over the draft vocabulary of token t + 2, for the rows that guess."""
        hidden = self._target.arch.hidden
        last = [each.document.features[each.first + 1 :, -hidden:] for each in rows]
        x = torch.from_numpy(np.concatenate(last).astype(np.float32))
        logits = self._normed(x, self._target_norm) @ self.lm_head.T
        return list(torch.split(F.softmax(logits, 1), [len(part) for part in last]))

    def _depths(self, rows: list[_Rows]) -> Iterator[list[Tensor]]:
        """Logits of each depth in turn, for each document: [rows that guess, draft vocabulary]. At depth s the last
        s + 1 of them guess tokens that the document has not."""
        counts = [each.count for each in rows]
        features = np.concatenate([each.document.features[: each.num_rows] for each in rows])
        x = self._fused(_float(features[:, : self.fc.shape[1]]))
        inputs = self._inputs(np.concatenate([each.tokens(1) for each in rows]), x)
        positions = torch.from_numpy(np.concatenate([np.arange(each.num_rows) for each in rows]))
        sizes = [each.num_rows for each in rows]
        keys = torch.split(self._rotated(inputs @ self.k_proj.T + self.k_bias, positions), sizes)
        values = torch.split(self._by_head(inputs @ self.v_proj.T), sizes)
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
                inputs = self._inputs(np.concatenate([_padded(each, depth + 1) for each in rows]), x)
                own_keys = self._rotated(inputs @ self.k_proj.T + self.k_bias, positions + depth)
                own.append((own_keys, self._by_head(inputs @ self.v_proj.T)))
            queries = torch.split(self._rotated(inputs @ self.q_proj.T + self.q_bias, positions + depth), counts)
            own_by_row = [(torch.split(key, counts), torch.split(value, counts)) for key, value in own]
            attended = [
                _attend(queries[i], keys[i], values[i], [(key[i], value[i]) for key, value in own_by_row], row.first)
                for i, row in enumerate(rows)
            ]
            x = x + torch.cat(attended) @ self.o_proj.T
            x = x + self._activations(x) @ self.down_proj.T
            yield list(torch.split(self._normed(x, self.norm) @ self.lm_head.T, counts))

    def _inputs(self, tokens: IntArray, hidden: Tensor) -> Tensor:
        """What attention reads: float32 [rows, 2 * hidden]."""
        different, where = np.unique(tokens, return_inverse=True)
        embedded = torch.from_numpy(self._target.embeddings(different))[torch.from_numpy(where)]
        return torch.cat([self._normed(embedded, self.input_layernorm), self._normed(hidden, self.hidden_norm)], 1)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self._eps) * weight

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(len(x), self._heads, self._head_dim)

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """By head, with the rotary embedding; halves of a head are rotated against each other."""
        angles = positions[:, None, None].to(torch.float32) * self._frequencies
        cos, sin = angles.cos(), angles.sin()
        first, second = self._by_head(x).chunk(2, -1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


def _float(features: Half) -> Tensor:
    return torch.from_numpy(features.astype(np.float32))


def _unit(x: Tensor) -> Tensor:
    """Scaled to a mean square of 1, as norms do; the output norm makes nothing else of it."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True))


def _padded(rows: _Rows, ahead: int) -> IntArray:
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
