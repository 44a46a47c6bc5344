"""The EAGLE-3 head in PyTorch (2503.01840): it reads hidden states of several depths of the target, fused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foredraft.core import IntArray
from foredraft.train.head import numpy_of
from foredraft.train.least_squares import LeastSquares
from foredraft.train.reader import Batch
from foredraft.train.target import TargetWeights
from foredraft.train.unrolled import Rows, Unrolled, float_of, unit

SMALL = 0.02  # standard deviation of weights that begin at random
OWN_ROW = 2 / 3  # of the heads begin by looking at their own row, which is the only way to the embedding
SHARPNESS, SHARP_PAIRS = 40.0, 8  # how much more the own row scores than far ones; pairs of a head that tell it
RIDGE = 0.01  # relative to the inputs' own variance


class Eagle3(Unrolled):
    """An EAGLE-3 head for a target, begun with the target's own weights where they help.

    taps: those of the data, the target's last layer at the end: `fc` reads all but this, of which the target's own
    distribution follows. draft_tokens: the target's tokens that the head can guess, ascending.
    """

    kind = "eagle3"
    q_bias: nn.Parameter
    k_bias: nn.Parameter

    def __init__(
        self, target: TargetWeights, taps: tuple[int, ...], draft_tokens: IntArray, num_positions: int, seed: int = 0
    ) -> None:
        arch = target.arch
        super().__init__(target, draft_tokens, num_positions, arch.num_heads)
        self._taps = taps
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
        rows = [Rows(document) for batch in batches for document in batch.documents]
        for each in rows:
            features = float_of(each.document.features)
            to_last.add(features[:, :-hidden], unit(features[:, -hidden:]))
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

    def _for_start(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Of every row what enters the residual stream and what attention reads, and what should come out."""
        features = float_of(rows.document.features)
        now, inputs = self._entered(rows.tokens(1), self._fused(features[:-1]))
        return now, inputs, unit(features[1:, -self._target.arch.hidden :])

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

    @property
    def _num_weights(self) -> tuple[int, int]:
        return self.fc.numel(), 0

    def _fused(self, features: Tensor) -> Tensor:
        return (features[:, : self.fc.shape[1]] / self._sizes) @ self.fc.T

    def _entered(self, tokens: IntArray, hidden: Tensor) -> tuple[Tensor, Tensor]:
        embedded = self._normed(self._embedded(tokens), self.input_layernorm)
        return hidden, torch.cat([embedded, self._normed(hidden, self.hidden_norm)], 1)
