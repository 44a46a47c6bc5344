"""Trees of a real draft model, through the whole engine: under rejection the text has the target's law, by chi-square;
under the other rules and at temperature 0 it is what they promise.

The draft model is the target in coarser weights, so that its laws are near the target's and real all the same. top_k
keeps the number of texts small enough to count.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import stats

import tiny
from foredraft.core import SamplingParams, Speculation
from foredraft.engine.llm import LLM
from foredraft.ops.base import TensorType
from foredraft.sampling.processors import probabilities, process

NUM_DRAWS, LENGTH, TOP_K = 1200, 3, 3
FALSE_ALARM = 1e-3  # for all tests of this file together
PROMPT = [5, 80, 200, 31]
TEMPERATURES = (0.7, 1.5)
SHAPES = [(2, 2), (6, 3), (9, 2)]  # k and width


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    path = tmp_path_factory.mktemp("tree")
    target = tiny.write_tiny(path / "target.gguf", sharpness=2.0, matrix_type=TensorType.F16)
    draft = tiny.write_tiny(path / "draft.gguf", sharpness=2.0, matrix_type=TensorType.Q4_0)
    with LLM(target, draft, threads=1, max_sequences=64, proposers=("draft_model",)) as llm:
        yield llm


def params(temperature: float, **more) -> SamplingParams:
    return SamplingParams(temperature=temperature, top_k=TOP_K, max_tokens=LENGTH, ignore_eos=True, **more)


@pytest.fixture(scope="module")
def laws(llm):
    """The target's law of every text, by temperature: each token's from a pass without drafts."""

    def law(output: list[int], temperature: float) -> np.ndarray:
        [result] = llm.generate(
            [[*PROMPT, *output]], SamplingParams(max_tokens=1, logprobs=20, ignore_eos=True), Speculation("off")
        )
        logits = np.full(288, -np.inf, np.float32)
        for token, logprob in result.choices[0].logprobs[0].top:
            logits[token] = logprob
        return probabilities(process(logits, params(temperature), [], [], ()), temperature)

    def texts(temperature: float) -> dict[tuple[int, ...], float]:
        found = {(): 1.0}
        for _ in range(LENGTH):
            found = {
                (*text, int(token)): chance * float(own[token])
                for text, chance in found.items()
                for own in [law(list(text), temperature)]
                for token in np.flatnonzero(own)
            }
        return found

    return {temperature: texts(temperature) for temperature in TEMPERATURES}


def drawn(llm: LLM, temperature: float, speculation: Speculation) -> tuple[Counter[tuple[int, ...]], list]:
    seeds = range(10_000, 10_000 + NUM_DRAWS)
    results = llm.generate([PROMPT] * NUM_DRAWS, [params(temperature, seed=seed) for seed in seeds], speculation)
    return Counter(tuple(result.token_ids) for result in results), results


@pytest.mark.parametrize(("k", "width"), SHAPES)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_under_rejection_the_text_has_the_targets_law(llm, laws, temperature, k, width):
    speculation = Speculation("on", k, rule="rejection", tree_width=width)
    counts, results = drawn(llm, temperature, speculation)
    expected = {text: NUM_DRAWS * chance for text, chance in laws[temperature].items()}
    assert counts.keys() <= expected.keys()
    common = [text for text, count in expected.items() if count >= 5]
    observed = [counts[text] for text in common]
    wanted = [expected[text] for text in common]
    if (rest := NUM_DRAWS - sum(wanted)) >= 5:
        observed.append(NUM_DRAWS - sum(observed))
        wanted.append(rest)
    wanted = [count * sum(observed) / sum(wanted) for count in wanted]
    assert len(wanted) > 8
    assert stats.chisquare(observed, wanted).pvalue > FALSE_ALARM / len(SHAPES) / len(TEMPERATURES)
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
