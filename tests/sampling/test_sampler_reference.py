"""The C++ sampler against its specification in numpy: the same tokens and truncations, laws up to rounding."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft import _native
from foredraft.core import FloatArray, SamplingParams
from foredraft.sampling import reference
from foredraft.sampling.noise import Purpose, Stream
from foredraft.sampling.processors import log_probabilities, probabilities, process
from foredraft.sampling.sampler import BlockNoise, choose

INF = np.inf
STREAM = Stream(Purpose.FINAL, 12)


def normal(size: int, spread: float, seed: int = 0) -> FloatArray:
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


def masked_but(size: int, *allowed: int) -> FloatArray:
    row = np.full(size, -INF, np.float32)
    row[list(allowed)] = normal(len(allowed), 1)
    return row


ROWS = {
    "one token": np.array([3.5], np.float32),
    "two tokens": np.array([-1, 1], np.float32),
    "all equal": np.full(1000, -7, np.float32),
    "two values": np.where(np.arange(999) % 3 == 0, 2, 1).astype(np.float32),
    "zeros of both signs": np.where(np.arange(100) % 2 == 0, 0.0, -0.0).astype(np.float32),
    "one is left": masked_but(151, 77),
    "the last is left": masked_but(64, 63),
    "few are left": masked_but(50_000, 3, 4, 49_999),
    "huge": np.array([3e38, -3e38, 2.9e38, 0, -INF], np.float32),
    "huge and close": np.float32(1e30) - np.arange(40, dtype=np.float32) * np.float32(1e23),
    "tiny": np.arange(50, dtype=np.float32) * np.float32(1e-42),
    "far below 0": normal(777, 2) - np.float32(1e4),
    "rising": np.linspace(-30, 0, 5000, dtype=np.float32),
    "falling": np.linspace(0, -30, 5000, dtype=np.float32),
    "peaked": np.append(normal(20_000, 2), np.float32(25)),
    "flat": normal(151_936, 0.5),
    "wide": normal(33_333, 8),
}
TEMPERATURES = [5e-324, 1e-30, 0.3, 1.0, 100.0]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_choices_on_odd_rows(row: FloatArray, temperature: float) -> None:
    scores = reference.heated(row, temperature)
    for key in range(8):
        assert choose(row, temperature, key, 12) == reference.draw(scores, key, STREAM)
    assert choose(row, 0.0, 0, 12) == int(row.argmax())


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_laws_of_odd_rows(row: FloatArray, temperature: float) -> None:
    law, expected = probabilities(row, temperature), reference.softmax(row, temperature)
    np.testing.assert_allclose(law, expected, rtol=1e-12, atol=1e-300)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    assert not law[np.isneginf(row)].any()
    for key in range(8):
        assert BlockNoise(key, 12).final(0, law) == reference.draw_from(law, key, STREAM)


TRUNCATIONS = [
    (1, 1.0, 0.0),
    (7, 1.0, 0.0),
    (10**9, 1.0, 0.0),
    (0, 1e-9, 0.0),
    (0, 0.37, 0.0),
    (0, 0.93, 0.0),
    (0, 1.0, 0.07),
    (0, 0.93, 0.01),
    (50, 0.83, 0.02),
]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_truncations_of_odd_rows(row: FloatArray, temperature: float) -> None:
    before = row.copy()
    for top_k, top_p, min_p in TRUNCATIONS:
        params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        kept = process(row, params, [], [], [])
        assert kept.tobytes() == reference.truncate(row, temperature, top_k, top_p, min_p).tobytes(), params
    assert row.tobytes() == before.tobytes()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("count", [0, 1, 20])
def test_log_probabilities_of_odd_rows(row: FloatArray, count: int) -> None:
    logprob, best = log_probabilities(row, row.size - 1, count)
    expected, expected_best = reference.log_probabilities(row, row.size - 1, count)
    assert logprob == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert [token for token, _ in best] == [token for token, _ in expected_best]
    assert [x for _, x in best] == pytest.approx([x for _, x in expected_best], rel=1e-12, abs=1e-12)


random_rows = st.builds(
    # Eighths at first, so that ties are common.
    lambda size, seed, spread, masked: np.where(
        np.random.default_rng(seed + 1).random(size) < masked * (np.arange(size) > 0),
        np.float32(-INF),
        np.round(normal(size, spread, seed) * 8) / 8 if seed % 2 else normal(size, spread, seed),
    ).astype(np.float32),
    st.integers(1, 5000),
    st.integers(0, 2**32),
    st.floats(0, 30),
    st.sampled_from([0.0, 0.5, 0.99]),
)
temperatures = st.floats(0.01, 5)


@settings(max_examples=150, deadline=None)
@given(random_rows, temperatures, st.integers(0, 2**64 - 1))
def test_choices(row: FloatArray, temperature: float, key: int) -> None:
    assert choose(row, temperature, key, 12) == reference.draw(reference.heated(row, temperature), key, STREAM)


@settings(max_examples=150, deadline=None)
@given(random_rows, temperatures, st.integers(0, 2**64 - 1), st.sampled_from([np.float32, np.float64]))
def test_draws_from_laws(row: FloatArray, temperature: float, key: int, kind: type) -> None:
    weights = reference.softmax(row, temperature).astype(kind) * kind(0.3)  # need not sum to 1
    chosen = BlockNoise(key, 12).final(0, weights)
    assert chosen == reference.draw_from(weights.astype(np.float64), key, STREAM)


@settings(max_examples=150, deadline=None)
@given(
    random_rows,
    temperatures,
    st.sampled_from([0, 1, 3, 40, 1000]),
    st.sampled_from([1.0, 0.99, 0.93, 0.57, 0.11]),
    st.sampled_from([0.0, 0.003, 0.41]),
)
def test_truncations(row: FloatArray, temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    kept = process(row, params, [], [], [])
    assert kept.tobytes() == reference.truncate(row, temperature, top_k, top_p, min_p).tobytes()


def test_an_unlikely_winner_is_found() -> None:
    """A token far below the best wins when its noise says so, though most are left out before any logarithm."""
    scores = np.full(50_000, -9, np.float32)
    scores[0] = 0
    winners = [choose(scores, 1.0, key, 12) for key in range(30)]
    assert winners == [reference.draw(scores.astype(np.float64), key, STREAM) for key in range(30)]
    assert 0 < sum(winner == 0 for winner in winners) < 30


def test_callers_at_once_do_not_disturb_each_other() -> None:
    rows = [normal(20_000, 3, seed) for seed in range(4)]
    params = SamplingParams(temperature=0.8, top_p=0.93)

    def answers(row: FloatArray) -> list[object]:
        kept = process(row, params, [], [], [])
        law = probabilities(row, 0.8)
        return [kept.tobytes(), choose(kept, 0.8, 5, 6), law.tobytes(), log_probabilities(row, 3, 5)]

    alone = [answers(row) for row in rows]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(answers, rows * 25)) == alone * 25


def test_what_the_binding_cannot_use_is_refused() -> None:
    row, law = normal(9, 1), np.empty(9)
    for call in (
        lambda: _native.draw(row, 9, 1.0, 0),
        lambda: _native.draw(row, -1, 1.0, 0),
        lambda: _native.draw(row, 0, 0.0, 0),
        lambda: _native.draw(row, 0, math.nan, 0),
        lambda: _native.draw(np.array([], np.float32), 0, 1.0, 0),
        lambda: _native.draw_from(np.zeros(3), 0, 0),
        lambda: _native.softmax(row, 0, 1.0, law[:8]),
        lambda: _native.truncate(row, 0, 1.0, -1, 1.0, 0.0, row.copy()),
        lambda: _native.truncate(row, 0, 1.0, 0, 0.0, 0.0, row.copy()),
        lambda: _native.highest(row, -1),
    ):
        with pytest.raises(ValueError, match=r"must (be|have)|best is not|out of range"):
            call()
