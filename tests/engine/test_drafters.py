"""Learned drafters in the engine: with them the bytes are what they are without, and heads that know are believed."""

from __future__ import annotations

import pytest

import tiny
import tiny_drafters
from foredraft import LLM, SamplingParams, Speculation
from foredraft.errors import ConfigError, ModelError

OFF = Speculation("off")
PROMPTS = ["the cat and the dog and the cat and", "in the end", "a b a b a b a b " * 12, "and on and on and on"]
MIB = 1 << 20


def heads(folder):
    return [tiny_drafters.write_eagle3(folder / "eagle3"), tiny_drafters.write_eagle(folder / "eagle")]


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drafters")
    with LLM(tiny.write_tiny(folder / "target.gguf"), drafters=heads(folder), threads=1) as llm:
        yield llm


@pytest.fixture(scope="module")
def knowing(tmp_path_factory):
    target, head = tiny_drafters.write_knowing(tmp_path_factory.mktemp("knowing"))
    with LLM(target, drafters=[head], threads=1) as llm:
        yield llm


def test_drafters_come_between_lookup_and_the_draft_model(llm):
    assert llm.proposers == ("suffix", "lookup", "eagle3", "eagle")
    assert [path.name for path in llm.files.values()] == ["target.gguf", "eagle3", "eagle"]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_no_byte_is_changed(llm, temperature):
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=30, ignore_eos=True, repetition_penalty=1.1)
    alone = [llm.generate(prompt, params, OFF)[0].token_ids for prompt in PROMPTS]
    for name in ("eagle3", "eagle"):
        for width in (1, 3):
            speculation = Speculation("on", 5, (name,), tree_width=width)
            results = llm.generate(PROMPTS * 2, params, speculation)
            assert [result.token_ids for result in results] == alone * 2
            assert sum(result.stats.num_drafts for result in results) > 100
            if temperature == 0:
                speculation = Speculation("on", 5, (name,), "rejection", tree_width=width)
                assert [r.token_ids for r in llm.generate(PROMPTS, params, speculation)] == alone
    results = llm.generate(PROMPTS, params, Speculation("auto"))
    assert [result.token_ids for result in results] == alone


def test_heads_that_know_are_right_about_every_token(knowing):
    """Each row is paired with the right feature and the right token, also behind what a cache had, and in batches."""
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    plain = knowing.generate(PROMPTS, params, OFF)
    for _ in range(2):
        results = knowing.generate(PROMPTS, params, Speculation("on", 4, ("eagle",)))
        assert [result.token_ids for result in results] == [result.token_ids for result in plain]
        for result in results:
            assert result.stats.alpha == 1.0
            assert result.stats.tokens_per_step > 4
    assert results[2].num_cached_tokens >= 32


@pytest.mark.parametrize("width", [1, 3])
def test_noise_is_shared_with_the_target(knowing, width):
    """At temperature 1 nearly every token is right, which it could not be with noise of its own."""
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=40, ignore_eos=True)
    results = knowing.generate(PROMPTS, params, Speculation("on", 4, ("eagle",), tree_width=width))
    assert [r.token_ids for r in results] == [r.token_ids for r in knowing.generate(PROMPTS, params, OFF)]
    assert sum(r.stats.num_accepted for r in results) > 0.5 * sum(r.stats.num_draft_tokens for r in results)


def test_sequences_that_give_way_come_back(tmp_path):
    target, head = tiny_drafters.write_knowing(tmp_path)
    with LLM(target, drafters=[head], context_length=128, kv_memory=1 * MIB // 8, threads=1) as small:
        params = SamplingParams(max_tokens=80, ignore_eos=True)
        results = small.generate(PROMPTS[:2] * 3, params, Speculation("on", 4, ("eagle",)))
        assert small.engine.scheduler.num_preemptions > 0
        assert all(result.stats.num_accepted > 40 for result in results)
        plain = small.generate(PROMPTS[:2] * 3, params, OFF)
        assert [result.token_ids for result in results] == [result.token_ids for result in plain]
        kv = small.engine._drafting._proposers["eagle"]._kv
        assert kv.num_available_pages == kv.num_pages, "every page is back"


def test_memory_is_shared_with_the_heads(llm, tmp_path):
    target = tiny.write_tiny(tmp_path / "target.gguf")
    with LLM(target, kv_memory=MIB, max_sequences=1000) as alone:
        assert alone.capacity // 32 == MIB // (2 * 2 * 2 * 32 * 32 * 2)
    with LLM(target, drafters=heads(tmp_path), kv_memory=MIB, max_sequences=1000) as shared:
        assert shared.capacity // 32 == MIB // (2 * 2 * 2 * 32 * 32 * 2 + 2 * (2 * 2 * 16 * 32 * 2))


def test_refusals(tmp_path):
    target, head = tiny.write_tiny(tmp_path / "target.gguf"), tiny_drafters.write_eagle3(tmp_path / "head")
    with pytest.raises(ConfigError, match="are both of kind eagle3; give one of a kind"):
        LLM(target, drafters=[head, head])
    with pytest.raises(ModelError, match="neither a file nor a known model"):
        LLM(target, drafters=[tmp_path / "nothing"])
    with pytest.raises(ModelError, match="whose vocab_size is 288; this target's is 300"):
        LLM(tiny.write_tiny(tmp_path / "other.gguf", vocab_size=300), drafters=[head])
    with pytest.raises(ConfigError, match="proposer eagle3 needs a drafter"):
        LLM(target, proposers=["eagle3"])
