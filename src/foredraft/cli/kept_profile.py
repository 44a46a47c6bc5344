"""The profile of a model on this machine: as it was kept, or measured and kept now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foredraft.cli.files import write_json
from foredraft.cli.output import progress
from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from foredraft.core import IntArray
    from foredraft.governor.profile import Profile
    from foredraft.models.gguf import GGUFFile


def kept_or_measured(
    paths: Mapping[str, Path], threads: int | None, vocabulary: str | None = None, again: bool = False
) -> tuple[Profile, Path | None]:
    """The profile of these files (model, and draft if there is one), and where it was kept, None if it is new.

    vocabulary: that of the draft model, as --draft-vocabulary has it. again: measure even where one is kept.
    """
    from foredraft import _native, ops
    from foredraft.governor.profile import profile as measure
    from foredraft.governor.profile_cache import profile_path, read_profile
    from foredraft.models import gguf
    from foredraft.provenance import provenance

    files = {role: gguf.read(path) for role, path in paths.items()}
    op_set = ops.create("native", threads)
    num_threads, isa = _native.num_threads(), _native.isa()
    tokens = _draft_tokens(files, vocabulary)
    num_kept = None if tokens is None else len(tokens)
    kept = profile_path(paths, num_threads, isa, num_kept)
    found = None if again else read_profile(kept)
    if found:
        return found, kept
    source = provenance(paths, {"threads": num_threads, "isa": isa, "num_kept": num_kept})
    with progress() as bar:
        task = bar.add_task("", total=None)
        made = measure(files, op_set, num_threads, source, lambda what: bar.update(task, description=what), tokens)
    _keep(kept, made)
    return made, None


def _draft_tokens(files: Mapping[str, GGUFFile], vocabulary: str | None) -> IntArray | None:
    """The tokens whose logits the draft model computes; None: all."""
    if vocabulary is None:
        return None
    from foredraft.models.compatibility import draftable_tokens
    from foredraft.models.tokenizer import Tokenizer
    from foredraft.models.vocabulary import kept_tokens

    if "draft" not in files:
        raise ConfigError("--draft-vocabulary is of a draft model, and there is none; name one with --draft")
    target, draft = (Tokenizer.from_metadata(files[role].metadata) for role in ("model", "draft"))
    return kept_tokens(vocabulary, target, draftable_tokens(target, draft))


def _keep(path: Path, made: Profile) -> None:
    """A profile that cannot be kept is still worth having."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, made.as_dict())
    except (OSError, ConfigError) as error:
        click.echo(f"not kept for the next time: {error}", err=True)


def title(measured: Profile) -> str:
    """Which model on which machine, for tables and pictures."""
    source = measured.provenance
    threads, isa = source["options"]["threads"], source["options"]["isa"]
    return f"{source['models']['model']['file']}, {threads} thread{'s' * (threads > 1)}, {isa}"
