"""Suffix decoding in the engine: the text never depends on it, under any rule, in any batch."""

from __future__ import annotations

import pytest

import tiny
from foredraft.core import SamplingParams, Speculation, SpeculationStats
from foredraft.engine.llm import LLM

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
