"""The nouns: validation of parameters, drafts as trees, counters."""

from __future__ import annotations

from typing import Any

import pytest

from foredraft.core import Context, Draft, SamplingParams, Speculation, SpeculationStats
from foredraft.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", 1.0),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e-40),
        ("presence_penalty", 11.0),
        ("frequency_penalty", float("nan")),
        ("logit_bias", {3: 101.0}),
        ("logit_bias", {-1: 1.0}),
        ("min_tokens", -1),
        ("max_tokens", 0),
        ("stop", "a string"),
        ("stop", ["fine", ""]),
        ("stop_token_ids", [-1]),
        ("seed", -1),
        ("seed", 2**64),
        ("n", 0),
        ("logprobs", 21),
    ],
)
def test_a_sampling_parameter_outside_its_range_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{name}.*allowed is"):
        SamplingParams(**{name: value})


def test_min_tokens_cannot_exceed_max_tokens() -> None:
    with pytest.raises(ConfigError, match="min_tokens is 9; allowed is up to max_tokens"):
        SamplingParams(min_tokens=9, max_tokens=8)


@pytest.mark.parametrize(("name", "value"), [("mode", "maybe"), ("k", 65), ("k", -1), ("rule", "typical")])
def test_a_speculation_option_outside_its_range_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is .*allowed is"):
        Speculation(**{name: value})


def test_a_long_value_is_quoted_in_part() -> None:
    with pytest.raises(ConfigError) as caught:
        SamplingParams(stop=["x" * 10_000, ""])
    assert len(str(caught.value)) < 200


def test_limits_themselves_are_allowed() -> None:
    assert SamplingParams(temperature=100, top_p=1, min_p=0, seed=2**64 - 1, n=128, logprobs=20).n == 128
    assert Speculation(k=64, mode="off", rule="block").k == 64


def test_output_is_what_follows_the_prompt() -> None:
    assert Context(1, [5, 6, 7], 2, SamplingParams(), key=0).output == [7]


@pytest.mark.parametrize(
    ("params", "history"),
    [
        (SamplingParams(temperature=1, top_k=3, logit_bias={1: 2.0}), ([], [])),
        (SamplingParams(repetition_penalty=1.1), ([5, 6], [7, 8])),
        (SamplingParams(presence_penalty=-1), ([5, 6], [7, 8])),
        (SamplingParams(frequency_penalty=1), ([5, 6], [7, 8])),
        (SamplingParams(min_tokens=1), ([5, 6], [7, 8])),
    ],
)
def test_history_is_copied_for_parameters_that_look_back_only(params: SamplingParams, history: Any) -> None:
    assert Context(1, [5, 6, 7], 2, params, key=0).history([8]) == history


def test_a_chain() -> None:
    draft = Draft.chain("fake", [7, 8, 9])
    assert draft.parents == (-1, 0, 1)
    assert draft.is_chain
    assert draft.path(2) == [0, 1, 2]
    assert draft.path(-1) == []


def test_a_tree() -> None:
    draft = Draft("fake", (7, 8, 9, 6), (-1, -1, 0, 2))
    assert not draft.is_chain
    assert draft.path(3) == [0, 2, 3]
    assert draft.path(1) == [1]


def test_counters_and_rates() -> None:
    stats = SpeculationStats(num_steps=3, num_tokens=8)
    assert stats.alpha is None
    assert stats.acceptance_rate is None
    stats.record("lookup", drafted=4, accepted=4, rejected=False)
    stats.record("lookup", drafted=4, accepted=1, rejected=True)
    assert stats.accepted_per_position == [2, 1, 1, 1]
    assert stats.alpha == pytest.approx(5 / 6)
    assert stats.acceptance_rate == pytest.approx(5 / 8)
    assert stats.tokens_per_step == pytest.approx(8 / 3)


def test_counters_add_up() -> None:
    one, two = SpeculationStats(num_steps=1, num_tokens=3), SpeculationStats(num_steps=2, num_tokens=5)
    one.record("lookup", 2, 2, False)
    two.record("draft_model", 4, 3, True)
    one.add(two)
    assert one.as_dict() == {
        "num_steps": 3,
        "num_tokens": 8,
        "num_drafts": 2,
        "num_draft_tokens": 6,
        "num_accepted": 5,
        "accepted_per_position": [2, 2, 1],
        "alpha": 5 / 6,
        "acceptance_rate": 5 / 6,
        "tokens_per_step": 8 / 3,
        "num_drafts_by_proposer": {"lookup": 1, "draft_model": 1},
        "num_draft_tokens_by_proposer": {"lookup": 2, "draft_model": 4},
        "num_accepted_by_proposer": {"lookup": 2, "draft_model": 3},
    }
