"""Under a constraint the joint law is that of the target's masked laws, whatever drafts and however drafts are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from enumeration import Law, SymbolicNoise, Table, target_law
from test_enumeration import (
    CASES,
    DRAFTERS,
    Drafter,
    distance,
    each_key_is_read_once,
    generated_law,
    sampling,
    table,
)

from foredraft.constraints.pruning import pruned
from foredraft.core import BoolArray, Constraint, Draft

Pruning = Callable[[Draft, Constraint], Draft]


class OddSteps:
    """Allows about half of the tokens after each path, at least one."""

    finish_reason = None

    def __init__(self, output: tuple[int, ...], vocabulary: int) -> None:
        self._output, self._vocabulary = output, vocabulary

    def mask(self, path: Sequence[int]) -> BoolArray:
        rng = np.random.default_rng([7, *self._output, *path])
        mask = rng.random(self._vocabulary) < 0.5
        mask[rng.integers(self._vocabulary)] = True
        return mask

    def num_allowed(self, tokens: Sequence[int]) -> int:
        return next((i for i, token in enumerate(tokens) if not self.mask(tokens[:i])[token]), len(tokens))

    def forced(self) -> list[int]:
        return []

    def advance(self, token: int) -> None:
        raise NotImplementedError


def masked(law_of: Table, vocabulary: int) -> Table:
    """Each path's law over what the constraint allows; uniform there if the law allows none of it."""

    def law(path: tuple[int, ...]) -> Law:
        mask = OddSteps(path, vocabulary).mask(())
        left = np.where(mask, law_of(path), 0.0)
        return left / left.sum() if left.sum() > 0 else mask / mask.sum()

    return law


def cut(drafter: Drafter, vocabulary: int, pruning: Pruning = pruned) -> Drafter:
    """Drafts as the engine verifies them."""

    def draft(path: tuple[int, ...], k: int, noise: SymbolicNoise) -> Draft:
        return pruning(drafter(path, k, noise), OddSteps(path, vocabulary))

    return draft


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("rule", "drafter"), CASES)
def test_the_joint_law_is_the_masked_targets(rule: str, drafter: str, seed: int) -> None:
    target, made = masked(table(3, seed), 3), DRAFTERS[drafter](table(3, seed + 100))
    check = (lambda oracle: None) if rule == "exact" else each_key_is_read_once
    law = generated_law(rule, cut(made, 3), target, 2, 2, check=check)
    assert sum(law.values()) == pytest.approx(1.0)
    assert distance(law, target_law(target, 2, 3)) < 1e-9


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_drafter_that_draws_from_masked_laws_keeps_the_law(rule: str) -> None:
    target, made = masked(table(3, 1), 3), sampling(masked(table(3, 101), 3))
    # Masked laws are not exact in float32, in which the draft's are kept.
    assert distance(generated_law(rule, made, target, 2, 2), target_law(target, 2, 3)) < 1e-7


def always(draft: Draft, constraint: Constraint) -> Draft:
    """The fault that `pruned` avoids: a drawn token is left out because of what it is."""
    kept = constraint.num_allowed(draft.tokens)
    return Draft.chain(draft.proposer, draft.tokens[:kept], None if draft.probs is None else draft.probs[:kept])


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_cutting_drafts_that_were_drawn_is_noticed(rule: str) -> None:
    worst = 0.0
    for seed in (1, 2, 3):
        target, made = masked(table(3, seed), 3), sampling(table(3, seed + 100))
        law = generated_law(rule, cut(made, 3, always), target, 2, 2)
        worst = max(worst, distance(law, target_law(target, 2, 3)))
    assert worst > 1e-3
