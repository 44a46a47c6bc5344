"""Keyed noise: a pure function of its key, with the laws it claims, and no two keys that share anything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from foredraft.sampling.noise import (
    Purpose,
    Stream,
    gumbel,
    gumbel_from_bits,
    noise_key,
    random_bits,
    uniform,
)

MASK = 2**64 - 1
words = st.integers(0, MASK)


def splitmix64(state: int, count: int) -> list[int]:
    """Steele, Lea and Flood's generator as published: a state that is advanced and mixed."""
    numbers = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        numbers.append(z ^ (z >> 31))
    return numbers


def test_the_generator_is_splitmix64(monkeypatch: pytest.MonkeyPatch) -> None:
    # First outputs for seed 1234567, as published with the reference implementation.
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    monkeypatch.setattr("foredraft.sampling.noise.stream_state", lambda key, stream: key)
    bits = random_bits(1234567, Stream(Purpose.FINAL, 0), np.arange(3))
    assert bits.tolist() == [number >> 32 for number in splitmix64(1234567, 3)]


@given(words, st.integers(0, 2**20), st.integers(0, 2**31 - 1))
def test_one_number_at_a_time_or_many(key: int, position: int, token: int) -> None:
    stream = Stream(Purpose.ACCEPT, position, position)
    many = random_bits(key, stream, np.array([0, token, 5]))
    assert uniform(key, stream, token) == (int(many[1]) + 0.5) * 2.0**-32


def test_a_token_has_the_same_noise_wherever_it_stands_in_an_array() -> None:
    stream = Stream(Purpose.FINAL, 17)
    tokens = np.arange(5003)
    noise = gumbel(9, stream, tokens)
    for first, last in [(0, 1), (1, 4), (3, 12), (8, 24), (5, 1000), (4999, 5003)]:
        assert noise[first:last].tobytes() == gumbel(9, stream, tokens[first:last]).tobytes()


def test_keys_of_different_purposes_positions_blocks_and_choices_differ() -> None:
    seen = {
        float(uniform(noise_key(seed, choice), Stream(purpose, position, block), index))
        for seed in (0, 1, 2**64 - 1)
        for choice in (0, 1, 2)
        for purpose in Purpose
        for position in range(6)
        for block in (None, 0, 1, 5)
        for index in (0, 1)
    }
    assert len(seen) == 3 * 3 * 3 * 6 * 4 * 2


def test_a_choice_is_not_a_neighboring_seed() -> None:
    keys = [noise_key(seed, choice) for seed in range(40) for choice in range(40)]
    assert len(set(keys)) == len(keys)


def test_neighboring_keys_are_uncorrelated() -> None:
    size = 4000
    tokens = np.arange(size)
    base = random_bits(noise_key(1, 0), Stream(Purpose.FINAL, 1), tokens).astype(np.float64)
    for other in (
        random_bits(noise_key(2, 0), Stream(Purpose.FINAL, 1), tokens),
        random_bits(noise_key(1, 1), Stream(Purpose.FINAL, 1), tokens),
        random_bits(noise_key(1, 0), Stream(Purpose.FINAL, 2), tokens),
        random_bits(noise_key(1, 0), Stream(Purpose.DRAFT, 1), tokens),
        random_bits(noise_key(1, 0), Stream(Purpose.FINAL, 1, 0), tokens),
        random_bits(noise_key(1, 0), Stream(Purpose.FINAL, 1), tokens + 1),
    ):
        assert abs(np.corrcoef(base, other.astype(np.float64))[0, 1]) < 5 / np.sqrt(size)


def test_uniforms_are_uniform_over_seeds_and_over_tokens() -> None:
    by_seed = [uniform(noise_key(seed, 0), Stream(Purpose.ACCEPT, 4, 4)) for seed in range(4000)]
    by_token = random_bits(3, Stream(Purpose.FINAL, 4), np.arange(4000)).astype(np.float64) / 2**32
    assert stats.kstest(by_seed, "uniform").pvalue > 1e-4
    assert stats.kstest(by_token, "uniform").pvalue > 1e-4


def test_noise_is_gumbel() -> None:
    noise = gumbel(5, Stream(Purpose.FINAL, 8), np.arange(20_000))
    assert stats.kstest(noise, "gumbel_r").pvalue > 1e-4


def test_the_ends_of_the_noise_are_finite_and_bounded() -> None:
    ends = gumbel_from_bits(np.array([0, 2**32 - 1], np.uint64))
    assert 22.8 < ends[0] < 33 * np.log(2)  # what csrc/draw.cpp takes for the largest
    assert -3.2 < ends[1] < -3.1


def test_large_values_have_resolution() -> None:
    """Neighboring bits at the decisive end differ; in float32 (24 bits) they would tie."""
    close = gumbel_from_bits(np.array([2**14, 2**14 + 1], np.uint64))
    assert close[0] > close[1]
    flat = gumbel(1, Stream(Purpose.FINAL, 3), np.arange(152_000))
    assert (flat == flat.max()).sum() == 1
