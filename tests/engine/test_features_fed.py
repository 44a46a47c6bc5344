"""Proposers that read the target's hidden states see those of every token once it is final, and of no other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny
from foredraft import LLM, SamplingParams, Speculation
from foredraft import proposers as registry
from foredraft.core import Context, Draft
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.proposers.base import Proposer

TAPS = (0, 1, 2)


class Reader(Proposer):
    """Drafts a tree of guesses, most of them wrong, and keeps what it is fed."""

    name = "reader"
    taps = TAPS

    def __init__(self) -> None:
        self.features: dict[int, dict[int, np.ndarray]] = {}
        self.contexts: dict[int, list[int]] = {}

    def propose(self, contexts, budgets):
        return [self._draft(context, budget) for context, budget in zip(contexts, budgets, strict=True)]

    def _draft(self, context: Context, budget: int) -> Draft:
        self.contexts[context.id] = context.tokens
        parents = (-1, -1, 0, 1)[:budget]
        return Draft("reader", tuple(context.tokens[-1:]) * len(parents), parents)

    def feed(self, context_id, start, features):
        own = self.features.setdefault(context_id, {})
        for position, row in enumerate(features, start):
            assert position not in own, "shown twice"
            own[position] = row.copy()


@pytest.fixture
def reader(monkeypatch):
    made = Reader()
    create = registry.create
    monkeypatch.setattr(
        registry, "create", lambda name, resources: made if name == "reader" else create(name, resources)
    )
    return made


@pytest.fixture
def tiny_path(tmp_path: Path) -> Path:
    return tiny.write_tiny(tmp_path / "llama.gguf")


def expected(decoder, tokens: list[int]) -> np.ndarray:
    kv = PagedKV(decoder.arch.num_layers, decoder.arch.num_kv_heads, decoder.arch.head_dim, num_pages=16)
    sequence = kv.open(tokens)
    assert kv.reserve(sequence, len(tokens))
    builder = BatchBuilder()
    builder.add(sequence, tokens)
    return decoder.forward_tapped(builder.build(), kv, TAPS)[1]


def test_features_are_those_of_the_final_tokens(reader, tiny_path):
    llm = LLM(tiny_path, proposers=["reader"], prefix_cache=False)
    llm.generate(["abc the and", "xyz"], SamplingParams(max_tokens=40, ignore_eos=True), Speculation(mode="on", k=4))
    assert len(reader.features) == 2
    for context_id, features in reader.features.items():
        tokens = reader.contexts[context_id]
        assert sorted(features) == list(range(len(tokens) - 1)), "all but the newest token"
        want = expected(llm.engine._target, tokens[:-1])
        np.testing.assert_array_equal(np.stack([features[i] for i in range(len(tokens) - 1)]), want)


def test_nobody_is_shown_anything_where_speculation_is_off(reader, tiny_path):
    llm = LLM(tiny_path, proposers=["reader"])
    llm.generate("abc", SamplingParams(max_tokens=8, ignore_eos=True), Speculation(mode="off"))
    assert not reader.features
