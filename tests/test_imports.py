"""Imports point one way, and siblings do not import each other (docs/architecture.md)."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import foredraft

ROOT = Path(foredraft.__file__).parent
# Lower layers first; a module may import from lower layers and from its own package.
LAYERS = (
    ("errors",),
    ("config",),
    ("core", "provenance", "steps", "theory", "worker"),
    ("ops",),
    ("kv", "sampling"),
    ("models",),
    ("drafters",),
    ("proposers", "verify", "governor", "constraints"),
    ("engine",),
    ("bench", "server", "train"),
    ("cli",),
    ("__main__",),
)
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FREE = {"_native"}  # the compiled extension imports nothing of ours


def imported_packages(path: Path) -> set[str]:
    """Top-level parts of foredraft that a file imports, anywhere in it; "" for public names but the version."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write it out"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for parts in (name.split(".") for name in names):
            if parts[0] == "foredraft" and parts[1:] != ["__version__"]:
                found.add(parts[1] if len(parts) > 1 and parts[1] in RANKS.keys() | FREE else "")
    return found


def files() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    relative = path.relative_to(ROOT)
    here = relative.parts[0].removesuffix(".py")
    assert here in RANKS, f"{here} has no layer; give it one in {Path(__file__).name}"
    wrong = [
        there
        for there in imported_packages(path)
        if there not in FREE and there != here and RANKS.get(there, len(LAYERS)) >= RANKS[here]
    ]
    assert not wrong, f"{relative} imports {', '.join(wrong)}, which is beside or above it"


def test_every_module_is_seen() -> None:
    assert {"config.py", "core.py", "errors.py", "theory.py"} <= {str(path.relative_to(ROOT)) for path in files()}
    assert imported_packages(ROOT / "core.py") == {"config", "errors"}


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import foredraft", {"torch", "llguidance", "matplotlib", "tokenizers", "jinja2", "huggingface_hub", "rich"}),
        ("import foredraft.engine.llm", {"llguidance", "matplotlib"}),
        (
            "import foredraft.cli.main",
            {"numpy", "torch", "matplotlib", "tokenizers", "jinja2", "huggingface_hub", "fastapi", "uvicorn"},
        ),
    ],
)
def test_imports_are_light(statement: str, unwanted: set[str]) -> None:
    code = f"import sys; {statement}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not unwanted & set(loaded)
