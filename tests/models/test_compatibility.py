"""Which tokens a draft model may propose."""

from __future__ import annotations

from pathlib import Path

import pytest

from foredraft.errors import TokenizerError
from foredraft.models import gguf
from foredraft.models.compatibility import draftable_tokens
from foredraft.models.tokenizer import Tokenizer


def tokenizer(tokens: list[str], kind: str = "llama") -> Tokenizer:
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    return Tokenizer.from_metadata(
        {
            "tokenizer.ggml.model": kind,
            "tokenizer.ggml.tokens": [*tokens, *bytes_] if kind == "llama" else tokens,
            "tokenizer.ggml.scores": [0.0] * (len(tokens) + 256),
            "tokenizer.ggml.merges": ["a b"],
        }
    )


def test_equal_tokens_are_draftable_and_padding_is_not() -> None:
    target = tokenizer(["a", "b", "[PAD2]", "c", "[PAD4]"])
    draft = tokenizer(["a", "b", "[PAD2]", "[PAD3]", "d"])
    mask = draftable_tokens(target, draft)
    assert mask[:5].tolist() == [True, True, False, False, False]
    assert mask.shape == (target.vocab_size,)


def test_ids_beyond_either_vocabulary_are_not_draftable() -> None:
    short, long = tokenizer(["a", "b", "ab"], "gpt2"), tokenizer(["a", "b", "ab", "c"], "gpt2")
    assert draftable_tokens(long, short).tolist() == [True, True, True, False]
    assert draftable_tokens(short, long).tolist() == [True, True, True]


def test_different_strings_are_named() -> None:
    with pytest.raises(
        TokenizerError, match=r"differ in 2 tokens \(1 is 'b' in the target, 'B' in the draft; 2 is 'ab'"
    ):
        draftable_tokens(tokenizer(["a", "b", "ab"], "gpt2"), tokenizer(["a", "B", "AB", "b", "ab"], "gpt2"))


def test_different_kinds_are_refused() -> None:
    with pytest.raises(TokenizerError, match="kind 'gpt2', the draft's of kind 'llama'"):
        draftable_tokens(tokenizer(["a", "b", "ab"], "gpt2"), tokenizer(["a", "b", "ab"]))


@pytest.mark.models
def test_qwen_coder_models_can_draft_for_each_other(qwen: Path, qwen_small: Path) -> None:
    target, draft = (Tokenizer.from_metadata(gguf.read(path).metadata) for path in (qwen, qwen_small))
    mask = draftable_tokens(target, draft)
    assert mask.sum() == 151_665  # 151,936 rows, of which 271 pad
    assert not mask[151_665:].any()


@pytest.mark.models
def test_smollm2_cannot_draft_for_qwen(qwen_small: Path, smollm2: Path) -> None:
    target, draft = (Tokenizer.from_metadata(gguf.read(path).metadata) for path in (qwen_small, smollm2))
    with pytest.raises(TokenizerError, match="0 is '!' in the target"):
        draftable_tokens(target, draft)
