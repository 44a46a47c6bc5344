"""Where profiles are kept, so that a model is measured once on a machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from foredraft import __version__
from foredraft.governor.profile import Profile
from foredraft.provenance import identity, machine

FOLDER = Path("~/.cache/foredraft/profiles")


def profile_path(models: Mapping[str, Path], threads: int, isa: str, num_kept: int | None = None) -> Path:
    """The file in ~/.cache/foredraft/profiles for these models (role to file), this machine and this version.

    Model files are told apart by name, size and their first MiB; threads and instruction set are part of the machine.
    num_kept: how many tokens the draft model keeps of its vocabulary; None: all. Which ones costs nothing.
    """
    measured = {
        "foredraft": __version__,
        "models": {role: identity(path) for role, path in models.items()},
        "machine": machine(),
        "threads": threads,
        "isa": isa,
        "num_kept": num_kept,
    }
    key = hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()[:24]
    return FOLDER.expanduser() / f"{key}.json"


def read_profile(path: Path) -> Profile | None:
    """The profile kept at `path`; None where there is none that can be read."""
    try:
        return Profile.from_dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None
