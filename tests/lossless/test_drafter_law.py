"""A learned drafter's own laws, through the whole engine: the text has the target's law, by chi-square."""

from __future__ import annotations

import pytest

import tiny_drafters
from foredraft.core import Speculation
from foredraft.engine.llm import LLM
from text_law import NUM_DRAWS, drawn, law_of_texts, p_value

FALSE_ALARM = 1e-3  # for all tests of this file together
CASES = [("rejection", 1), ("rejection", 2), ("block", 1), ("exact", 1)]  # rule and width
TEMPERATURES = (0.7, 1.5)


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    """The head's laws are near the target's and not the same."""
    target, head = tiny_drafters.write_knowing(tmp_path_factory.mktemp("law"), noise=0.02)
    with LLM(target, drafters=[head], threads=1, max_sequences=64) as llm:
        yield llm


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(("rule", "width"), CASES)
def test_the_text_has_the_targets_law(llm, rule, width, temperature):
    results = drawn(llm, temperature, Speculation("on", 2, ("eagle",), rule, tree_width=width))
    law = law_of_texts(llm, temperature)
    assert p_value(results, law) > FALSE_ALARM / len(CASES) / len(TEMPERATURES)
    num_accepted = sum(result.stats.num_accepted for result in results)
    num_refused = sum(result.stats.num_ended_by_rejection for result in results)
    assert num_accepted > NUM_DRAWS / 5
    assert num_refused > NUM_DRAWS / 20
