"""Training data of a tiny target, made by the command itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
from foredraft.train.collect import Collector
from training import asked


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_tiny(tmp_path_factory.mktemp("target") / "llama.gguf", num_layers=4)


@pytest.fixture(scope="session")
def data(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 answers of up to 24 tokens."""
    folder = tmp_path_factory.mktemp("data")
    Collector(str(target), folder, max_tokens=24, concurrency=8).run(asked(60), None, lambda progress: None)
    return folder
