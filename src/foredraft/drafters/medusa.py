"""Medusa heads (Cai et al. 2401.10774): each guesses the token one position further on, all from one hidden state.

A head's layers are h + SiLU(W h + b), and an output matrix follows; h is at first the target's hidden state after its
output norm. Names are those of the authors, where the output matrix counts as one more layer, or those of vLLM, where
the heads may share one matrix and guess among a few tokens only (`token_map`). Heads without any use the target's own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from foredraft.core import FloatArray, IntArray
from foredraft.drafters.checkpoint import Checkpoint
from foredraft.kv.cache import PagedKV
from foredraft.models.decoder import Decoder
from foredraft.models.gguf_cursor import fail
from foredraft.ops.base import Batch
from foredraft.ops.reference import rms_norm, silu


class _Naming(NamedTuple):
    """A way to name them: a layer's weight (prefix, head, layer), a layer, and a head's output matrix."""

    layer_weight: re.Pattern[str]
    layer: str
    output: str


_PREFIX = r"((?:medusa_heads?\.)?)"
_NAMINGS = (
    _Naming(re.compile(_PREFIX + r"blocks\.(\d+)\.layers\.(\d+)\.weight"), "blocks.{}.layers.{}", "lm_heads.{}"),
    _Naming(re.compile(_PREFIX + r"(\d+)\.(\d+)\.linear\.weight"), "{}.{}.linear", "{}.{}"),
)

_ADVICE = "choose heads that were trained for this target"


class _Names(NamedTuple):
    """Of all heads: the layers of each; the output matrices, one for each head, one for all, or none."""

    layers: list[list[str]]
    outputs: list[str]


class MedusaHeads:
    """Heads ready to run for their target. Immutable after loading.

    taps: the hidden state of the target that they read. vocab_size: the target's. target_ids: the target's token for
    each that they guess among, int32 [draft vocabulary], or None where both are the same.
    """

    kind = "medusa"
    kv_shape = None

    def __init__(self, checkpoint: Checkpoint, target: Decoder) -> None:
        """Raises ModelError: the heads were trained for another target, or a tensor is missing, misshapen or not
        understood."""
        self._target = target
        hidden, names = target.arch.hidden, _names(checkpoint)
        self.taps = (target.arch.num_layers,)
        self.vocab_size = target.vocab_size
        self.target_ids = _target_ids(checkpoint, target)
        size, kept = _output_size(checkpoint, names, self.target_ids, target.vocab_size)
        _check_width(checkpoint, names, hidden)
        weights = checkpoint.weights(target.ops)
        self._layers = [[weights.matrix(name, hidden, hidden) for name in head] for head in names.layers]
        self._outputs = [weights.matrix(name, size, hidden, kept) for name in names.outputs] or [target.output]
        weights.check_all_used()

    @property
    def num_heads(self) -> int:
        return len(self._layers)

    def rehearse(self, batch: Batch, kv: PagedKV) -> object:
        return self.logits(np.zeros((len(batch.tokens), self._target.arch.hidden), np.float32), self.num_heads)

    def logits(self, hidden: FloatArray, count: int) -> FloatArray:
        """What the first `count` heads make of hidden states of the target before its output norm, [rows, hidden].

        Returns float32 [count, rows, draft vocabulary]; of the row at position p, head i guesses token p + 2 + i.
        """
        ops, target = self._target.ops, self._target
        eps = target.arch.norm_eps
        x = rms_norm(hidden, target.output_norm, eps)
        heads = self._layers[:count]
        states = [x + silu(y) for y in ops.project(x, None, eps, [layers[0] for layers in heads])]
        for depth in range(1, len(heads[0])):
            states = [
                h + silu(ops.project(h, None, eps, (layers[depth],))[0])
                for h, layers in zip(states, heads, strict=True)
            ]
        if len(self._outputs) == 1:  # for all heads, so that it is read once
            [logits] = ops.project(np.concatenate(states), None, eps, self._outputs)
            return logits.reshape(len(heads), len(x), -1)
        outputs = self._outputs[: len(heads)]
        return np.stack([ops.project(h, None, eps, (output,))[0] for h, output in zip(states, outputs, strict=True)])


def _names(checkpoint: Checkpoint) -> _Names:
    """How many heads and layers there are is told by the tensors: the configurations of published heads are wrong."""
    for naming in _NAMINGS:
        found = [match for name in checkpoint.tensors if (match := naming.layer_weight.fullmatch(name))]
        if found:
            break
    else:
        fail(checkpoint.path, "has no Medusa heads; expected are tensors such as blocks.0.layers.0.weight")
    prefix = found[0][1]
    num_heads, num_layers = (1 + max(int(match[group]) for match in found) for group in (2, 3))
    layers = [[prefix + naming.layer.format(head, depth) for depth in range(num_layers)] for head in range(num_heads)]
    outputs = [prefix + naming.output.format(head, num_layers) for head in range(num_heads)]
    if f"{prefix}lm_head.weight" in checkpoint.tensors:
        outputs = [f"{prefix}lm_head"]
    elif checkpoint.get("original_lm_head", bool, False):
        outputs = outputs[:1]
    elif not any(f"{name}.weight" in checkpoint.tensors for name in outputs):
        outputs = []
    return _Names(layers, outputs)


def _target_ids(checkpoint: Checkpoint, target: Decoder) -> IntArray | None:
    arrays = dict(checkpoint.arrays)
    given = arrays.pop("token_map", None)
    if arrays:
        fail(checkpoint.path, f"has parts that are not supported: tensor {next(iter(arrays))}")
    if given is None:
        return None
    tokens = given.astype(np.int64).reshape(-1)
    is_known = (tokens >= 0) & (tokens < target.vocab_size)
    if not (len(tokens) and is_known.all() and len(np.unique(tokens)) == len(tokens)):
        fail(
            checkpoint.path,
            "has a token_map that does not name different tokens of the target, of which there are "
            f"{target.vocab_size}; {_ADVICE}",
        )
    return tokens.astype(np.int32)


def _check_width(checkpoint: Checkpoint, names: _Names, hidden: int) -> None:
    width = checkpoint.tensors[f"{names.layers[0][0]}.weight"].shape[-1]
    if width != hidden:
        fail(checkpoint.path, f"has heads for hidden states of {width} numbers, the target's have {hidden}; {_ADVICE}")


def _output_size(
    checkpoint: Checkpoint, names: _Names, target_ids: IntArray | None, vocab_size: int
) -> tuple[int, IntArray | None]:
    """Rows of the output matrices, and which of them count: of all the target's tokens only those of the map do."""
    size = vocab_size if target_ids is None else len(target_ids)
    if not names.outputs:
        if target_ids is not None:
            fail(checkpoint.path, "has a token_map, but no output matrix lm_head.weight for its tokens")
        return size, None
    first = checkpoint.tensors.get(f"{names.outputs[0]}.weight")
    given = size if first is None else first.shape[0]
    if given not in (size, vocab_size):
        fail(checkpoint.path, f"has heads that guess among {given} tokens, expected are {size}; {_ADVICE}")
    return given, target_ids if given > size else None


def create(checkpoint: Checkpoint, target: Decoder) -> MedusaHeads:
    return MedusaHeads(checkpoint, target)
