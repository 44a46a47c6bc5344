"""`response_format` through the Python API: valid answers, the same with and without drafts, nothing left behind."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import tiny
from foredraft.constraints.matcher import Compiler, Matcher
from foredraft.core import SamplingParams, Speculation, SpeculationStats
from foredraft.engine.llm import LLM
from foredraft.errors import ConfigError, RequestError, UnavailableError

OFF, ON = Speculation("off"), Speculation("on", 6)
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1, "maxLength": 12},
        "kind": {"enum": ["poem", "story", "song"]},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2},
        "author": {"$ref": "#/$defs/author"},
    },
    "required": ["title", "kind", "stars", "tags", "author"],
    "additionalProperties": False,
    "$defs": {
        "author": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 8}, "alive": {"type": "boolean"}},
            "required": ["name", "alive"],
            "additionalProperties": False,
        }
    },
}
FORMAT = {"type": "json_schema", "schema": SCHEMA}
DIGITS = {"type": "regex", "regex": "[0-9]{4}"}
MIB = 1 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny.write_tiny(tmp_path_factory.mktemp("tiny") / "llama.gguf")


@pytest.fixture(scope="module")
def llm(model) -> LLM:
    return LLM(model, model, kv_memory=32 * MIB)


def outcomes(results: list[Any]) -> list[Any]:
    return [[(choice.text, choice.token_ids, choice.finish_reason) for choice in result.choices] for result in results]


def assert_valid(results: list[Any]) -> None:
    for result in results:
        for choice in result.choices:
            assert choice.finish_reason == "stop"
            jsonschema.validate(json.loads(choice.text), SCHEMA)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_are_valid_and_do_not_depend_on_drafts(llm, temperature):
    params = [SamplingParams(temperature=temperature, max_tokens=300, seed=seed) for seed in range(10)]
    prompts = ["the cat and the dog"] * 10
    plain = llm.generate(prompts, params, OFF, response_format=FORMAT)
    assert_valid(plain)
    stats = SpeculationStats()
    for how in (ON, Speculation("on", 3, ("draft_model",)), Speculation("on", 20, ("lookup", "grammar"))):
        drafted = llm.generate(prompts, params, how, response_format=FORMAT)
        assert outcomes(drafted) == outcomes(plain)
        for result in drafted:
            stats.add(result.stats)
    assert set(stats.num_drafts_by_proposer) >= {"grammar", "draft_model"}
    assert stats.num_accepted > 300


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_answers_are_valid_under_every_rule(llm, rule):
    """The drafting model draws from laws that its own mask has cut."""
    params = SamplingParams(temperature=1.0, max_tokens=300, seed=1, n=4)
    results = llm.generate(
        ["the end"] * 3, params, Speculation("on", 4, ("draft_model",), rule), response_format=FORMAT
    )
    assert_valid(results)
    assert sum(choice.stats.num_accepted for result in results for choice in result.choices) > 100


def test_a_draft_model_without_the_tokens_that_may_follow_goes_on(model, caplog):
    llm = LLM(model, model, kv_memory=32 * MIB)
    drafter = llm.engine._drafting._proposers["draft_model"]
    drafter._model.allowed[[llm.tokenizer.encode(digit, add_bos=False)[0] for digit in "0123456789"]] = False
    params = SamplingParams(temperature=1.0, max_tokens=12, seed=1)
    for rule in ("exact", "rejection", "block"):
        result = llm.generate("the", params, Speculation("on", 3, ("draft_model",), rule), response_format=DIGITS)[0]
        assert result.text.isdigit()
        assert result.stats.num_drafts == (0 if rule == "exact" else 4)
    assert "failed" not in caplog.text


def test_preempted_sequences_read_nothing_twice(llm, model):
    params = [SamplingParams(temperature=1.0, max_tokens=200, seed=seed) for seed in range(6)]
    expected = outcomes(llm.generate(["the cat"] * 6, params, OFF, response_format=FORMAT))
    scarce = LLM(model, kv_memory=160 << 10)
    assert scarce.capacity < 400
    results = scarce.generate(["the cat"] * 6, params, ON, response_format=FORMAT)
    assert scarce.engine.scheduler.num_preemptions > 0
    assert outcomes(results) == expected
    assert_valid(results)


def test_choices_are_independent_and_reproducible(llm):
    params = SamplingParams(temperature=1.0, max_tokens=300, seed=3, n=6)
    (result,) = llm.generate(["and"], params, ON, response_format=FORMAT)
    assert_valid([result])
    assert len({choice.text for choice in result.choices}) == 6
    assert outcomes(llm.generate(["and"], params, OFF, response_format=FORMAT)) == outcomes([result])


def test_each_prompt_may_have_its_own_format(llm):
    params = SamplingParams(max_tokens=12, seed=4)
    free = llm.generate(["in"], params, ON)[0].text
    digits, same, none = llm.generate(["in"] * 3, params, ON, response_format=[DIGITS, {"type": "text"}, None])
    assert digits.text.isdigit()
    assert len(digits.text) == 4
    assert digits.finish_reason == "stop"
    assert same.text == none.text == free


def test_a_chat_and_a_stream_take_a_format(llm):
    params = SamplingParams(max_tokens=12)
    assert llm.chat([{"role": "user", "content": "a year"}], params, ON, response_format=DIGITS).text.isdigit()
    streamed = list(llm.stream("the", params, ON, response_format=DIGITS))
    assert "".join(chunk.text for chunk in streamed).isdigit()
    assert streamed[-1].finish_reason == "stop"


def test_a_grammar_that_grows_too_complex_ends_its_own_answer(llm, caplog):
    growing = {"type": "grammar", "grammar": "start: " + " | ".join(f'/[vw]/ "{i}"' for i in range(2500))}
    params = SamplingParams(temperature=1.0, max_tokens=100, seed=1)
    for how in (OFF, ON):
        lost, other = llm.generate(["the", "and"], params, how, response_format=[growing, DIGITS])
        assert lost.finish_reason == "error"
        assert other.finish_reason == "stop"
        assert lost.text in ("v", "w")
        assert caplog.text.count("Current row has") == 1
        caplog.clear()


def test_max_tokens_may_come_first(llm):
    (result,) = llm.generate("the", SamplingParams(max_tokens=5), ON, response_format=FORMAT)
    assert result.finish_reason == "length"
    assert result.text.startswith('{"')


def test_logit_bias_counts_within_the_format_only(llm):
    nine = llm.tokenizer.encode("9", add_bos=False)[0]
    letter = llm.tokenizer.encode("a", add_bos=False)[0]
    params = SamplingParams(max_tokens=12, logit_bias={nine: 90.0, letter: 100.0})
    assert llm.generate("the", params, ON, response_format=DIGITS)[0].text == "9999"


def test_logprobs_are_those_of_the_model_without_the_mask(llm):
    params = SamplingParams(max_tokens=12, logprobs=1)
    (masked,), (free,) = llm.generate("the", params, ON, response_format=DIGITS), llm.generate("the", params, OFF)
    assert masked.choices[0].logprobs[0].top == free.choices[0].logprobs[0].top


@pytest.mark.parametrize(
    ("params", "format", "error", "reason"),
    [
        ({"ignore_eos": True}, DIGITS, RequestError, "ignore_eos is True, but an answer with a response_format"),
        ({"min_tokens": 3}, DIGITS, RequestError, "min_tokens is 3, but"),
        ({}, {"type": "xml"}, RequestError, r"response_format\.type is 'xml'"),
        ({}, [DIGITS, None], ConfigError, "1 prompts but 2 response formats"),
        ({}, {"type": "regex", "regex": "("}, RequestError, r"response_format\.regex cannot be used"),
    ],
)
def test_refusals(llm, params, format, error, reason):
    with pytest.raises(error, match=reason):
        llm.generate("the", SamplingParams(**params), ON, response_format=format)
    assert llm.engine.is_idle


def test_a_missing_package_is_named(llm, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with pytest.raises(UnavailableError, match=r"pip install 'foredraft\[grammar\]'"):
        llm.generate("the", SamplingParams(), ON, response_format=DIGITS)


def test_every_matcher_is_freed(llm, monkeypatch):
    made: list[weakref.ref[Matcher]] = []
    create = Matcher.__init__

    def watched(self: Matcher, *arguments: Any) -> None:
        create(self, *arguments)
        made.append(weakref.ref(self))

    monkeypatch.setattr(Matcher, "__init__", watched)
    params = SamplingParams(temperature=1.0, max_tokens=20, n=3)
    llm.generate(["the", "and"], params, ON, response_format=FORMAT)
    stream = llm.stream("the", params, ON, response_format=FORMAT)
    next(stream)
    stream.close()
    del stream
    gc.collect()
    assert len(made) == 2 + 9  # one for each call, and one for each choice
    assert not any(reference() for reference in made)


def on_smollm2(smollm2: Path, count: int) -> None:
    """`count` answers at temperature 1: valid with lookup and grammar, and the same as without drafts."""
    llm = LLM(smollm2, context_length=512, kv_memory=256 * MIB)
    prompt = llm.chat_tokens([{"role": "user", "content": "Invent a poem and describe it in JSON."}])
    params = [SamplingParams(temperature=1.0, max_tokens=150, seed=seed) for seed in range(count)]
    drafted = llm.generate([prompt] * count, params, Speculation("on", 4), response_format=FORMAT)
    assert_valid(drafted)
    assert len({result.text for result in drafted}) > count * 0.9
    assert outcomes(llm.generate([prompt] * count, params, OFF, response_format=FORMAT)) == outcomes(drafted)
    stats = SpeculationStats()
    for result in drafted:
        stats.add(result.stats)
    assert stats.num_drafts_by_proposer["grammar"] > count
    assert stats.tokens_per_step > 1.3


def test_smollm2_answers_by_the_schema(smollm2):
    on_smollm2(smollm2, 8)


@pytest.mark.models
def test_smollm2_answers_by_the_schema_200_of_200_times(smollm2):
    on_smollm2(smollm2, 200)


def test_a_format_that_prompts_share_is_compiled_once(llm, monkeypatch):
    compiled = []
    compile_format = Compiler.compile
    monkeypatch.setattr(Compiler, "compile", lambda *given: (compiled.append(given), compile_format(*given))[1])
    results = llm.generate(
        ["a", "b", "c"], SamplingParams(max_tokens=9), response_format={"type": "regex", "regex": "x{3}"}
    )
    assert [result.text for result in results] == ["xxx"] * 3
    assert len(compiled) == 1
