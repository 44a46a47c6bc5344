"""Medusa heads as a proposer: what it drafts, and that drafts change nothing but the number of passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny
import tiny_drafters
from foredraft import LLM, SamplingParams, Speculation
from foredraft.core import Context
from foredraft.proposers.base import whole
from foredraft.proposers.medusa import MedusaProposer
from foredraft.sampling.noise import noise_key
from foredraft.sampling.sampler import choose

PROMPTS = ["abc the and", "xyz", "the and the and the in", "q"]
DRAFT_VOCAB = 96


@pytest.fixture
def made(tmp_path: Path):
    """A target with the proposer of random heads, which is right now and then."""
    target = tiny.write_tiny(tmp_path / "llama.gguf")
    heads = tiny_drafters.write_medusa(tmp_path / "heads", num_heads=3, draft_vocab=DRAFT_VOCAB)

    def make(**options) -> tuple[LLM, MedusaProposer]:
        llm = LLM(target, drafters=[heads], proposers=["medusa"], **options)
        return llm, llm.engine._drafting._proposers["medusa"]

    return make


def context_of(tokens: list[int], **changes) -> Context:
    return Context(id=1, tokens=tokens, prompt_len=3, params=SamplingParams(**changes), key=noise_key(5, 0))


def fed(proposer: MedusaProposer, tokens: list[int]) -> np.ndarray:
    """Show the proposer hidden states of all but the newest token; returns the newest."""
    features = np.random.default_rng(3).standard_normal((len(tokens) - 1, 64)).astype(np.float32)
    proposer.feed(1, 0, features[:2])
    proposer.feed(1, 2, features[2:])
    return features[-1:]


def test_a_draft_is_each_heads_best_token(made):
    proposer = made()[1]
    tokens = [5, 6, 7, 8, 9]
    logits = proposer._heads.logits(fed(proposer, tokens), 3)[:, 0]
    [draft] = proposer.propose([context_of(tokens)], [8])
    assert draft.tokens == tuple(proposer._heads.target_ids[logits.argmax(1)])
    assert draft.is_chain
    assert draft.probs is None
    assert len(draft.grades) == 3
    [shorter] = proposer.propose([context_of(tokens)], [2])
    assert shorter == draft.cut(2)


def test_noise_is_the_targets_by_its_own_tokens(made):
    proposer = made()[1]
    tokens = [5, 6, 7, 8, 9]
    logits = proposer._heads.logits(fed(proposer, tokens), 3)[:, 0]
    context = context_of(tokens, temperature=1.5)
    [draft] = proposer.propose([context], [3])
    for depth, row in enumerate(logits):
        spread = np.full(288, -np.inf, np.float32)
        spread[proposer._heads.target_ids] = row
        assert draft.tokens[depth] == choose(spread, 1.5, context.key, len(tokens) + depth)


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_nothing_is_drawn_where_laws_count(made, rule):
    proposer = made()[1]
    tokens = [5, 6, 7, 8, 9]
    logits = proposer._heads.logits(fed(proposer, tokens), 3)[:, 0]
    context = context_of(tokens, temperature=0.7)
    context.rule = rule
    [draft] = proposer.propose([context], [3])
    assert draft.tokens == tuple(proposer._heads.target_ids[logits.argmax(1)])
    assert draft.probs is None
    assert draft.is_chain


def test_drafts_end_where_they_are_not_to_go_on(made):
    proposer = made()[1]
    tokens = [5, 6, 7, 8, 9]
    fed(proposer, tokens)
    seen = []

    def goes_on(paths):
        seen.append(dict(paths))
        return [number for number, [path] in paths.items() if len(path) < 2]

    [draft] = proposer.propose_while([context_of(tokens)], [3], goes_on)
    assert len(draft.tokens) == 2
    assert [len(paths[0][0]) for paths in seen] == [1, 2]


def test_nothing_is_drafted_from_an_older_hidden_state(made):
    proposer = made()[1]
    fed(proposer, [5, 6, 7, 8])
    assert proposer.propose_while([context_of([5, 6, 7, 8, 9])], [3], whole) == [None]
    proposer.feed(1, 3, np.ones((1, 64), np.float32))
    assert proposer.propose([context_of([5, 6, 7, 8, 9])], [3]) != [None]
    proposer.release(1)
    assert proposer.propose([context_of([5, 6, 7, 8, 9])], [3]) == [None]


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_drafts_change_no_byte(made, temperature):
    params = [
        SamplingParams(max_tokens=40, ignore_eos=True, temperature=temperature, seed=n, repetition_penalty=1.1)
        for n in range(len(PROMPTS))
    ]
    llm, proposer = made()
    plain = llm.generate(PROMPTS, params, Speculation(mode="off"))
    for options in ({}, {"max_sequences": 2}, {"prefix_cache": False}, {"kv_memory": 400_000, "max_sequences": 4}):
        llm, proposer = made(**options)
        for _ in range(2):  # the second time prompts are found in the prefix cache
            drafted = llm.generate(PROMPTS, params, Speculation(mode="on", k=3))
            assert [each.token_ids for each in drafted] == [each.token_ids for each in plain]
            assert sum(each.stats.num_drafts_by_proposer["medusa"] for each in drafted) > 50
        assert not proposer._newest, "all state is dropped in the end"


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_other_rules_go_through(made, rule):
    llm, _ = made()
    params = SamplingParams(max_tokens=40, ignore_eos=True, temperature=1.0, seed=1)
    [result] = llm.generate("abc", params, Speculation(mode="on", k=3, rule=rule))
    assert len(result.token_ids) == 40
    assert result.stats.num_draft_tokens > 50


def test_a_tree_is_a_product_of_the_heads_best(made):
    proposer = made()[1]
    tokens = [5, 6, 7, 8, 9]
    logits = proposer._heads.logits(fed(proposer, tokens), 3)[:, 0]
    [draft] = proposer.propose_while([context_of(tokens)], [12], whole, [3])
    assert len(draft.tokens) == 12
    assert draft.probs is None
    depths = [len(draft.path(node)) - 1 for node in range(12)]
    assert set(depths) == {0, 1, 2}
    for depth in range(3):
        best = set(proposer._heads.target_ids[np.argsort(-logits[depth])[:3]])
        assert {token for token, at in zip(draft.tokens, depths, strict=True) if at == depth} <= best
