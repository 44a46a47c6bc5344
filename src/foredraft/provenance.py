"""Where a result comes from: machine, versions, model files, options."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foredraft import __version__

CPU_FLAGS = (
    "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_int8",
    "asimd", "asimddp", "i8mm", "sve",
)  # fmt: skip
HASHED_BYTES = 1 << 20


def provenance(models: Mapping[str, Path], options: Mapping[str, Any]) -> dict[str, Any]:
    """All that is needed to judge or repeat a run. `models` maps a role (target, draft) to the file that was used."""
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "foredraft": __version__,
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        **machine(),
        "models": {role: identity(path) for role, path in models.items()},
        "options": dict(options),
    }


def identity(path: Path) -> dict[str, Any]:
    """What tells a model file, or a directory of files, from others without reading all of it."""
    files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
    head = hashlib.sha256()
    for each in files:
        with each.open("rb") as file:
            head.update(file.read(HASHED_BYTES))
    size = sum(each.stat().st_size for each in files)
    return {"file": path.name, "size": size, "sha256_of_first_mib": head.hexdigest()}


def machine() -> dict[str, Any]:
    """The processor, as far as speeds depend on it."""
    info = Path("/proc/cpuinfo")
    fields: dict[str, str] = {}
    if info.exists():
        for line in info.read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    return {
        "cpu": fields.get("model name") or platform.processor() or platform.machine(),
        # Virtual machines call many processors by one name; these numbers tell them apart.
        "cpu_family_model": f"{fields['cpu family']}/{fields['model']}" if "cpu family" in fields else None,
        "cpu_flags": [flag for flag in CPU_FLAGS if flag in flags],
        "cores": os.cpu_count(),
    }


def _git_commit() -> str | None:
    """The commit of the checkout that this code runs from, marked when changed; None for an installed package."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
