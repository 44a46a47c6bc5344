"""Each acceptance rule against its reference by the book, row laziness, and the edges."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from foredraft.core import Draft
from foredraft.errors import ConfigError
from foredraft.sampling.sampler import BlockNoise, choose
from foredraft.verify import block, exact, reference, rejection, verify

VOCABULARY = 4


@dataclass(frozen=True)
class GivenNoise(BlockNoise):
    """Hands out given uniforms and keeps the law that the final token is drawn from."""

    uniforms: dict[tuple[int, int], float] = field(default_factory=dict)
    laws: list[tuple[int, list[float]]] = field(default_factory=list)

    def accept(self, depth: int, sibling: int = 0) -> float:
        return self.uniforms[depth, sibling]

    def final(self, depth: int, law: NDArray[np.floating]) -> int:
        self.laws.append((depth, (law / law.sum()).tolist()))
        return int(law.argmax())


Laws = list[list[Fraction]]
Case = tuple[Draft, Laws, Laws | None]


def random_case(seed: int, is_tree: bool) -> Case:
    """A draft with its target laws by row, and its own laws, or None for point masses. Laws have zeros and ties."""
    rng = random.Random(seed)
    size = rng.randint(0, 5)
    parents = tuple(rng.randint(-1, i - 1) if is_tree else i - 1 for i in range(size))
    target_laws = [random_law(rng) for _ in range(size + 1)]
    draft_laws = [random_law(rng) for _ in range(size)]
    tokens = tuple(rng.choice([x for x in range(VOCABULARY) if law[x] > 0]) for law in draft_laws)
    if rng.random() < 0.3:
        return Draft("fake", tokens, parents), target_laws, None
    probs = np.array(draft_laws, np.float32).reshape(size, VOCABULARY)
    return Draft("fake", tokens, parents, probs), target_laws, draft_laws


def random_law(rng: random.Random) -> list[Fraction]:
    weights = [rng.randint(0, 8) * rng.randint(0, 1) for _ in range(VOCABULARY)]
    weights[rng.randrange(VOCABULARY)] += 1
    return [Fraction(weight, sum(weights)) for weight in weights]


def random_uniforms(seed: int) -> dict[tuple[int, int], Fraction]:
    """One for each depth and sibling, never equal to a threshold of the laws above."""
    rng = random.Random(~seed)
    return {(d, s): Fraction(2 * rng.randrange(5000) + 1, 10007) for d in range(5) for s in range(5)}


def answers(uniforms: dict[tuple[int, int], Fraction]) -> Callable[[int, int], Fraction]:
    return lambda depth, sibling: uniforms[depth, sibling]


def given_noise(uniforms: dict[tuple[int, int], Fraction]) -> GivenNoise:
    return GivenNoise(0, 0, {place: float(u) for place, u in uniforms.items()})


def rows(target_laws: Laws) -> Callable[[int], NDArray[np.float64]]:
    return [np.array(law, np.float64) for law in target_laws].__getitem__


def test_rejection_is_the_reference() -> None:
    for seed in range(400):
        draft, target_laws, draft_laws = random_case(seed, is_tree=bool(seed % 2))
        uniforms = random_uniforms(seed)
        path, law = reference.rejection(draft.tokens, draft.parents, target_laws, draft_laws, answers(uniforms))
        noise = given_noise(uniforms)
        verdict = rejection(draft, rows(target_laws), noise)
        assert list(verdict.path) == path, seed
        # The draft's laws are float32, and a residual may be a small difference of large numbers.
        assert noise.laws == [(len(path), pytest.approx([float(x) for x in law], abs=1e-5))], seed


def test_block_is_the_reference() -> None:
    for seed in range(400):
        draft, target_laws, draft_laws = random_case(seed, is_tree=False)
        uniforms = random_uniforms(seed)
        kept, law = reference.block(draft.tokens, target_laws, draft_laws, answers(uniforms))
        noise = given_noise(uniforms)
        verdict = block(draft, rows(target_laws), noise)
        assert verdict.path == tuple(range(kept)), seed
        assert noise.laws == [(kept, pytest.approx([float(x) for x in law], abs=1e-5))], seed


def test_exact_is_the_reference() -> None:
    for seed in range(100):
        draft = random_case(seed, is_tree=True)[0]
        chosen = random.Random(seed).choices(range(VOCABULARY), k=6)
        verdict = exact(draft, chosen.__getitem__)
        assert (list(verdict.path), verdict.token) == reference.exact(draft.tokens, draft.parents, chosen), seed


def test_block_and_rejection_are_the_same_for_one_token() -> None:
    for seed in range(100):
        draft, target_laws, _ = random_case(seed, is_tree=False)
        one = Draft.chain("fake", draft.tokens[:1], None if draft.probs is None else draft.probs[:1])
        noise = given_noise(random_uniforms(seed))
        assert block(one, rows(target_laws), noise) == rejection(one, rows(target_laws), noise), seed
        assert noise.laws[0][1] == pytest.approx(noise.laws[1][1])


def test_exact_takes_the_last_tokens_row_too() -> None:
    chosen = {0: 5, 1: 6, 2: 7}
    verdict = exact(Draft.chain("fake", [5, 6]), chosen.__getitem__)
    assert (verdict.path, verdict.token) == ((0, 1), 7)


def test_exact_descends_a_tree_past_refused_siblings() -> None:
    draft = Draft("fake", (1, 2, 8, 3, 9), (-1, -1, 0, 1, 3))
    chosen = {0: 2, 2: 3, 4: 0}
    verdict = exact(draft, chosen.__getitem__)
    assert (verdict.path, verdict.token) == ((1, 3), 0)


@pytest.mark.parametrize("rule", ["exact", "rejection", "block"])
def test_rows_past_a_rejection_are_not_asked_for(rule: str) -> None:
    scores = np.array([0.0, -np.inf, -np.inf, -np.inf])  # the target always says 0
    asked: list[int] = []

    def target_scores(row: int) -> NDArray[np.float64]:
        asked.append(row)
        return scores

    verdict = verify(rule, Draft.chain("fake", [0, 3, 0, 0]), target_scores, 1.0, BlockNoise(1, 1))
    assert (verdict.path, verdict.token) == ((0,), 0)
    assert asked == [0, 1]


@pytest.mark.parametrize("rule", ["exact", "rejection", "block"])
def test_a_draft_without_tokens_gives_the_targets_own_token(rule: str) -> None:
    scores = np.random.default_rng(0).standard_normal(20)
    for key in range(20):
        verdict = verify(rule, Draft.chain("none", []), lambda row: scores, 1.0, BlockNoise(key, 6))
        assert verdict.path == ()
        assert verdict.token == choose(scores, 1.0, key, 6)


@pytest.mark.parametrize("rule", ["exact", "rejection", "block"])
def test_at_temperature_0_every_rule_is_exact_even_for_trees(rule: str) -> None:
    table = np.eye(4, dtype=np.float32)[[2, 1, 3, 0]]
    draft = Draft("fake", (1, 2, 3), (-1, -1, 1))
    verdict = verify(rule, draft, lambda row: table[row], 0.0, BlockNoise(1, 1))
    assert (verdict.path, verdict.token) == ((1, 2), 0)


def test_target_laws_are_not_changed() -> None:
    law = np.array([0.25, 0.25, 0.25, 0.25])
    probs = np.array([[0.5, 0.5, 0, 0]] * 2, np.float32)
    for rule in (rejection, block):
        for key in range(20):
            rule(Draft.chain("fake", [0, 1], probs), lambda row: law, BlockNoise(key, 0))
    assert law.tolist() == [0.25] * 4


def test_a_token_that_its_own_law_excludes_is_refused() -> None:
    law = np.array([1.0, 0, 0, 0])
    draft = Draft.chain("fake", [0], np.array([[0, 1, 0, 0]], np.float32))
    for rule in (rejection, block):
        verdict = rule(draft, lambda row: law, BlockNoise(3, 0))
        assert (verdict.path, verdict.token) == ((), 0)


def test_block_refuses_trees() -> None:
    with pytest.raises(ConfigError, match="chains only"):
        verify("block", Draft("fake", (1, 2), (-1, -1)), lambda row: np.zeros(4), 1.0, BlockNoise(0, 0))


def test_an_unknown_rule_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'typical'; allowed is exact, rejection, block"):
        verify("typical", Draft.chain("fake", [1]), lambda row: np.zeros(4), 1.0, BlockNoise(0, 0))
