"""The law of short texts of a loaded model, exactly, and drawn texts held against it by chi-square.

top_k keeps the number of texts small enough to count.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from scipy import stats

from foredraft.core import SamplingParams, Speculation
from foredraft.engine.llm import LLM
from foredraft.engine.results import Result
from foredraft.sampling.processors import probabilities, process

NUM_DRAWS, LENGTH, TOP_K = 1200, 3, 3
PROMPT = [5, 80, 200, 31]

Law = dict[tuple[int, ...], float]


def params(temperature: float, **more) -> SamplingParams:
    return SamplingParams(temperature=temperature, top_k=TOP_K, max_tokens=LENGTH, ignore_eos=True, **more)


def law_of_texts(llm: LLM, temperature: float) -> Law:
    """The chance of every text: each token's law is from a pass without drafts."""

    def law(output: tuple[int, ...]) -> np.ndarray:
        [result] = llm.generate(
            [[*PROMPT, *output]], SamplingParams(max_tokens=1, logprobs=20, ignore_eos=True), Speculation("off")
        )
        logits = np.full(llm.tokenizer.vocab_size, -np.inf, np.float32)
        for token, logprob in result.choices[0].logprobs[0].top:
            logits[token] = logprob
        return probabilities(process(logits, params(temperature), [], [], ()), temperature)

    found: Law = {(): 1.0}
    for _ in range(LENGTH):
        found = {
            (*text, int(token)): chance * float(own[token])
            for text, chance in found.items()
            for own in [law(text)]
            for token in np.flatnonzero(own)
        }
    return found


def drawn(llm: LLM, temperature: float, speculation: Speculation) -> list[Result]:
    """Texts of as many seeds, the same ones every time."""
    seeds = range(10_000, 10_000 + NUM_DRAWS)
    return llm.generate([PROMPT] * NUM_DRAWS, [params(temperature, seed=seed) for seed in seeds], speculation)


def p_value(results: list[Result], law: Law) -> float:
    """How likely texts as uncommon are under the law; 0 where one is impossible."""
    counts = Counter(tuple(result.token_ids) for result in results)
    expected = {text: len(results) * chance for text, chance in law.items()}
    if not counts.keys() <= expected.keys():
        return 0.0
    common = [text for text, count in expected.items() if count >= 5]
    observed, wanted = [counts[text] for text in common], [expected[text] for text in common]
    if (rest := len(results) - sum(wanted)) >= 5:
        observed.append(len(results) - sum(observed))
        wanted.append(rest)
    assert len(wanted) > 8
    return float(stats.chisquare(observed, [count * sum(observed) / sum(wanted) for count in wanted]).pvalue)
