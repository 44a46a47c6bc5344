"""What ends a sequence, token by token, and what is shown of it."""

from __future__ import annotations

import pytest

from fakes import CONTEXT_LENGTH, EOS, new_sequence
from foredraft.core import SamplingParams, Speculation

A, B, C, HALF, OTHER_HALF, WORD = 0, 1, 2, 20, 21, 22


def feed(tokens, **params):
    sequence = new_sequence([5, 5], SamplingParams(**params))
    texts = []
    for token in tokens:
        assert sequence.finish_reason is None
        texts.append(sequence.append(token))
    return sequence, texts


@pytest.mark.parametrize(
    ("tokens", "params", "texts", "reason"),
    [
        ([A, B], {}, ["a", "b"], None),
        ([A, EOS], {}, ["a", ""], "stop"),
        ([A, EOS, B], {"ignore_eos": True}, ["a", "", "b"], None),
        ([A, B], {"stop_token_ids": (B,)}, ["a", ""], "stop"),
        ([A, B], {"stop_token_ids": (B,), "ignore_eos": True}, ["a", ""], "stop"),
        ([A, B, C], {"max_tokens": 3}, ["a", "b", "c"], "length"),
        ([A, EOS], {"max_tokens": 2}, ["a", ""], "stop"),
        ([A, B], {"max_tokens": 2, "stop": ("b",)}, ["a", ""], "stop"),
        ([A, WORD], {"stop": ("bc",)}, ["a", " a"], "stop"),
        ([A, B, A, B, C], {"stop": ("abc",)}, ["", "", "ab", "", ""], "stop"),
        ([A, B, EOS], {"stop": ("abc",)}, ["", "", "ab"], "stop"),
        ([A, B], {"stop": ("abc",), "max_tokens": 2}, ["", "ab"], "length"),
        ([HALF, OTHER_HALF, A], {}, ["", "é", "a"], None),
        ([HALF, A], {}, ["", "\ufffda"], None),
        ([A, HALF, EOS], {}, ["a", "", "\ufffd"], "stop"),
        ([A, HALF], {"max_tokens": 2}, ["a", "\ufffd"], "length"),
        ([A, HALF], {"max_tokens": 2, "stop": ("a\ufffd",)}, ["", ""], "stop"),
        ([A, A, A], {"stop": ("a",), "min_tokens": 3}, ["a", "a", ""], "stop"),
        ([A, B, A, B], {"stop": ("ab",), "min_tokens": 2}, ["a", "b", "", ""], "stop"),
    ],
)
def test_text_and_end(tokens, params, texts, reason):
    sequence, shown = feed(tokens, **params)
    assert (shown, sequence.finish_reason) == (texts, reason)
    assert sequence.context.output == tokens


def test_the_context_ends_a_sequence_like_max_tokens():
    sequence = new_sequence([1] * (CONTEXT_LENGTH - 2), SamplingParams(max_tokens=100))
    sequence.append(A)
    assert sequence.finish_reason is None
    sequence.append(A)
    assert sequence.finish_reason == "length"


def test_budget_is_what_may_still_be_emitted_beside_the_targets_own_token():
    sequence = new_sequence([1], SamplingParams(max_tokens=4), Speculation("on", 8, ("right",)))
    budgets = [sequence.room]
    for _ in range(3):
        sequence.append(A)
        budgets.append(sequence.room)
    assert budgets == [3, 2, 1, 0]
