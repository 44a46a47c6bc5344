"""The matcher against the tokenizers of tiny models and of SmolLM2: its answers depend on the path alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from foredraft.constraints.matcher import Compiler, Matcher
from foredraft.errors import RequestError
from foredraft.models import gguf
from foredraft.models.tokenizer import Tokenizer

PET = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["cat", "dog", "café ☕"]},
        "legs": {"const": 4},
        "rows": {
            "type": "array",
            "maxItems": 2,
            "items": {"type": "array", "maxItems": 2, "items": {"type": "boolean"}},
        },
        "child": {"$ref": "#/$defs/child"},
    },
    "required": ["name", "kind", "legs", "rows", "child"],
    "additionalProperties": False,
    "$defs": {"child": {"type": ["integer", "null"], "minimum": 0, "maximum": 9}},
}
FORMATS: list[dict[str, Any]] = [
    {"type": "json_schema", "schema": PET},
    {"type": "json_object"},
    {"type": "regex", "regex": r"(é|[a-c]{2,4} )*(the|then)(\x00|ü)?"},
    {"type": "grammar", "grammar": 'start: sum\nsum: NUM | sum "+" NUM\nNUM: /[0-9]{1,3}/'},
]


@pytest.fixture(scope="module")
def tokenizers(smollm2) -> list[Tokenizer]:
    """Byte-level with many merges, byte-level with few and padding, SentencePiece with padding."""
    models = [tiny.metadata(tiny.LLAMA), tiny.metadata(tiny.GEMMA3)]
    return [Tokenizer.from_metadata(metadata) for metadata in (gguf.read(smollm2).metadata, *models)]


@pytest.fixture(scope="module")
def compilers(tokenizers) -> list[Compiler]:
    return [Compiler(tokenizer) for tokenizer in tokenizers]


@pytest.fixture(scope="module")
def tokenizer(tokenizers) -> Tokenizer:
    return tokenizers[0]


@pytest.fixture(scope="module")
def compile(compilers) -> Any:
    return compilers[0].compile


def schema(**keywords: Any) -> dict[str, Any]:
    return {"type": "json_schema", "schema": keywords}


def takes(matcher: Matcher, tokens: list[int]) -> bool:
    """Whether the tokens are a complete output, each allowed by the mask of the path before it."""
    matcher = matcher.copy()
    for token in tokens:
        if not matcher.mask(())[token]:
            return False
        matcher.advance(token)
    return matcher.finish_reason == "stop"


def texts(matcher: Matcher, tokenizer: Tokenizer, *wanted: str) -> list[bool]:
    return [takes(matcher, tokenizer.encode(text, add_bos=False)) for text in wanted]


@settings(max_examples=60, deadline=None)
@given(which=st.integers(0, 2), format=st.sampled_from(FORMATS), seed=st.integers(0, 10_000))
def test_answers_depend_on_the_path_alone(compilers, which, format, seed):
    """However often it is asked about drafts that come to nothing, it answers as a fresh one that took in the path."""
    rng = np.random.default_rng(seed)
    fresh = compilers[which].compile(format)
    matcher, output = fresh.copy(), []
    for _ in range(12):
        path: list[int] = []
        for _ in range(rng.integers(0, 5)):
            mask = matcher.mask(path)
            by_itself = fresh.copy()
            for token in [*output, *path]:
                by_itself.advance(token)
            assert np.array_equal(mask, by_itself.mask(()))
            token = int(rng.choice(np.flatnonzero(mask)))
            if token in compilers[which]._tokenizer.eos_ids:
                break
            path.append(token)
        assert matcher.num_allowed(path) == len(path)
        forced = matcher.forced()
        for i, token in enumerate(forced[:4]):
            assert matcher.mask(forced[:i])[token]
        matcher.num_allowed(rng.integers(0, 280, 4).tolist())
        token = int(rng.choice(np.flatnonzero(matcher.mask(()))))
        if token in compilers[which]._tokenizer.eos_ids:
            break
        matcher.advance(token)
        output.append(token)
        if matcher.finish_reason:
            assert matcher.finish_reason == "stop"
            break


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_random_walk_ends_in_a_match(compilers, tokenizers, which):
    import jsonschema

    rng, tokenizer = np.random.default_rng(3), tokenizers[which]
    for _ in range(8):
        matcher = compilers[which].compile(FORMATS[0])
        output: list[int] = []
        while matcher.finish_reason is None:
            output.append(int(rng.choice(np.flatnonzero(matcher.mask(())))))
            matcher.advance(output[-1])
        jsonschema.validate(json.loads(tokenizer.decode(output)), PET)


def test_schema_keywords(compile, tokenizer):
    matcher = compile(FORMATS[0])
    good = '{"name": "Zoë ☕", "kind": "café ☕", "legs": 4, "rows": [[true, false], []], "child": null}'
    assert texts(
        matcher,
        tokenizer,
        good,
        good.replace("café ☕", "cafe"),
        good.replace("4", "5"),
        good.replace("[]", "[], []"),
        good.replace("null", "10"),
        good.replace("Zoë ☕", "Zoë ☕☕☕"),
        good[:-1] + ', "more": 1}',
        good.replace(": ", ":"),
    ) == [True, *[False] * 7]


def test_a_regex_matches_the_whole_text(compile, tokenizer):
    matcher = compile({"type": "regex", "regex": "ü{2}(x|yz)"})
    assert texts(matcher, tokenizer, "üüx", "üüyz", "üx", "üüxx", "x") == [True, True, False, False, False]


def test_where_the_text_may_end_every_end_token_is_allowed(compile, tokenizer):
    matcher = compile({"type": "regex", "regex": "a*"})
    assert len(tokenizer.eos_ids) > 1
    ends = sorted(tokenizer.eos_ids)
    assert matcher.mask(())[ends].all()
    assert matcher.finish_reason is None
    a = tokenizer.encode("a", add_bos=False)
    assert not compile({"type": "regex", "regex": "ab"}).mask(a)[ends].any()
    # After the end, inside a draft, nothing matters but that some token is left.
    for end in ends:
        assert np.flatnonzero(matcher.mask([*a, end])).tolist() == ends
        assert matcher.num_allowed([*a, end, *a]) == 2
    assert matcher.mask(())[a].all()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_tokens_that_are_no_text_are_never_allowed(compilers, tokenizers, which):
    tokenizer = tokenizers[which]
    mask = compilers[which].compile({"type": "regex", "regex": r"(?s:.*)"}).mask(())
    assert mask.shape == (tokenizer.vocab_size,)
    never = [id for id in range(tokenizer.vocab_size) if tokenizer.is_padding(id) or not tokenizer.token_bytes(id)]
    assert set(np.flatnonzero(mask[never])) == {never.index(id) for id in tokenizer.eos_ids}


def test_special_tokens_spelled_in_a_text_stay_text(compile, tokenizer):
    matcher = compile({"type": "regex", "regex": r"<\|im_end\|>!"})
    special = tokenizer.special["<|im_end|>"]
    assert special not in matcher.forced()
    assert not matcher.mask(())[special]
    assert texts(matcher, tokenizer, "<|im_end|>!") == [True]


def test_forced_text_is_drafted_as_the_tokenizer_writes_it(compile, tokenizer):
    forced = compile(FORMATS[0]).forced()
    assert tokenizer.decode(forced).startswith('{"name":')
    assert tokenizer.encode('{"name": "b"', add_bos=False)[: len(forced)] == forced


def test_copies_share_nothing(compile, tokenizer):
    first = compile({"type": "regex", "regex": "(yes|no)"})
    second = first.copy()
    first.advance(tokenizer.encode("yes", add_bos=False)[0])
    assert (first.finish_reason, second.finish_reason) == ("stop", None)
    assert second.mask(())[tokenizer.encode("no", add_bos=False)[0]]


def test_what_compiles_for_ever_is_ended_and_others_go_on(compile):
    endless = schema(allOf=[{"type": "integer", "multipleOf": n} for n in (7, 11, 13, 17, 19, 23)])
    with pytest.raises(RequestError, match=r"response_format\.schema cannot be used: it takes too long to compile"):
        compile(endless)
    assert compile(FORMATS[0]).finish_reason is None


def test_nothing_is_fetched(compile, monkeypatch, tmp_path):
    import socket

    monkeypatch.setattr(socket, "socket", lambda *a, **k: pytest.fail("the network was touched"))
    (tmp_path / "there.json").write_text('{"type": "integer"}')
    for reference in ("https://example.com/schema.json", "http://127.0.0.1:9/x", f"file://{tmp_path}/there.json"):
        with pytest.raises(RequestError, match=r"response_format\.schema cannot be used: .*does not fetch"):
            compile(schema(**{"$ref": reference}))


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        inner = {"type": "array", "items": inner}
    return inner


DOUBLING = {str(i): {"type": "array", "prefixItems": [{"$ref": f"#/$defs/{i + 1}"}] * 10} for i in range(20)}
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "deep": (schema(**nested(400)), "cannot be read: .*recursion limit"),
    "deeper": (schema(**nested(50_000)), "not plain JSON"),
    "memory": (
        schema(allOf=[{"type": "string", "pattern": f"{i}.*{i}"} for i in range(1000)]),
        r"too long to compile|in bounds \(status",
    ),
    "long": (schema(enum=[f"value {i}" for i in range(10_000)]), "characters; allowed are 65536"),
    "product of unions": (
        schema(allOf=[{"anyOf": [{"properties": {f"{i} {j}": {}}} for j in range(4)]} for i in range(12)]),
        "too large",
    ),
    "endless": (schema(**{"$ref": "#"}), "no text of this model matches it"),
    "impossible": (schema(type="string", enum=[1]), "Unsatisfiable"),
    "unknown keyword": (schema(type="array", uniqueItems=True), "uniqueItems"),
    "multiples": (schema(type="integer", multipleOf=982_451_653), "fuel"),
    "parentheses": ({"type": "regex", "regex": "(" * 20_000 + ")" * 20_000}, "invalid regex"),
    "long regex": ({"type": "regex", "regex": "a" * 70_000}, "characters"),
    "broken regex": ({"type": "regex", "regex": "("}, "unclosed group"),
    "lookahead": ({"type": "regex", "regex": "(?=a)b"}, "look-around"),
    "deep grammar": ({"type": "grammar", "grammar": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000}, "nested"),
    "no such rule": ({"type": "grammar", "grammar": "start: nothing"}, "unknown name"),
    "repeated repetition": (
        {"type": "grammar", "grammar": 'start: a{999}\na: b{999}\nb: c{999}\nc: "x"'},
        "items",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_used_is_refused_in_a_sentence(compile, name):
    format, reason = HOSTILE[name]
    with pytest.raises(RequestError, match=reason) as caught:
        compile(format)
    assert str(caught.value).startswith("response_format.")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "format",
    [
        schema(type="object", properties={f"p{i}": {} for i in range(3000)}),
        schema(type="array", minItems=10**9, items={"type": "string"}),
        schema(type="string", minLength=10**9),
        schema(**{"$ref": "#/$defs/0", "$defs": {**DOUBLING, "20": {"const": 1}}}),
        {"type": "regex", "regex": "(((a{1,99}){1,99}){1,99}){1,99}"},
        {"type": "regex", "regex": r"(.*a){20}.{20}b\w{1000000}"},
    ],
    ids=["optional keys", "array", "string", "references", "repetition", "states"],
)
def test_what_is_large_without_being_written_large_stays_bounded(compile, format):
    """Steps on the way cost little, and a limit that is met ends the text and nothing else."""
    matcher, rng = compile(format), np.random.default_rng(1)
    for _ in range(40):
        matcher.advance(int(rng.choice(np.flatnonzero(matcher.mask(())))))
        if matcher.finish_reason:
            break
    assert matcher.finish_reason in (None, "stop", "error")
    assert matcher.mask(()).any()


def test_a_matcher_that_is_lost_says_so_and_lets_the_text_end(compile, tokenizer, caplog):
    matcher = compile({"type": "regex", "regex": "ab"})
    matcher.advance(tokenizer.encode("z", add_bos=False)[0])
    assert matcher.finish_reason == "error"
    assert "could not be kept to" in caplog.text
    assert np.flatnonzero(matcher.mask(())).tolist() == sorted(tokenizer.eos_ids)
    assert matcher.num_allowed([1, 2]) == 0
    assert matcher.forced() == []
    assert np.flatnonzero(matcher.mask([5])).tolist() == sorted(tokenizer.eos_ids)


def test_any_text_needs_no_matcher(compile):
    assert compile({"type": "text"}) is None
