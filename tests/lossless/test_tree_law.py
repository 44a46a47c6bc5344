"""Trees of a real draft model, through the whole engine: under rejection the text has the target's law, by chi-square;
under the other rules and at temperature 0 it is what they promise.

The draft model is the target in coarser weights, so that its laws are near the target's and real all the same.
"""

from __future__ import annotations

import pytest

import tiny
from foredraft.core import SamplingParams, Speculation
from foredraft.engine.llm import LLM
from foredraft.ops.base import TensorType
from text_law import NUM_DRAWS, PROMPT, drawn, law_of_texts, p_value

FALSE_ALARM = 1e-3  # for all tests of this file together
TEMPERATURES = (0.7, 1.5)
SHAPES = [(2, 2), (6, 3), (9, 2)]  # k and width


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    path = tmp_path_factory.mktemp("tree")
    target = tiny.write_tiny(path / "target.gguf", sharpness=2.0, matrix_type=TensorType.F16)
    draft = tiny.write_tiny(path / "draft.gguf", sharpness=2.0, matrix_type=TensorType.Q4_0)
    with LLM(target, draft, threads=1, max_sequences=64, proposers=("draft_model",)) as llm:
        yield llm


@pytest.fixture(scope="module")
def laws(llm):
    return {temperature: law_of_texts(llm, temperature) for temperature in TEMPERATURES}


@pytest.mark.parametrize(("k", "width"), SHAPES)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_under_rejection_the_text_has_the_targets_law(llm, laws, temperature, k, width):
    speculation = Speculation("on", k, rule="rejection", tree_width=width)
    results = drawn(llm, temperature, speculation)
    assert p_value(results, laws[temperature]) > FALSE_ALARM / len(SHAPES) / len(TEMPERATURES)
    num_accepted = sum(result.stats.num_accepted for result in results)
    assert num_accepted > NUM_DRAWS / 2
    assert num_accepted > sum(result.stats.num_drafts for result in results) / 3


@pytest.mark.parametrize("temperature", [0.0, *TEMPERATURES])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_under_exact_it_is_the_text_without_drafts(llm, temperature, width):
    how = SamplingParams(temperature=temperature, max_tokens=40, seed=7, ignore_eos=True)
    prompts = [PROMPT[:count] for count in (1, 2, 3, 4)]
    plain = llm.generate(prompts, how, Speculation("off"))
    trees = llm.generate(prompts, how, Speculation("on", 7, tree_width=width))
    assert [each.token_ids for each in trees] == [each.token_ids for each in plain]
    assert sum(each.stats.num_accepted for each in trees) > 20


def test_wider_trees_take_fewer_steps_at_the_same_depth(llm):
    """That is what they are for: with passes that reach as deep, more of the target's tokens are among the guesses."""
    how = SamplingParams(temperature=1.5, max_tokens=60, seed=3, ignore_eos=True)
    prompts = [PROMPT[:count] for count in (1, 2, 3, 4)] * 2
    steps = {}
    for k, width in ((2, 1), (8, 3)):
        results = llm.generate(prompts, how, Speculation("on", k, tree_width=width))
        steps[width] = sum(each.stats.num_steps for each in results)
    assert steps[3] < 0.85 * steps[1]
