"""Loading what a request is answered with: the target, a draft model, and learned drafters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foredraft.drafters import loading as drafter_loading
from foredraft.drafters.loading import Drafter
from foredraft.errors import ConfigError, ModelError
from foredraft.kv.cache import PagedKV
from foredraft.models import catalog, gguf
from foredraft.models.architecture import Architecture
from foredraft.models.compatibility import draftable_tokens
from foredraft.models.decoder import Decoder
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops.base import Ops
from foredraft.proposers.base import DraftModel, LoadedDrafter, Resources

Shape = tuple[int, int, int]  # layers, KV heads and their size: what a cache of keys and values needs to know


class Models:
    """Everything that runs, loaded for one op set.

    files: by role: "model", and where there is one "draft" and "drafter KIND".

    Raises:
        ModelError, TokenizerError: a file cannot be used, or is not for this target.
        ConfigError: two drafters of one kind.
    """

    def __init__(
        self, model: str | Path, draft: str | Path | None, drafters: Sequence[str | Path], op_set: Ops
    ) -> None:
        self.files = {"model": catalog.resolve(model)}
        self.target, self.tokenizer, self.chat_template = _load(self.files["model"], op_set)
        self.draft: Decoder | None = None
        if draft is not None:
            self.files["draft"] = catalog.resolve(draft)
            self.draft, draft_tokenizer, _ = _load(self.files["draft"], op_set)
            self._draftable = draftable_tokens(self.tokenizer, draft_tokenizer)
        self.drafters: dict[str, Drafter] = {}
        for name in drafters:
            path = catalog.resolve(name)
            drafter = drafter_loading.load(path, self.target, self.tokenizer)
            role = f"drafter {drafter.kind}"
            if role in self.files:
                raise ConfigError(
                    f"{self.files[role]} and {path} are both of kind {drafter.kind}; give one of each kind"
                )
            self.files[role], self.drafters[drafter.kind] = path, drafter

    @property
    def proposers(self) -> tuple[str, ...]:
        """Who drafts where nothing else is said, in order."""
        return ("lookup", *self.drafters, *(("draft_model",) if self.draft else ()))

    @property
    def page_bytes(self) -> int:
        """Of a page of every cache of keys and values."""
        shapes = [_shape(self.target.arch)]
        if self.draft:
            shapes.append(_shape(self.draft.arch))
        shapes += [drafter.kv_shape for drafter in self.drafters.values() if drafter.kv_shape]
        return sum(PagedKV.page_bytes(*shape) for shape in shapes)

    def resources(self, num_pages: int, share_prefixes: bool) -> tuple[PagedKV, Resources]:
        """The target's cache of keys and values, and what proposers are built from; caches of `num_pages` each."""

        def cache(shape: Shape) -> PagedKV:
            return PagedKV(*shape, num_pages, share_prefixes=share_prefixes)

        draft = DraftModel(self.draft, cache(_shape(self.draft.arch)), self._draftable) if self.draft else None
        drafters = {
            kind: LoadedDrafter(drafter, cache(drafter.kv_shape) if drafter.kv_shape else None)
            for kind, drafter in self.drafters.items()
        }
        resources = Resources(self.target, self.tokenizer.eos_ids, draft, drafters)
        return cache(_shape(self.target.arch)), resources


def _load(path: Path, op_set: Ops) -> tuple[Decoder, Tokenizer, str | None]:
    file = gguf.read(path)
    tokenizer = Tokenizer.from_metadata(file.metadata)
    decoder = Decoder(file, op_set)
    if tokenizer.vocab_size != decoder.vocab_size:
        raise ModelError(
            f"{file.path}: the tokenizer has {tokenizer.vocab_size} tokens, the embeddings {decoder.vocab_size}; "
            "the file is damaged, fetch it again"
        )
    return decoder, tokenizer, file.metadata.get("tokenizer.chat_template")


def _shape(arch: Architecture) -> Shape:
    return (arch.num_layers, arch.num_kv_heads, arch.head_dim)
