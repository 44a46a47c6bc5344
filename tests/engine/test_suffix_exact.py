"""Suffix decoding in the engine: the text never depends on it, under any rule, in any batch."""

from __future__ import annotations

import pytest

import tiny
from foredraft.core import SamplingParams, Speculation, SpeculationStats
from foredraft.engine.llm import LLM
from foredraft.errors import ConfigError
from foredraft.governor.pools import PoolConfig
from foredraft.proposers.suffix_memory import Key

MIB = 1 << 20
PROMPTS = ["the cat and the dog and the cat and", "in the end", "a b a b a b a b", "and on and on and on and on and on"]
OFF = Speculation("off")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.write_tiny(tmp_path_factory.mktemp("tiny") / "llama.gguf")


def texts(llm, speculation, prompts, temperature=0.0, **options):
    params = SamplingParams(temperature=temperature, max_tokens=40, seed=3, ignore_eos=True)
    found = llm.generate(prompts, params, speculation, **options)
    return [(result.text, result.token_ids) for result in found], [result.stats for result in found]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_it_changes_no_byte(model, temperature):
    llm, stats = LLM(model, kv_memory=16 * MIB, proposers=["suffix"]), SpeculationStats()
    plain = [texts(llm, OFF, [prompt], temperature)[0][0] for prompt in PROMPTS]
    for speculation in (Speculation("on", 1), Speculation("on", 16), Speculation("auto")):
        for prompts in (PROMPTS[:1], PROMPTS, PROMPTS * 2):
            found, its = texts(llm, speculation, prompts, temperature)
            assert found == [plain[PROMPTS.index(prompt)] for prompt in prompts]
            for each in its:
                stats.add(each)
    assert stats.num_accepted_by_proposer["suffix"] >= 5
    assert stats.num_ended_by_rejection > 10


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_greedy_text_is_the_same_under_every_rule(model, rule):
    llm = LLM(model, kv_memory=16 * MIB, proposers=["suffix"])
    assert texts(llm, Speculation("on", 8, rule=rule), PROMPTS)[0] == texts(llm, OFF, PROMPTS)[0]


SHARING = {"default": PoolConfig(share_outputs=True)}


def sharing(model, **options):
    return LLM(model, kv_memory=16 * MIB, proposers=["suffix"], pools=SHARING, **options)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_past_outputs_change_no_byte(model, temperature):
    """However often the same is asked: the second time nearly all of it is known."""
    llm = sharing(model)
    plain = texts(llm, OFF, PROMPTS, temperature)[0]
    assert not llm.suffixes.stores  # nothing is remembered of requests that are off
    num_hits = [0]
    for _ in range(3):
        found, stats = texts(llm, Speculation("on", 8), PROMPTS, temperature)
        assert found == plain
        num_hits.append(llm.suffixes.num_hits["default"])
    assert num_hits[1] < 5 < num_hits[2] < num_hits[3]
    for each in stats:
        assert each.tokens_per_step > 2
    assert texts(llm, Speculation("auto"), PROMPTS * 2, temperature)[0] == plain * 2
    assert llm.suffixes.stores[Key("", "default")].num_hits > 10


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_past_outputs_keep_greedy_text_under_every_rule(model, rule):
    llm = sharing(model)
    plain = texts(llm, OFF, PROMPTS)[0]
    for _ in range(2):
        assert texts(llm, Speculation("on", 8, rule=rule), PROMPTS)[0] == plain
    assert llm.suffixes.num_accepted["default"] > 20


def test_nothing_is_shared_between_scopes_or_without_being_asked(model):
    llm = sharing(model)
    for scope in ("anna", "bert"):
        texts(llm, Speculation("on", 8), PROMPTS[:1], scope=scope)
    assert llm.suffixes.num_hits.total() == 0
    assert sorted(llm.suffixes.stores) == [Key("anna", "default"), Key("bert", "default")]
    alone = LLM(model, kv_memory=16 * MIB, proposers=["suffix"])
    for _ in range(2):
        texts(alone, Speculation("on", 8), PROMPTS)
    assert not alone.suffixes.stores


def test_only_what_came_to_its_end_is_remembered(model):
    llm = sharing(model)
    stream = llm.stream(PROMPTS[0], SamplingParams(max_tokens=40, ignore_eos=True), Speculation("on", 2))
    next(stream)
    stream.close()
    assert not llm.suffixes.stores
    texts(llm, Speculation("on", 2), PROMPTS[:1])
    [report] = llm.suffixes.report()
    assert report.num_texts == 1


def test_a_pool_that_stops_sharing_stops_at_once(model):
    llm = sharing(model)
    texts(llm, Speculation("on", 8), PROMPTS[:1])
    stream = llm.stream(PROMPTS[0], SamplingParams(max_tokens=40, ignore_eos=True), Speculation("on", 2))
    next(stream)
    llm.governor.pools["default"] = PoolConfig()
    before = llm.suffixes.num_hits.copy()
    assert len(list(stream)) == 39
    assert llm.suffixes.num_hits == before
    [report] = llm.suffixes.report()
    assert report.num_texts == 1


def test_past_outputs_are_there_after_a_restart(model, tmp_path):
    with sharing(model, suffix_directory=tmp_path) as llm:
        plain = texts(llm, Speculation("on", 8), PROMPTS)[0]
        num_hits = llm.suffixes.num_hits["default"]
    with sharing(model, suffix_directory=tmp_path) as llm:
        assert texts(llm, Speculation("on", 8), PROMPTS)[0] == plain
        assert llm.suffixes.num_hits["default"] > num_hits + 4


def test_sharing_without_suffix_is_refused(model):
    with pytest.raises(ConfigError, match=r"share_outputs is true.* loaded are lookup: load suffix too"):
        LLM(model, proposers=["lookup"], pools=SHARING)


@pytest.mark.models
def test_past_outputs_on_a_real_model(smollm2):
    prompt = "<|im_start|>user\nWrite a shell command that lists files.<|im_end|>\n<|im_start|>assistant\n"
    llm = LLM(smollm2, context_length=512, kv_memory=64 << 20, proposers=["suffix"], pools=SHARING)
    for temperature in (0.0, 0.8):
        plain = texts(llm, OFF, [prompt], temperature)[0]
        for _ in range(2):
            found, stats = texts(llm, Speculation("on", 8), [prompt], temperature)
            assert found == plain
        assert stats[0].tokens_per_step > 3
