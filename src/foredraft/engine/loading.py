"""Loading what runs: a target with its tokenizer, a draft model that speaks the target's tokens, and drafters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foredraft.drafters import loading as drafter_loading
from foredraft.drafters import mtp
from foredraft.drafters.loading import Drafter, KVShape
from foredraft.errors import ConfigError, ModelError
from foredraft.kv.cache import PagedKV
from foredraft.models import catalog, gguf
from foredraft.models.compatibility import draftable_tokens
from foredraft.models.decoder import Decoder
from foredraft.models.gguf import GGUFFile
from foredraft.models.tokenizer import Tokenizer
from foredraft.models.vocabulary import Vocabulary, kept_tokens
from foredraft.ops.base import Ops
from foredraft.proposers import FREE
from foredraft.proposers.base import DraftModel, LoadedDrafter, Resources
from foredraft.proposers.suffix_memory import SuffixMemory


class Models:
    """The target, and what drafts for it, loaded for one op set.

    files: by role: "model", and where there is one "draft" and "drafter KIND". drafters: by kind.
    """

    def __init__(
        self,
        model: str | Path,
        draft: str | Path | None,
        draft_vocabulary: Vocabulary | None,
        drafters: Sequence[str | Path],
        ops: Ops,
    ) -> None:
        """See `LLM` for arguments and errors."""
        if draft is None and draft_vocabulary is not None:
            raise ConfigError("draft_vocabulary is of a draft model, and there is none; name one with --draft")
        self.files = {"model": catalog.resolve(model)}
        self.target, self.tokenizer, self.chat_template = load_target(model, ops)
        self.draft: Decoder | None = None
        if draft is not None:
            self.files["draft"] = catalog.resolve(draft)
            self.draft, self._allowed = load_draft(draft, ops, self.tokenizer, draft_vocabulary)
        self.drafters: dict[str, Drafter] = {}
        for name in drafters:
            path = catalog.resolve(name)
            drafter = drafter_loading.load(path, self.target, self.tokenizer)
            role = f"drafter {drafter.kind}"
            if role in self.files:
                raise ConfigError(f"{self.files[role]} and {path} are both of kind {drafter.kind}; give one of a kind")
            self.files[role], self.drafters[drafter.kind] = path, drafter
        if "mtp" not in self.drafters and (block := mtp.of_target(self.target)):
            self.drafters["mtp"] = block

    @property
    def proposers(self) -> tuple[str, ...]:
        """Who drafts where nothing else is said, in order."""
        return (*FREE, *self.drafters, *(("draft_model",) if self.draft else ()))

    @property
    def page_bytes(self) -> int:
        """Of a page of every cache of keys and values."""
        shapes = [_kv_shape(decoder) for decoder in (self.target, self.draft) if decoder]
        shapes += [drafter.kv_shape for drafter in self.drafters.values() if drafter.kv_shape]
        return sum(PagedKV.page_bytes(*shape) for shape in shapes)

    def resources(self, num_pages: int, share_prefixes: bool, suffixes: SuffixMemory) -> tuple[PagedKV, Resources]:
        """The target's cache of keys and values, and what proposers are built from; all caches have `num_pages`."""

        def cache(shape: KVShape) -> PagedKV:
            return PagedKV(*shape, num_pages, share_prefixes=share_prefixes)

        draft = DraftModel(self.draft, cache(_kv_shape(self.draft)), self._allowed) if self.draft else None
        drafters = {
            kind: LoadedDrafter(drafter, cache(drafter.kv_shape) if drafter.kv_shape else None)
            for kind, drafter in self.drafters.items()
        }
        resources = Resources(self.target, self.tokenizer.eos_ids, draft, suffixes, drafters)
        return cache(_kv_shape(self.target)), resources


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


def _kv_shape(decoder: Decoder) -> KVShape:
    return (decoder.arch.num_layers, decoder.arch.num_kv_heads, decoder.arch.head_dim)
