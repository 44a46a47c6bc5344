"""Sampled text has the target's law: chi-square, through the real noise, processors and rules.

Every kind of drafter, under every rule, at several temperatures and truncations. The seed differs from draw to draw
(one seed at one position is one number), and all seeds come from a fixed one, so a result is always the same. What is
compared is the joint law of three tokens, made in steps of two drafted tokens, so blocks overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from foredraft.core import Draft, SamplingParams
from foredraft.sampling.noise import Purpose, Stream, noise_key, uniform
from foredraft.sampling.processors import Scores, probabilities, process
from foredraft.sampling.sampler import BlockNoise, choose, draft_token
from foredraft.verify import verify

MASTER_SEED = 20_403
NUM_DRAWS = 1000
VOCABULARY, LENGTH, K = 4, 3, 2
KEPT = (0, 3)
PROMPT = (0, 2)
FALSE_ALARM = 1e-3  # for all tests of this file together

Path = tuple[int, ...]


@dataclass(frozen=True)
class FakeModel:
    """Fixed random logits for each path, near those of another model if `near` is given."""

    seed: int
    near: FakeModel | None = None
    made: dict[Path, NDArray[np.float32]] = field(default_factory=dict)

    def logits(self, output: Path) -> NDArray[np.float32]:
        if output not in self.made:
            noise = np.random.default_rng([self.seed, *output]).standard_normal(VOCABULARY)
            base = self.near.logits(output) if self.near else 0
            self.made[output] = (base + noise).astype(np.float32)
        return self.made[output]


TARGET = FakeModel(1)
DRAFT_MODEL = FakeModel(2, near=TARGET)
PARAMS = {
    "T 0.7": SamplingParams(temperature=0.7),
    "T 1, top-k 2, bias": SamplingParams(temperature=1.0, top_k=2, logit_bias={1: 1.5}),
    "T 0.7, top-p 0.8, min_tokens": SamplingParams(temperature=0.7, top_p=0.8, min_tokens=2, stop_token_ids=(3,)),
    "T 1.3, min-p 0.2, penalties": SamplingParams(
        temperature=1.3, min_p=0.2, repetition_penalty=1.3, frequency_penalty=0.5, presence_penalty=0.2
    ),
}


@cache
def scores(model_seed: int, params: str, output: Path) -> Scores:
    model = TARGET if model_seed == TARGET.seed else DRAFT_MODEL
    return process(model.logits(output), PARAMS[params], PROMPT, output, [])


def law_of(model_seed: int, params: str, output: Path) -> NDArray[np.float64]:
    return probabilities(scores(model_seed, params, output), PARAMS[params].temperature)


def point_mass(params: str, rule: str, output: Path, noise: BlockNoise) -> Draft:
    tokens: list[int] = []
    for _ in range(K):
        tokens.append(int(scores(DRAFT_MODEL.seed, params, (*output, *tokens)).argmax()))
    return Draft.chain("point", tokens)


def draft_model(params: str, rule: str, output: Path, noise: BlockNoise) -> Draft:
    """As the library drafts: shared noise under exact, noise of its own and its law under the others."""
    tokens: list[int] = []
    laws = []
    for depth in range(K):
        token, law = draft_token(
            scores(DRAFT_MODEL.seed, params, (*output, *tokens)), PARAMS[params].temperature, rule, noise, depth
        )
        tokens.append(token)
        laws.append(law)
    return Draft.chain("model", tokens, None if rule == "exact" else np.array(laws))


def trimmed(params: str, rule: str, output: Path, noise: BlockNoise) -> Draft:
    """As a draft model with a trimmed vocabulary drafts: two tokens it never drafts, and its law has zeros there."""
    tokens: list[int] = []
    laws = []
    for depth in range(K):
        path = (*output, *tokens)
        logits = np.where(np.isin(range(VOCABULARY), KEPT), DRAFT_MODEL.logits(path), -np.inf).astype(np.float32)
        kept = process(logits, PARAMS[params], PROMPT, path, [])
        token, law = draft_token(kept, PARAMS[params].temperature, rule, noise, depth)
        tokens.append(token)
        laws.append(law)
    assert set(tokens) <= set(KEPT)
    return Draft.chain("trimmed", tokens, None if rule == "exact" else np.array(laws))


def independent(params: str, rule: str, output: Path, noise: BlockNoise) -> Draft:
    """Draws with noise that nobody shares, which exact allows as it allows any draft."""
    tokens: list[int] = []
    for depth in range(K):
        law = law_of(DRAFT_MODEL.seed, params, (*output, *tokens))
        tokens.append(noise.draft(depth, law))
    return Draft.chain("independent", tokens)


def point_tree(params: str, rule: str, output: Path, noise: BlockNoise) -> Draft:
    first, second = (int(x) for x in np.argsort(-scores(DRAFT_MODEL.seed, params, output), kind="stable")[:2])
    below = [int(scores(DRAFT_MODEL.seed, params, (*output, x)).argmax()) for x in (first, second)]
    return Draft("tree", (first, second, *below), (-1, -1, 0, 1))


Drafter = Callable[[str, str, Path, BlockNoise], Draft]
CASES: list[tuple[str, Drafter]] = [
    ("exact", point_mass),
    ("exact", draft_model),
    ("exact", trimmed),
    ("exact", independent),
    ("exact", point_tree),
    ("rejection", point_mass),
    ("rejection", draft_model),
    ("rejection", trimmed),
    ("rejection", point_tree),
    ("block", point_mass),
    ("block", draft_model),
    ("block", trimmed),
]


def generate(rule: str, drafter: Drafter, params: str, key: int) -> Path:
    output: Path = ()
    temperature = PARAMS[params].temperature
    while len(output) < LENGTH:
        noise = BlockNoise(key, len(PROMPT) + len(output))
        draft = drafter(params, rule, output, noise)
        verdict = verify(rule, draft, lambda row, d=draft, o=output: row_scores(params, d, o, row), temperature, noise)
        output += (*(draft.tokens[i] for i in verdict.path), verdict.token)
    return output[:LENGTH]


def row_scores(params: str, draft: Draft, output: Path, row: int) -> Scores:
    return scores(TARGET.seed, params, (*output, *(draft.tokens[i] for i in draft.path(row - 1))))


def keys() -> list[int]:
    seeds = np.random.default_rng(MASTER_SEED).integers(0, 2**63, NUM_DRAWS)
    return [noise_key(int(seed), 0) for seed in seeds]


def expected_counts(params: str) -> dict[Path, float]:
    expected = {}
    for path in product(range(VOCABULARY), repeat=LENGTH):
        laws = [law_of(TARGET.seed, params, path[:i]) for i in range(LENGTH)]
        expected[path] = NUM_DRAWS * float(np.prod([laws[i][path[i]] for i in range(LENGTH)]))
    return expected


def p_value(counts: Counter[Path], expected: dict[Path, float]) -> float:
    """Chi-square with all paths expected fewer than 5 times pooled. A path that cannot be must not have been."""
    assert all(expected[path] > 0 for path in counts)
    common = [path for path in expected if expected[path] >= 5]
    observed = [counts[path] for path in common]
    wanted = [expected[path] for path in common]
    rest = NUM_DRAWS - sum(wanted)
    if rest >= 5:
        observed.append(NUM_DRAWS - sum(observed))
        wanted.append(rest)
    else:  # too few to test alone: leave them out of both sides
        wanted = [w * sum(observed) / sum(wanted) for w in wanted]
    return float(stats.chisquare(observed, wanted).pvalue)


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize(("rule", "drafter"), CASES)
def test_sampled_text_has_the_targets_law(rule: str, drafter: Drafter, params: str) -> None:
    counts = Counter(generate(rule, drafter, params, key) for key in keys())
    assert p_value(counts, expected_counts(params)) > FALSE_ALARM / (len(CASES) * len(PARAMS))


@pytest.mark.parametrize("drafter", [point_mass, draft_model, trimmed, independent, point_tree])
def test_exact_gives_the_very_text_that_the_target_alone_gives(drafter: Drafter) -> None:
    def alone(params: str, rule: str, output: Path, noise: BlockNoise) -> Draft:
        return Draft.chain("none", [])

    for params in PARAMS:
        for key in keys()[:100]:
            assert generate("exact", drafter, params, key) == generate("exact", alone, params, key)


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_drafter_that_misstates_its_law_is_noticed(rule: str) -> None:
    """The most likely tokens, scored with the law: the fault that these tests exist for."""

    def misstating(params: str, rule: str, output: Path, noise: BlockNoise) -> Draft:
        draft = point_mass(params, rule, output, noise)
        laws = [law_of(DRAFT_MODEL.seed, params, (*output, *draft.tokens[:i])) for i in range(K)]
        return Draft.chain("misstating", draft.tokens, np.array(laws, np.float32))

    counts = Counter(generate(rule, misstating, "T 0.7", key) for key in keys())
    assert p_value(counts, expected_counts("T 0.7")) < FALSE_ALARM / (len(CASES) * len(PARAMS))


def agreement(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Chance that argmax(log p + G) equals argmax(log q + G): sum over x of 1 / sum over y of max(p_y/p_x, q_y/q_x)."""
    return float(sum(1 / np.maximum(p / p[x], q / q[x]).sum() for x in range(p.size) if p[x] > 0 and q[x] > 0))


def test_shared_noise_agrees_as_often_as_the_formula_says() -> None:
    logits = TARGET.logits(()), DRAFT_MODEL.logits(())
    p, q = probabilities(logits[0], 1.0), probabilities(logits[1], 1.0)
    agreed = np.mean([choose(logits[0], 1.0, key, 0) == choose(logits[1], 1.0, key, 0) for key in keys()])
    chance = agreement(p, q)
    assert abs(agreed - chance) < 4 * np.sqrt(chance * (1 - chance) / NUM_DRAWS)
    assert chance > float((p * q).sum()) + 0.05  # noise that is not shared agrees less often


def test_the_agreement_lies_between_its_bounds() -> None:
    rng = np.random.default_rng(MASTER_SEED)
    for _ in range(200):
        p, q = rng.dirichlet([0.5] * 6), rng.dirichlet([0.5] * 6)
        variation = float(np.abs(p - q).sum() / 2)
        assert (1 - variation) / (1 + variation) - 1e-9 <= agreement(p, q) <= 1 - variation + 1e-9


def test_accept_numbers_do_not_follow_final_numbers() -> None:
    """Over seeds, at one position: purposes are independent."""
    pairs = [(uniform(key, Stream(Purpose.ACCEPT, 3, 3)), uniform(key, Stream(Purpose.FINAL, 3), 0)) for key in keys()]
    assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 4 / np.sqrt(NUM_DRAWS)
