"""From logits to scores: against a plain version that sorts everything, and rule by rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.core import SamplingParams
from foredraft.errors import ForedraftError, RequestError
from foredraft.sampling.processors import log_probabilities, probabilities, process
from foredraft.sampling.sampler import choose


def plain(logits: Sequence[float], params: SamplingParams, prompt: list[int], output: list[int], eos: set[int]) -> Any:
    """The same, one token at a time, with a full sort."""
    scores = [np.float32(x) for x in logits]
    for token, bias in params.logit_bias.items():
        scores[token] += np.float32(bias)
    for token in {*prompt, *output}:
        penalty = np.float32(params.repetition_penalty)
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    for token in set(output):
        amount = params.presence_penalty + params.frequency_penalty * output.count(token)
        scores[token] -= np.float32(amount)
    if len(output) < params.min_tokens:
        for token in {*params.stop_token_ids, *(() if params.ignore_eos else eos)}:
            scores[token] = np.float32(-np.inf)
    if params.temperature == 0:
        return np.array(scores, np.float32)
    best = float(max(scores))
    heated = [(float(s) - best) / params.temperature for s in scores]
    order = sorted(range(len(heated)), key=lambda t: (-heated[t], t))
    if params.top_k:
        order = order[: params.top_k]
    if params.top_p < 1:
        total = sum(math.exp(heated[t]) for t in order)
        mass, kept = 0.0, []
        for token in order:
            kept.append(token)
            mass += math.exp(heated[token])
            if mass >= params.top_p * total:
                break
        order = kept
    order = [t for t in order if params.min_p == 0 or heated[t] >= math.log(params.min_p)]
    return np.array([scores[t] if t in order else -np.inf for t in range(len(scores))], np.float32)


params_strategy = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 40]),
    top_p=st.sampled_from([1.0, 0.93, 0.57, 0.11]),
    min_p=st.sampled_from([0.0, 0.05, 0.4]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -0.4]),
    logit_bias=st.sampled_from([{}, {0: 3.0, 4: -100.0}]),
    min_tokens=st.sampled_from([0, 3]),
    stop_token_ids=st.sampled_from([(), (2,)]),
    ignore_eos=st.booleans(),
)
# Eighths, so that ties are common and float32 sums are exact.
logits_strategy = st.lists(st.integers(-40, 40).map(lambda x: x / 8), min_size=5, max_size=12)
path_strategy = st.lists(st.integers(0, 4), max_size=5)


@settings(max_examples=150)
@given(logits_strategy, params_strategy, path_strategy, path_strategy)
def test_equals_the_plain_version(
    logits: list[float], params: SamplingParams, prompt: list[int], output: list[int]
) -> None:
    given_logits = np.array(logits, np.float32)
    before = given_logits.copy()
    scores = process(given_logits, params, prompt, output, [1])
    expected = plain(logits, params, prompt, output, {1})
    assert scores.dtype == np.float32
    assert np.array_equal(np.isneginf(scores), np.isneginf(expected))
    assert np.allclose(scores, expected, rtol=1e-6, atol=1e-6)
    assert np.array_equal(given_logits, before)


def test_nothing_asked_for_at_temperature_0_costs_nothing() -> None:
    logits = np.array([1, 3, 2], np.float32)
    params = SamplingParams(top_k=1, top_p=0.5, min_p=0.5)  # truncation never removes the best token
    assert process(logits, params, [0], [1], [2]) is logits
    assert process(logits, SamplingParams(temperature=0.7), [0], [1], [2]) is logits


@pytest.mark.parametrize("k", [1, 2, 3])
def test_ties_at_the_edge_of_top_k_keep_the_lowest_ids(k: int) -> None:
    logits = np.array([1, 5, 5, 5, 0], np.float32)
    scores = process(logits, SamplingParams(temperature=1, top_k=k), [], [], [])
    assert np.flatnonzero(np.isfinite(scores)).tolist() == [1, 2, 3][:k]


def test_a_nucleus_wider_than_the_first_look() -> None:
    logits = np.zeros(5000, np.float32)
    scores = process(logits, SamplingParams(temperature=1, top_p=0.75), [], [], [])
    assert np.flatnonzero(np.isfinite(scores)).tolist() == list(range(3750))


def test_top_p_is_taken_of_what_top_k_left() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    params = SamplingParams(temperature=1, top_k=2, top_p=0.56)  # 0.4 / 0.7 = 0.571
    assert np.isfinite(process(logits, params, [], [], [])).tolist() == [True, False, False, False]


def test_penalties_count_the_rows_own_path() -> None:
    logits = np.array([1.0, 1.0], np.float32)
    params = SamplingParams(frequency_penalty=0.5, presence_penalty=0.25)
    assert process(logits, params, [0, 0], [1, 1, 1], []).tolist() == [1.0, 1.0 - 0.25 - 1.5]


def test_repetition_penalty_pushes_down_on_both_sides_of_0() -> None:
    logits = np.array([2.0, -2.0, 2.0, -2.0], np.float32)
    assert process(logits, SamplingParams(repetition_penalty=2), [0], [1], []).tolist() == [1.0, -4.0, 2.0, -2.0]


def test_min_tokens_forbids_ends_until_it_is_reached() -> None:
    logits = np.array([1, 2, 3], np.float32)
    params = SamplingParams(min_tokens=2, stop_token_ids=(1,))
    assert process(logits, params, [], [0], [2]).tolist() == [1, -math.inf, -math.inf]
    assert process(logits, params, [], [0, 0], [2]) is logits


def test_a_mask_comes_after_all_that_is_added_and_before_what_is_cut() -> None:
    logits = np.array([9, 8, 1, 0, -1], np.float32)
    mask = np.array([False, False, True, True, False])
    params = SamplingParams(temperature=1.0, top_k=2, logit_bias={0: 100.0, 3: 2.0})
    scores = process(logits, params, [], [], (), mask)
    assert scores.tolist() == [-np.inf, -np.inf, 1.0, 2.0, -np.inf]
    greedy = process(logits, SamplingParams(), [], [], (), mask)
    assert greedy.tolist() == [-np.inf, -np.inf, 1.0, 0.0, -np.inf]
    assert logits.tolist() == [9, 8, 1, 0, -1]


def test_the_lowest_temperature_does_not_overflow() -> None:
    logits = np.array([1e4, -1e4, 1e4 - 1], np.float32)
    scores = process(logits, SamplingParams(temperature=5e-324), [], [], [])
    assert probabilities(scores, 5e-324).tolist() == [1, 0, 0]


def test_masked_logits_stay_masked() -> None:
    logits = np.array([0, -np.inf, 0], np.float32)
    scores = process(logits, SamplingParams(temperature=0.7), [], [], [])
    assert probabilities(scores, 0.7).tolist() == [0.5, 0, 0.5]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_broken_logit_is_an_error(bad: float) -> None:
    logits = np.array([0, bad, 1], np.float32)
    with pytest.raises(ForedraftError, match=f"logit of {bad}"):
        process(logits, SamplingParams(temperature=1, top_p=0.5), [], [], [])
    with pytest.raises(ForedraftError, match=f"logit of {bad}"):
        probabilities(logits, 1.0)
    with pytest.raises(ForedraftError, match=f"logit of {bad}"):
        log_probabilities(logits, 0, 1)


def test_nothing_left_to_choose_from_is_an_error() -> None:
    params = SamplingParams(temperature=1, top_k=1, min_tokens=1, stop_token_ids=(0,))
    with pytest.raises(ForedraftError, match="no token is left"):
        process(np.zeros(2, np.float32), params, [], [], [1])


@pytest.mark.parametrize(
    "params", [SamplingParams(logit_bias={9: 1.0}), SamplingParams(min_tokens=1, stop_token_ids=(9,))]
)
def test_a_token_outside_the_vocabulary_is_named(params: SamplingParams) -> None:
    with pytest.raises(RequestError, match="token 9; this model's tokens are 0 to 2"):
        process(np.zeros(3, np.float32), params, [], [], [])


def test_log_probabilities_are_of_the_raw_logits() -> None:
    logits = np.log(np.array([0.25, 0.5, 0.125, 0.125], np.float32)) + np.float32(3)
    chosen, best = log_probabilities(logits, chosen=2, count=3)
    assert chosen == pytest.approx(math.log(0.125), abs=1e-6)
    assert [token for token, _ in best] == [1, 0, 2]
    assert [value for _, value in best] == pytest.approx([math.log(p) for p in (0.5, 0.25, 0.125)], abs=1e-6)
    assert log_probabilities(logits, chosen=0, count=0)[1] == []


@pytest.mark.parametrize(
    "params", [SamplingParams(temperature=0.7, top_p=0.9), SamplingParams(temperature=0.7, top_k=9)]
)
def test_bytes_do_not_depend_on_where_the_logits_lie(params: SamplingParams) -> None:
    """Rows of one pass lie at different addresses than the same row alone; vector units must not tell."""
    logits = np.random.default_rng(0).standard_normal(3001).astype(np.float32) * 3
    alone = process(logits, params, [], [], [])
    for shift in range(1, 17):
        room = np.zeros(logits.size + shift, np.float32)
        room[shift:] = logits
        scores = process(room[shift:], params, [], [], [])
        assert scores.tobytes() == alone.tobytes()
        assert probabilities(scores, 0.7).tobytes() == probabilities(alone, 0.7).tobytes()
        assert log_probabilities(room[shift:], 5, 20) == log_probabilities(logits, 5, 20)
        for key in range(5):
            assert choose(room[shift:], 0.7, key, 3) == choose(logits, 0.7, key, 3)
