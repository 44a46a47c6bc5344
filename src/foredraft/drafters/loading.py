"""Loading a drafter for its target: the checkpoint, whether it is for this target, and the network in it."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Protocol

from foredraft.drafters import checkpoint as checkpoints
from foredraft.drafters.checkpoint import Checkpoint
from foredraft.kv.cache import PagedKV
from foredraft.models.compatibility import tokens_sha256
from foredraft.models.decoder import Decoder
from foredraft.models.gguf_cursor import fail
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops.base import Batch

# Converters of models spell some tokens in their own way; another tokenizer differs nearly everywhere.
MOST_DIFFERENT = 0.01

KVShape = tuple[int, int, int]  # layers, KV heads and their size: what a cache of keys and values is made for

# kind: the module of its network, whose `create` makes it of a checkpoint and a target.
_NETWORKS = {
    "eagle": "foredraft.drafters.eagle",
    "eagle3": "foredraft.drafters.eagle",
    "medusa": "foredraft.drafters.medusa",
    "mtp": "foredraft.drafters.mtp",
}


class Drafter(Protocol):
    """A network ready to run for its target.

    kind: one of checkpoint.KINDS, and the name of its proposer. kv_shape: of its cache of keys and values; None where
    it has none. vocab_size: the target's.
    """

    kind: str
    vocab_size: int

    @property
    def kv_shape(self) -> KVShape | None: ...

    def rehearse(self, batch: Batch, kv: PagedKV) -> object:
        """One pass over as many rows as the batch has, as drafting runs it, whose hidden states mean nothing: for
        measuring what it takes. kv: of `kv_shape`, written to."""


def load(path: str | os.PathLike[str], target: Decoder, tokenizer: Tokenizer) -> Drafter:
    """The drafter at `path`, ready to run for `target`, whose tokenizer is given.

    Raises:
        ModelError: it cannot be read, is for another target, or is of a kind that is not run; the message says which.
        UnavailableError: its weights are pickled by PyTorch, which is not installed.
    """
    checkpoint = checkpoints.read(path)
    _check_target(checkpoint, target, tokenizer)
    drafter: Drafter = import_module(_NETWORKS[checkpoint.kind]).create(checkpoint, target)
    return drafter


def _check_target(checkpoint: Checkpoint, target: Decoder, tokenizer: Tokenizer) -> None:
    """Compare what the configuration says of the target with what it is."""
    own = {
        "vocab_size": target.vocab_size,
        "target_hidden_size": target.arch.hidden,
        "num_target_layers": target.arch.num_layers,
    }
    for key, value in own.items():
        given = checkpoint.size(key, value)
        if given != value:
            fail(checkpoint.path, f"is for a target whose {key} is {given}; this target's is {value}")
    digest = checkpoint.get("tokenizer_sha256", str, "")
    if digest and digest != tokens_sha256(tokenizer):
        fail(checkpoint.path, "was trained for another tokenizer than this target's; train it for this target")
    if checkpoint.path.is_dir() and (theirs := _tokens(checkpoint.path / "tokenizer.json")):
        different = [id for text, id in theirs.items() if id < len(tokenizer.tokens) and tokenizer.tokens[id] != text]
        if len(different) > MOST_DIFFERENT * len(theirs):
            ours = tokenizer.tokens[different[0]]
            fail(
                checkpoint.path,
                f"has a tokenizer.json that differs from this target's tokenizer in {len(different)} tokens "
                f"({different[0]} is {ours!r} in the target); it is for another target",
            )


def _tokens(path: Path) -> dict[str, int]:
    """Token strings and ids of a tokenizer.json; none where there is no such file, or one of another form."""
    try:
        saved = json.loads(path.read_bytes())
        return {text: int(id) for text, id in saved["model"]["vocab"].items()}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}
