"""MTP blocks as proposers: one in the target's own file is there without being asked for, and drafts change no byte."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
import tiny_drafters
from foredraft import LLM, SamplingParams, Speculation
from foredraft.core import SpeculationStats
from foredraft.errors import ConfigError, ModelError
from gguf_writer import write_gguf

PROMPTS = ["abc the and", "xyz", "the and the and the in", "q"]


@pytest.fixture
def with_block(tmp_path: Path) -> Path:
    return tiny.write_tiny(tmp_path / "with.gguf", tiny.QWEN3, has_mtp=True)


@pytest.fixture
def without(tmp_path: Path) -> Path:
    return tiny.write_tiny(tmp_path / "without.gguf", tiny.QWEN3)


def test_the_targets_own_block_drafts_by_itself(with_block):
    llm = LLM(with_block)
    assert llm.proposers == ("suffix", "lookup", "mtp")
    assert set(llm.files) == {"model"}
    [result] = llm.generate(
        "xyz", SamplingParams(max_tokens=30, ignore_eos=True), Speculation(mode="on", k=3, proposers=("mtp",))
    )
    assert result.stats.num_drafts_by_proposer["mtp"] > 5


def test_a_given_block_comes_before_the_targets_own(with_block, tmp_path):
    config, weights = tiny_drafters.mtp(tiny.QWEN3)
    path = tiny_drafters.write_file(tmp_path / "mtp.gguf", "mtp", config, weights)
    llm = LLM(with_block, drafters=[path])
    assert llm.proposers == ("suffix", "lookup", "mtp")
    assert llm.files["drafter mtp"] == path


def test_without_a_block_there_is_nothing_to_ask(without):
    with pytest.raises(ConfigError, match="proposer mtp needs a drafter of this kind"):
        LLM(without, proposers=["mtp"])


def test_a_block_that_cannot_be_used_is_said_when_the_model_is_loaded(tmp_path):
    model = tiny.TinyModel("qwen3", has_mtp=True)
    tensors = [tensor for tensor in tiny.tensors(model) if not tensor.name.endswith("eh_proj.weight")]
    path = write_gguf(tmp_path / "broken.gguf", tiny.metadata(model), tensors)
    with pytest.raises(ModelError, match=r"nextn\.eh_proj\.weight is missing"):
        LLM(path)


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_drafts_change_no_byte(with_block, without, temperature):
    """Nor does the block's being there."""
    params = [
        SamplingParams(max_tokens=40, ignore_eos=True, temperature=temperature, seed=n, frequency_penalty=0.3)
        for n in range(len(PROMPTS))
    ]
    plain = LLM(without).generate(PROMPTS, params, Speculation(mode="off"))
    for options in ({}, {"max_sequences": 2}, {"prefix_cache": False}, {"kv_memory": 300_000}):
        llm = LLM(with_block, **options)
        for _ in range(2):  # the second time prompts are found in the prefix cache
            drafted = llm.generate(PROMPTS, params, Speculation(mode="on", k=3, proposers=("mtp",)))
            assert [each.token_ids for each in drafted] == [each.token_ids for each in plain]
            assert sum(each.stats.num_drafts_by_proposer["mtp"] for each in drafted) > 50


TRAINED = Path(__file__).parents[1] / "data" / "tiny_mtp.gguf"  # see make_tiny_mtp.py
TEXTS = ["Ann ", "count: 7", "for x in", '{"name": "Eva"', "12 + "]


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_a_trained_block_is_right_most_of_the_time(temperature):
    """Where it goes on from its own hidden states too; and the text is what it is without."""
    llm = LLM(TRAINED)
    params = [SamplingParams(max_tokens=80, temperature=temperature, seed=n) for n in range(len(TEXTS))]
    plain = llm.generate(TEXTS, params, Speculation(mode="off"))
    drafted = llm.generate(TEXTS, params, Speculation(mode="on", k=4, proposers=("mtp",)))
    assert [each.token_ids for each in drafted] == [each.token_ids for each in plain]
    total = SpeculationStats()
    for each in drafted:
        total.add(each.stats)
    assert total.alpha > 0.75
    assert total.accepted_per_position[3] > 0.4 * total.num_drafts
    assert total.num_steps < 0.5 * total.num_tokens


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_trained_block_under_other_rules(rule):
    params = SamplingParams(max_tokens=80, temperature=0.7, seed=3)
    results = LLM(TRAINED).generate(TEXTS, params, Speculation(mode="on", k=4, proposers=("mtp",), rule=rule))
    assert sum(each.stats.num_accepted for each in results) > 0.5 * sum(each.stats.num_tokens for each in results)


def test_trees_of_a_trained_block():
    llm, params = LLM(TRAINED), SamplingParams(max_tokens=80)
    plain = llm.generate(TEXTS, params, Speculation(mode="off"))
    trees = llm.generate(TEXTS, params, Speculation(mode="on", k=8, proposers=("mtp",), tree_width=3))
    assert [each.token_ids for each in trees] == [each.token_ids for each in plain]
    assert sum(each.stats.num_accepted for each in trees) > 0.6 * sum(each.stats.num_tokens for each in trees)
