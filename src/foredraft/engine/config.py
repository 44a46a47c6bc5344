"""What a model is loaded with: the section [model] of a configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foredraft.config import check, option


@dataclass(frozen=True)
class ModelConfig:
    """Arguments of `LLM`, which checks what depends on the model or the machine."""

    target: str | None = option(None, "The model to serve: a catalog name (`foredraft pull --list`) or a GGUF file.")
    draft: str | None = option(None, "A smaller model with the same tokenizer, to draft with.")
    draft_vocabulary: str | None = option(
        None,
        "Tokens that the draft model drafts from, beside those of the context: so many of the lowest ids, or those of "
        "a file that `foredraft train vocabulary` made; not set: all.",
    )
    drafters: tuple[str, ...] = option(
        (), "Learned drafters for the target: GGUF files or directories (docs/drafters.md)."
    )
    context_length: int | None = option(
        None, "Longest prompt plus answer, in tokens; not set: the model's own, up to 8192.", minimum=2
    )
    max_sequences: int = option(16, "Answers that are written at once; more wait.", minimum=1, maximum=1024)
    kv_memory_mib: int | None = option(
        None,
        "Memory for the keys and values of all models; not set: what is needed, up to a quarter of the free memory.",
        minimum=1,
    )
    threads: int | None = option(None, "Threads to compute with; not set: one per core.", minimum=1, maximum=256)
    prefix_cache: bool = option(True, "Keep what was computed for a prompt, for others that begin alike.")

    suffix_memory_mib: int = option(
        64, "Memory for past outputs, of all pools that share them (share_outputs).", minimum=1, maximum=1 << 20
    )
    suffix_directory: Path | None = option(
        None,
        "Where past outputs are kept across restarts, in a file that only its owner may read; not set: nowhere. Each "
        "model needs a directory of its own.",
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def arguments(self) -> dict[str, Any]:
        """Those keyword arguments of `LLM` that are set here; the models themselves come before them."""
        return {
            "draft_vocabulary": self.draft_vocabulary,
            "drafters": self.drafters,
            "context_length": self.context_length,
            "max_sequences": self.max_sequences,
            "kv_memory": None if self.kv_memory_mib is None else self.kv_memory_mib << 20,
            "threads": self.threads,
            "prefix_cache": self.prefix_cache,
            "suffix_memory": self.suffix_memory_mib << 20,
            "suffix_directory": self.suffix_directory,
        }
