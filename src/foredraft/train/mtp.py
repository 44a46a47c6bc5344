"""An MTP block in PyTorch (DeepSeek-V3 2412.19437, section 2.2), for a target that stays as it is.

It is a layer like the target's own, so that it can also go into the target's file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foredraft.core import FloatArray, IntArray
from foredraft.train.head import numpy_of
from foredraft.train.least_squares import LeastSquares
from foredraft.train.reader import Batch
from foredraft.train.shards import Document
from foredraft.train.target import TargetWeights
from foredraft.train.unrolled import Rows, Unrolled, float_of, unit

RIDGE = 0.01  # relative to the inputs' own variance
SMALL = 0.02  # standard deviation of weights that begin at random


class Mtp(Unrolled):
    """A block for a target, begun with its last layer. draft_tokens: those that it learns from; it guesses all."""

    kind = "mtp"

    def __init__(self, target: TargetWeights, draft_tokens: IntArray, num_positions: int, seed: int = 0) -> None:
        super().__init__(target, draft_tokens, num_positions, target.arch.num_kv_heads)
        hidden, layer = target.arch.hidden, target.last_layer()

        def near(values: FloatArray) -> nn.Parameter:
            return nn.Parameter(torch.from_numpy(np.ascontiguousarray(values)))

        self.enorm, self.hnorm = nn.Parameter(torch.ones(hidden)), nn.Parameter(torch.ones(hidden))
        self.eh_proj = nn.Parameter(torch.zeros(hidden, 2 * hidden))
        self.input_layernorm, self.post_attention_layernorm = near(layer["attn_norm"]), near(layer["ffn_norm"])
        self.q_proj, self.k_proj, self.v_proj = (near(layer[f"attn_{name}"]) for name in "qkv")
        if target.arch.has_head_norms:
            self.q_norm, self.k_norm = near(layer["attn_q_norm"]), near(layer["attn_k_norm"])
        generator = torch.Generator().manual_seed(seed)
        self.o_proj = nn.Parameter(torch.randn(*layer["attn_output"].shape, generator=generator) * SMALL)
        self.gate_proj, self.up_proj = near(layer["ffn_gate"]), near(layer["ffn_up"])
        self.down_proj = nn.Parameter(torch.zeros(layer["ffn_down"].shape))
        self.norm = near(target.output_norm())

    @torch.no_grad()
    def start(self, batches: Iterable[Batch]) -> None:
        """Begin as the best linear guess of the target's next hidden state, by least squares over some batches. The
        feed-forward part begins with the activations of the target's last layer, of which it tells what is lacking."""
        to_next, to_rest = LeastSquares(RIDGE), LeastSquares(RIDGE)
        documents = [document for batch in batches for document in batch.documents]
        for document in documents:
            to_next.add(*self._for_start(document))
        self.eh_proj.copy_(to_next.solve())
        for document in documents:
            both, wanted = self._for_start(document)
            guess = both @ self.eh_proj.T
            to_rest.add(self._activations(guess), wanted - guess)
        self.down_proj.copy_(to_rest.solve())

    def _for_start(self, document: Document) -> tuple[Tensor, Tensor]:
        """Of every row what `eh_proj` reads, and what should come out in the end."""
        features = float_of(document.features)
        both = self._joined(Rows(document).tokens(1), self._fused(features[:-1]))
        return both, unit(features[1:, -self._target.arch.hidden :])

    def config(self) -> Mapping[str, Any]:
        arch = self._target.arch
        return {
            "hidden_size": arch.hidden,
            "intermediate_size": len(self.gate_proj),
            "num_attention_heads": arch.num_heads,
            "num_key_value_heads": arch.num_kv_heads,
            "head_dim": arch.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self._eps,
            "rope_theta": self._target.rope_base,
            "vocab_size": self._target.vocab_size,
            "num_target_layers": arch.num_layers,
            "tokenizer_sha256": self._target.tokenizer_sha256,
            "num_positions": self.num_positions,
        }

    def tensors(self) -> Mapping[str, NDArray[Any]]:
        places = {name: name for name in ("enorm", "hnorm", "eh_proj", "input_layernorm", "post_attention_layernorm")}
        places["norm"] = "shared_head.norm"
        places |= {f"{name}_proj": f"self_attn.{name}_proj" for name in "qkvo"}
        places |= {
            f"{name}_norm": f"self_attn.{name}_norm" for name in "qk" if getattr(self, f"{name}_norm") is not None
        }
        places |= {f"{name}_proj": f"mlp.{name}_proj" for name in ("gate", "up", "down")}
        prefix = f"model.layers.{self._target.arch.num_layers}."
        return {f"{prefix}{place}.weight": numpy_of(getattr(self, name)) for name, place in places.items()}

    @property
    def _num_weights(self) -> tuple[int, int]:
        return 0, self.eh_proj.numel()

    def _fused(self, features: Tensor) -> Tensor:
        return self._normed(features[:, -self._target.arch.hidden :], self._target_norm)

    def _entered(self, tokens: IntArray, hidden: Tensor) -> tuple[Tensor, Tensor]:
        x = self._joined(tokens, hidden) @ self.eh_proj.T
        return x, self._normed(x, self.input_layernorm)

    def _joined(self, tokens: IntArray, hidden: Tensor) -> Tensor:
        return torch.cat([self._normed(self._embedded(tokens), self.enorm), self._normed(hidden, self.hnorm)], 1)

    def _left(self, x: Tensor) -> Tensor:
        return self._normed(x, self.norm)
