"""Choosing by keyed noise: with the right law, and shared between target and drafter."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from foredraft.errors import ForedraftError
from foredraft.sampling.noise import noise_key
from foredraft.sampling.processors import probabilities
from foredraft.sampling.sampler import BlockNoise, choose, draft_token


def test_ties_go_to_the_lowest_id() -> None:
    assert choose(np.array([1, 5, 5], np.float32), 0.0, key=0, position=0) == 1


def test_temperature_0_needs_no_noise() -> None:
    scores = np.array([0, 0.01, 0], np.float32)
    assert {choose(scores, 0.0, key, 3) for key in range(20)} == {1}


def test_choices_follow_the_softmax() -> None:
    scores = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    counts = np.bincount([choose(scores, 1.0, noise_key(seed, 0), 7) for seed in range(4000)], minlength=4)
    assert stats.chisquare(counts, probabilities(scores, 1.0) * 4000).pvalue > 1e-4


@pytest.mark.parametrize("bad", [[np.nan, 0.0], [np.inf, 0.0], [-np.inf, -np.inf]])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_scores_that_allow_no_choice_are_an_error(bad: list[float], temperature: float) -> None:
    with pytest.raises(ForedraftError):
        choose(np.array(bad, np.float32), temperature, key=0, position=0)


def test_a_drafter_with_the_targets_law_always_agrees_under_exact() -> None:
    scores = np.random.default_rng(0).standard_normal(50, np.float32)
    for seed in range(50):
        noise = BlockNoise(noise_key(seed, 0), start=10)
        token, law = draft_token(scores, 1.0, "exact", noise, depth=3)
        assert law is None
        assert token == choose(scores, 1.0, noise.key, position=13)


def test_a_drafter_under_rejection_has_noise_of_its_own_and_says_its_law() -> None:
    scores = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    noises = [BlockNoise(noise_key(seed, 0), start=4) for seed in range(3000)]
    drafted = [draft_token(scores, 1.0, "rejection", noise, depth=1) for noise in noises]
    law = drafted[0][1]
    assert law is not None
    assert law.dtype == np.float32
    assert law == pytest.approx([0.5, 0.3, 0.2], abs=1e-6)
    tokens = [token for token, _ in drafted]
    assert stats.chisquare(np.bincount(tokens), np.array([0.5, 0.3, 0.2]) * 3000).pvalue > 1e-4
    agreement = np.mean([token == choose(scores, 1.0, n.key, 5) for token, n in zip(tokens, noises, strict=True)])
    assert agreement == pytest.approx(0.25 + 0.09 + 0.04, abs=0.05)  # independent: sum of p squared


def test_a_greedy_drafter_is_a_point_mass_under_every_rule() -> None:
    scores = np.array([0.0, 2.0, 1.0], np.float32)
    for rule in ("exact", "rejection", "block"):
        assert draft_token(scores, 0.0, rule, BlockNoise(1, 1), 0) == (1, None)


def test_without_a_draft_the_final_draw_is_the_targets_own_choice() -> None:
    """So that with k = 0 all rules give the same text."""
    scores = np.random.default_rng(1).standard_normal(200, np.float32)
    for seed in range(100):
        assert BlockNoise(seed, 9).final(0, probabilities(scores, 0.8)) == choose(scores, 0.8, seed, 9)
