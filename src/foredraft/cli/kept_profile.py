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
    from foredraft.governor.profile import Profile


def kept_or_measured(
    paths: Mapping[str, Path], threads: int | None, again: bool = False
) -> tuple[Profile, Path | None]:
    """The profile of these files (model, and draft if there is one), and where it was kept, None if it is new.

    again: measure even where one is kept.
    """
    from foredraft import _native, ops
    from foredraft.governor.profile import profile as measure
    from foredraft.governor.profile_cache import profile_path, read_profile
    from foredraft.models import gguf
    from foredraft.provenance import provenance

    files = {role: gguf.read(path) for role, path in paths.items()}
    op_set = ops.create("native", threads)
    num_threads, isa = _native.num_threads(), _native.isa()
    kept = profile_path(paths, num_threads, isa)
    found = None if again else read_profile(kept)
    if found:
        return found, kept
    source = provenance(paths, {"threads": num_threads, "isa": isa})
    with progress() as bar:
        task = bar.add_task("", total=None)
        made = measure(files, op_set, num_threads, source, lambda what: bar.update(task, description=what))
    _keep(kept, made)
    return made, None


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
