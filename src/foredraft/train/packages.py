"""Excerpts of installed Python packages: functions, classes and paragraphs of docs, each with its license."""

from __future__ import annotations

import ast
import random
import re
import sys
import sysconfig
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path

CODE_CHARS = (150, 1300)
DOCS_CHARS = (250, 1200)
MOST_OF_FILE = 4  # so that no package has too much of a say
# What an excerpt may be licensed under: its words go into prompts.
_FREE = re.compile(r"\b(MIT|BSD|Apache|PSF|Python Software Foundation|ISC|MPL)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Excerpt:
    """A piece of a package. kind: "code" or "docs". name, doc: of the function or class; "" where there is none."""

    kind: str
    text: str
    source: str
    license: str
    name: str = ""
    doc: str = ""


def excerpts(rng: random.Random) -> Iterator[Excerpt]:
    """Excerpts of all packages under a free license, file by file in a random order."""
    files = sorted(_files())
    rng.shuffle(files)
    for path, source, license in files:
        found = list(_of_file(Path(path), source, license))
        yield from rng.sample(found, min(MOST_OF_FILE, len(found)))


@cache
def _files() -> tuple[tuple[str, str, str], ...]:
    """Python files as (path, package, license): those of the standard library and of the installed packages."""
    library = Path(sysconfig.get_paths()["stdlib"])
    version = f"Python {sys.version_info.major}.{sys.version_info.minor} library"
    found = [(str(path), version, "PSF-2.0") for path in library.rglob("*.py") if "site-packages" not in path.parts]
    for package in distributions():
        license = _license(package)
        if license:
            own = (file for file in package.files or () if file.suffix == ".py")
            found += [(str(package.locate_file(file)), package.name, license) for file in own]
    return tuple(entry for entry in found if not re.search(r"[\\/](tests?|idlelib|_vendor|encodings)[\\/]", entry[0]))


def _license(package: Distribution) -> str:
    """A package's license if it says one that is free, else ""."""
    about = package.metadata
    said = [text for key in ("License-Expression", "Classifier", "License") for text in about.get_all(key, [])]
    return next((line.split("::")[-1].strip()[:60] for line in said if line and _FREE.search(line[:200])), "")


def _of_file(path: Path, source: str, license: str) -> Iterator[Excerpt]:
    try:
        text = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other people's code
            tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return
    lines = text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            continue
        doc = ast.get_docstring(node) or ""
        if DOCS_CHARS[0] <= len(doc) <= DOCS_CHARS[1]:
            yield Excerpt("docs", doc, source, license)
        if isinstance(node, ast.Module):
            continue
        code = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
        if CODE_CHARS[0] <= len(code) <= CODE_CHARS[1] and code.count("\n") >= 3:
            yield Excerpt("code", code, source, license, node.name, doc)
