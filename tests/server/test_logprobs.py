"""Log probabilities in both forms, where tokens are parts of characters."""

from types import SimpleNamespace

import pytest

import tiny
from foredraft.engine.sequence import TokenLogprobs
from foredraft.models.tokenizer import Tokenizer
from foredraft.server.logprobs import CompletionLogprobsForm, chat_logprobs

# The tiny tokenizer's tokens are single bytes: é is two of them.
TEXT = "aéb"


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_metadata(tiny.metadata(tiny.LLAMA))


@pytest.fixture
def chunks(tokenizer):
    ids = [*tokenizer.encode(TEXT), tokenizer.special["<|im_end|>"]]
    other = tokenizer.encode("z")[0]
    return [
        SimpleNamespace(token_id=id, logprobs=TokenLogprobs(-0.5 * i, ((id, -0.5 * i), (other, -9.0))))
        for i, id in enumerate(ids)
    ]


def test_chat(tokenizer, chunks):
    content = chat_logprobs(chunks, tokenizer).content
    assert [entry.token for entry in content] == ["a", r"\xc3", r"\xa9", "b", "<|im_end|>"]
    assert b"".join(bytes(entry.bytes) for entry in content[:-1]).decode() == TEXT
    assert [entry.logprob for entry in content] == [0, -0.5, -1, -1.5, -2]
    assert [[likely.token for likely in entry.top_logprobs] for entry in content][1] == [r"\xc3", "z"]


@pytest.mark.parametrize("cut", range(6))
def test_completions_however_the_tokens_come(tokenizer, chunks, cut):
    form = CompletionLogprobsForm(tokenizer)
    parts = [form.add(chunks[:cut]), form.add(chunks[cut:])]
    assert [token for part in parts for token in part.tokens] == ["a", r"bytes:\xc3", r"bytes:\xa9", "b", "<|im_end|>"]
    assert [offset for part in parts for offset in part.text_offset] == [0, 1, 1, 2, 3]
    tops = [top for part in parts for top in part.top_logprobs or ()]
    assert tops[1] == {r"bytes:\xc3": -0.5, "z": -9.0}


def test_no_likely_tokens_are_null(tokenizer, chunks):
    bare = [SimpleNamespace(token_id=c.token_id, logprobs=TokenLogprobs(-1.0, ())) for c in chunks]
    assert CompletionLogprobsForm(tokenizer).add(bare).top_logprobs is None


def test_of_tokens_with_the_same_text_the_likeliest_counts():
    same = SimpleNamespace(token_bytes=lambda token, show_special=False: b"x")
    chunk = SimpleNamespace(token_id=1, logprobs=TokenLogprobs(-0.1, ((1, -0.1), (2, -3.0))))
    assert CompletionLogprobsForm(same).add([chunk]).top_logprobs == [{"x": -0.1}]
