"""Drafts that the governor cuts short keep the target's law, as long as it cuts them as the design allows.

A sampled draft may be cut to a length that was chosen before, or end after a token because of that token; a draft that
was chosen deterministically may be cut for any reason.
"""

from __future__ import annotations

from collections import Counter

import pytest
from test_statistics import (
    FALSE_ALARM,
    PARAMS,
    Drafter,
    K,
    Path,
    draft_model,
    expected_counts,
    generate,
    keys,
    p_value,
    point_mass,
)

from foredraft.core import Draft
from foredraft.sampling.sampler import BlockNoise


def planned(params: str, rule: str, output: Path, noise: BlockNoise) -> Draft:
    """Cut to what depends on the text before alone, nothing included, as it is for other loads and other estimates."""
    return draft_model(params, rule, output, noise).cut((sum(output) + len(output)) % (K + 1))


def unsure(params: str, rule: str, output: Path, noise: BlockNoise) -> Draft:
    """Ends after a token that looks doubtful."""
    draft = draft_model(params, rule, output, noise)
    return draft.cut(1) if draft.tokens[0] < 2 else draft


def judged(params: str, rule: str, output: Path, noise: BlockNoise) -> Draft:
    """A point mass without the tokens that look doubtful."""
    draft = point_mass(params, rule, output, noise)
    return draft.cut(next((i for i, token in enumerate(draft.tokens) if token == 1), K))


def picked(params: str, rule: str, output: Path, noise: BlockNoise) -> Draft:
    """What must not be done: a sampled token that looks doubtful is left out."""
    draft = draft_model(params, rule, output, noise)
    return draft.cut(next((i for i, token in enumerate(draft.tokens) if token == 1), K))


CASES = [(rule, drafter) for rule in ("rejection", "block") for drafter in (planned, unsure, judged)]


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize(("rule", "drafter"), CASES)
def test_drafts_that_are_cut_keep_the_law(rule: str, drafter: Drafter, params: str) -> None:
    counts = Counter(generate(rule, drafter, params, key) for key in keys())
    assert p_value(counts, expected_counts(params)) > FALSE_ALARM / (len(CASES) * len(PARAMS))


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_leaving_out_a_token_for_what_it_is_would_be_noticed(rule: str) -> None:
    counts = Counter(generate(rule, picked, "T 0.7", key) for key in keys())
    assert p_value(counts, expected_counts("T 0.7")) < FALSE_ALARM / (len(CASES) * len(PARAMS))


@pytest.mark.parametrize("drafter", [planned, unsure, judged, picked])
def test_exact_gives_the_same_text_however_drafts_are_cut(drafter: Drafter) -> None:
    for params in PARAMS:
        for key in keys()[:100]:
            assert generate("exact", drafter, params, key) == generate("exact", point_mass, params, key)
