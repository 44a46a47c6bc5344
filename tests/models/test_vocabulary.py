"""Trimmed vocabularies: which tokens are kept, and what is said of files that cannot be used."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from foredraft.errors import ConfigError
from foredraft.models import gguf
from foredraft.models.tokenizer import Tokenizer
from foredraft.models.vocabulary import fingerprint, kept_tokens, ranking

SIZE, USED = 288, 273  # 15 ids of the tiny model pad


def made(vocab_size: int = SIZE, architecture: str = "llama") -> Tokenizer:
    model = tiny.MODELS[architecture]
    return Tokenizer.from_metadata(tiny.metadata(tiny.replace(model, vocab_size=vocab_size)))


TOKENIZER = made()
DRAFTABLE = np.arange(SIZE) < USED
ENDS = sorted(TOKENIZER.eos_ids)


def saved(path, **changes):
    path.write_text(json.dumps({**ranking(TOKENIZER, [[7, 5, 7]], 3), **changes}))
    return path


def test_a_number_keeps_the_lowest_ids_and_every_end():
    assert ENDS
    assert min(ENDS) > 10
    for number in (10, "10"):
        assert kept_tokens(number, TOKENIZER, DRAFTABLE).tolist() == [*range(10), *ENDS]
    found = kept_tokens(USED, TOKENIZER, DRAFTABLE)
    assert found.tolist() == list(range(USED))
    assert found.dtype == np.int32


def test_what_the_draft_model_does_not_know_is_not_counted():
    draftable = DRAFTABLE.copy()
    draftable[[0, 2, ENDS[0]]] = False
    assert kept_tokens(3, TOKENIZER, draftable).tolist() == [1, 3, 4, *ENDS[1:]]


@pytest.mark.parametrize("number", [0, -1, USED + 1, "0", "9999999"])
def test_a_number_out_of_range(number):
    with pytest.raises(ConfigError, match=rf"draft_vocabulary is {number}; allowed is 1 to {USED}, .* or a file"):
        kept_tokens(number, TOKENIZER, DRAFTABLE)


def test_a_file_keeps_its_tokens_and_every_end(tmp_path):
    path = saved(tmp_path / "v.json")
    assert kept_tokens(path, TOKENIZER, DRAFTABLE).tolist() == sorted({0, 5, 7, *ENDS})
    assert kept_tokens(str(path), TOKENIZER, DRAFTABLE).tolist() == sorted({0, 5, 7, *ENDS})


def test_a_file_for_a_model_that_is_padded_further(tmp_path):
    wider = made(SIZE + 32)
    assert fingerprint(wider) == fingerprint(TOKENIZER)
    draftable = np.arange(SIZE + 32) < USED
    assert kept_tokens(saved(tmp_path / "v.json"), wider, draftable).tolist() == sorted({0, 5, 7, *ENDS})


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '{"tokens": 3}', "\x00", "[" * 100_000]
    + [json.dumps({"tokens": tokens}) for tokens in ([], [1, 1], [1.0], [True], ["1"], [-1], [SIZE])],
)
def test_a_file_that_is_no_vocabulary(tmp_path, text):
    path = tmp_path / "v.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"v.json is no list of tokens from 0 to {SIZE - 1}; .* `foredraft train"):
        kept_tokens(path, TOKENIZER, DRAFTABLE)


def test_a_file_for_another_tokenizer(tmp_path):
    other = made(320, "gemma3")
    assert fingerprint(other) != fingerprint(TOKENIZER)
    for name in (fingerprint(other), None, 7):
        with pytest.raises(ConfigError, match="was made for another tokenizer"):
            kept_tokens(saved(tmp_path / "v.json", tokenizer=name), TOKENIZER, DRAFTABLE)


def test_a_file_that_cannot_be_read(tmp_path):
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(ConfigError, match=f"{path.name} cannot be read: "):
            kept_tokens(path, TOKENIZER, DRAFTABLE)


@given(st.lists(st.lists(st.integers(0, USED - 1))), st.integers(1, USED))
def test_a_ranking_covers_as_much_as_any_set_of_its_size(texts, size):
    made = ranking(TOKENIZER, texts, size)
    counts = np.bincount([token for text in texts for token in text], minlength=SIZE)
    assert len(set(made["tokens"])) == len(made["tokens"]) == size
    assert made["num_counted"] == counts.sum()
    assert (np.diff(counts[made["tokens"]]) <= 0).all()
    assert counts[made["tokens"]].sum() == np.sort(counts)[::-1][:size].sum()
    assert made["coverage"] == (pytest.approx(counts[made["tokens"]].sum() / counts.sum()) if counts.any() else 0)


@pytest.mark.parametrize("size", [0, USED + 1])
def test_a_ranking_of_no_size(size):
    with pytest.raises(ConfigError, match=f"size is {size}; allowed is 1 to {USED}, "):
        ranking(TOKENIZER, [[1]], size)


@pytest.mark.models
def test_both_qwen_coders_share_a_vocabulary(qwen, qwen_small):
    target, draft = (Tokenizer.from_metadata(gguf.read(path).metadata) for path in (qwen, qwen_small))
    assert fingerprint(target) == fingerprint(draft)
    kept = kept_tokens(16384, target, np.arange(target.vocab_size) < 151_665)
    assert kept[:16384].tolist() == list(range(16384))
    assert set(kept[16384:].tolist()) == set(target.eos_ids)
