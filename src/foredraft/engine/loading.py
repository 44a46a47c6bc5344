"""Loading what runs: a target with its tokenizer, and a draft model that speaks the target's tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import ModelError
from foredraft.models import catalog, gguf
from foredraft.models.compatibility import draftable_tokens
from foredraft.models.decoder import Decoder
from foredraft.models.gguf import GGUFFile
from foredraft.models.tokenizer import Tokenizer
from foredraft.models.vocabulary import Vocabulary, kept_tokens
from foredraft.ops.base import Ops


def load_target(name: str | Path, ops: Ops) -> tuple[Decoder, Tokenizer, str | None]:
    """The model, its tokenizer, and the source of its chat template where it has one.

    Raises:
        ModelError, TokenizerError: the file cannot be used.
    """
    file = gguf.read(catalog.resolve(name))
    tokenizer = Tokenizer.from_metadata(file.metadata)
    decoder = Decoder(file, ops)
    _check_sizes(file, tokenizer, decoder)
    return decoder, tokenizer, file.metadata.get("tokenizer.chat_template")


def load_draft(
    name: str | Path, ops: Ops, target: Tokenizer, vocabulary: Vocabulary | None
) -> tuple[Decoder, NDArray[np.bool_]]:
    """The model, and which of the target's tokens it may propose, bool [target vocabulary].

    vocabulary: the tokens whose logits it computes (models/vocabulary.py); None means all.

    Raises:
        ModelError, TokenizerError: the file cannot be used, or its tokens differ from the target's.
        ConfigError: the vocabulary cannot be used.
    """
    file = gguf.read(catalog.resolve(name))
    tokenizer = Tokenizer.from_metadata(file.metadata)
    allowed = draftable_tokens(target, tokenizer)
    kept = None if vocabulary is None else kept_tokens(vocabulary, target, allowed)
    decoder = Decoder(file, ops, kept)
    _check_sizes(file, tokenizer, decoder)
    return decoder, allowed


def _check_sizes(file: GGUFFile, tokenizer: Tokenizer, decoder: Decoder) -> None:
    if tokenizer.vocab_size != decoder.vocab_size:
        raise ModelError(
            f"{file.path}: the tokenizer has {tokenizer.vocab_size} tokens, the embeddings {decoder.vocab_size}; "
            "the file is damaged, fetch it again"
        )
