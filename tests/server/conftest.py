"""Servers that tests share: a tiny model for how requests are handled, SmolLM2 for what real clients see."""

from collections.abc import Iterator

import pytest

import tiny
from foredraft.engine.llm import LLM
from serving import Served, serving


@pytest.fixture(scope="module")
def tiny_llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path = tiny.write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf")
    return LLM(path, context_length=512, max_sequences=4, threads=1)


@pytest.fixture(scope="module")
def served(tiny_llm: LLM) -> Iterator[Served]:
    with serving(tiny_llm, max_queue=4, max_body_bytes=100_000) as server:
        yield server


@pytest.fixture(scope="module")
def offline(smollm2) -> LLM:
    return LLM(smollm2, context_length=1024, max_sequences=8, threads=1)


@pytest.fixture(scope="module")
def served_smollm2(smollm2) -> Iterator[Served]:
    llm = LLM(smollm2, context_length=1024, max_sequences=8, threads=1)
    with serving(llm) as server:
        yield server
