"""The promise on a real model: bytes do not depend on speculation or on who else is in the batch."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny
import tiny_drafters
from foredraft.core import SamplingParams, Speculation, SpeculationStats
from foredraft.engine.llm import LLM

SENTENCE = "The old lighthouse stood on the rocks, and its lamp had not been lit for years."
PROMPTS = [
    f"<|im_start|>user\nRepeat this text exactly: {SENTENCE}<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite three words about rain.<|im_end|>\n<|im_start|>assistant\n",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "red, green, blue, " * 5,
]


def texts(llm: LLM, temperature: float, speculation: Speculation, prompts: list[str]) -> list[tuple[str, list[int]]]:
    params = SamplingParams(temperature=temperature, top_p=0.95, max_tokens=20, seed=11)
    return [(result.text, result.token_ids) for result in llm.generate(prompts, params, speculation)]


def test_lookup_and_batching_change_no_byte(smollm2):
    llm = LLM(smollm2, context_length=512, kv_memory=64 << 20)
    lookup, stats = Speculation("on", 6, ("lookup",)), SpeculationStats()
    for temperature in (0.0, 0.7, 1.0):
        alone = [texts(llm, temperature, Speculation("off"), [prompt])[0] for prompt in PROMPTS]
        assert texts(llm, temperature, Speculation("off"), PROMPTS) == alone
        assert texts(llm, temperature, lookup, PROMPTS * 2) == alone * 2
        params = SamplingParams(temperature=temperature, top_p=0.95, max_tokens=20, seed=11)
        for prompt, expected in zip(PROMPTS, alone, strict=True):
            result = llm.generate(prompt, params, lookup)[0]
            assert (result.text, result.token_ids) == expected
            stats.add(result.stats)
    assert stats.num_accepted > 20


def test_a_prediction_saves_steps_on_an_edit(smollm2):
    llm = LLM(smollm2, context_length=512, kv_memory=64 << 20)
    prompt, params = PROMPTS[0], SamplingParams(max_tokens=40)
    plain = llm.generate(prompt, params, Speculation("off"))[0]
    edited = plain.text.replace("lighthouse", "old tower").replace(" its lamp", " the lamp")
    assert edited != plain.text
    found = llm.generate(prompt, params, Speculation("on", 8, ()), prediction=edited)[0]
    assert found.text == plain.text
    stats = found.stats
    assert stats.num_accepted_by_proposer["prediction"] > stats.num_tokens / 2
    assert stats.tokens_per_step > 2.5


@pytest.mark.parametrize("width", [3])
def test_trees_of_a_draft_model_change_no_byte(smollm2, width):
    """The model drafts for itself, so that long paths of trees are kept, in both caches."""
    llm = LLM(smollm2, smollm2, context_length=512, kv_memory=128 << 20)
    trees = Speculation("on", 7, ("draft_model",), tree_width=width)
    for temperature in (0.0, 0.9):
        plain = texts(llm, temperature, Speculation("off"), PROMPTS)
        assert texts(llm, temperature, trees, PROMPTS) == plain
        [result] = llm.generate(PROMPTS[0], SamplingParams(temperature=temperature, seed=1, max_tokens=20), trees)
        assert result.stats.tokens_per_step > 2.5


@pytest.mark.models
def test_a_head_with_random_weights_changes_no_byte(smollm2, tmp_path):
    model = tiny.TinyModel(hidden=576, vocab_size=49152)
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "head_dim": 64}
    sizes |= {"num_key_value_heads": 3, "taps": [2, 15, 27]}
    head = tiny_drafters.write_eagle3(tmp_path / "head", model, draft_vocab=4096, **sizes)
    llm = LLM(smollm2, drafters=[head], context_length=512, kv_memory=128 << 20)
    for temperature in (0.0, 0.9):
        plain = texts(llm, temperature, Speculation("off"), PROMPTS)
        for width in (1, 3):
            assert texts(llm, temperature, Speculation("on", 6, ("eagle3",), tree_width=width), PROMPTS) == plain


@pytest.mark.models
@pytest.mark.parametrize("vocabulary", [None, 4096])
def test_a_draft_model_changes_no_byte(qwen, qwen_small, vocabulary):
    llm = LLM(qwen, qwen_small, draft_vocabulary=vocabulary, context_length=512, kv_memory=256 << 20)
    for temperature in (0.0, 0.8):
        plain = texts(llm, temperature, Speculation("off"), PROMPTS[:2])
        assert texts(llm, temperature, Speculation("on", 3, ("draft_model",)), PROMPTS[:2]) == plain
        assert texts(llm, temperature, Speculation("on", 8, ("draft_model",), tree_width=3), PROMPTS[:2]) == plain


HEADS = Path(__file__).parents[2] / "drafters" / "smollm2-135m-medusa.gguf"


def test_the_medusa_heads_that_come_along_change_no_byte(smollm2):
    """And are right now and then."""
    llm = LLM(smollm2, drafters=[HEADS], context_length=512, kv_memory=64 << 20)
    stats = SpeculationStats()
    for temperature in (0.0, 0.7):
        params = SamplingParams(temperature=temperature, max_tokens=32, seed=11)
        plain = llm.generate(PROMPTS, params, Speculation("off"))
        for width in (1, 3):
            drafts = Speculation("on", 3 * width, ("medusa",), tree_width=width)
            found = llm.generate(PROMPTS, params, drafts)
            assert [each.token_ids for each in found] == [each.token_ids for each in plain]
            for each in found:
                stats.add(each.stats)
    assert stats.num_accepted > 0.08 * stats.num_tokens
