"""What a verified draft tells: each of its tokens counts once at most, and only where the target came to its place."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import logits_after
from foredraft.core import Context, Draft, SamplingParams
from foredraft.governor.acceptance import LEAST_SURVIVAL, Acceptance
from foredraft.governor.shadows import Shadows
from foredraft.governor.trials import SIBLING, Trial, grades, trials
from foredraft.sampling.noise import noise_key
from foredraft.sampling.sampler import BlockNoise
from foredraft.verify import verify

# Of two guesses for the next token the second has two below it, and the first of those one.
TREE = Draft("tree", (1, 2, 3, 4, 5), (-1, -1, 1, 1, 2), grades=(3, -2, 4, -1, 2))


def test_siblings_are_tried_together_and_only_where_the_path_leads() -> None:
    assert list(trials(TREE, (1,), is_rejected=True)) == [
        Trial(3, 0, False, True),
        Trial(-2, 0, True, False),
        Trial(4, 1, False, True),
        Trial(-1, 1, False, False),
    ]
    assert list(trials(TREE, (1, 2, 4), is_rejected=False)) == [
        Trial(3, 0, False, True),
        Trial(-2, 0, True, False),
        Trial(4, 1, True, True),
        Trial(-1, 1, False, False),
        Trial(2, 2, True, True),
    ]
    assert list(trials(TREE, (), is_rejected=True)) == [Trial(3, 0, False, True), Trial(-2, 0, False, False)]


def test_what_follows_the_end_of_an_answer_was_not_tried() -> None:
    assert [trial.depth for trial in trials(TREE, (1,), is_rejected=False)] == [0, 0]
    assert list(trials(TREE, (), is_rejected=False)) == []


def test_a_chain_is_tried_up_to_the_first_refusal() -> None:
    chain = Draft.chain("chain", (5, 6, 7), grades=(1, 2, 3))
    assert list(trials(chain, (0,), is_rejected=True)) == [Trial(1, 0, True), Trial(2, 1, False)]
    assert list(trials(chain, (0, 1, 2), is_rejected=False)) == [Trial(g, d, True) for d, g in enumerate((1, 2, 3))]


def test_siblings_without_grades_are_told_from_first_guesses() -> None:
    assert grades(TREE) == [3, -2, 4, -1, 2]
    assert grades(Draft("tree", TREE.tokens, TREE.parents)) == [None, SIBLING, None, SIBLING, None]
    assert grades(Draft.chain("chain", (1, 2))) == [None, None]


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Trees over few tokens, no two siblings alike; now and then a chain."""
    tokens: list[int] = []
    parents: list[int] = []
    for _ in range(draw(st.integers(1, 9))):
        parent = draw(st.integers(-1, len(tokens) - 1))
        token = draw(st.integers(0, 3))
        if (parent, token) not in zip(parents, tokens, strict=True):
            parents.append(parent)
            tokens.append(token)
    return Draft("tree", tuple(tokens), tuple(parents))


@given(drafts(), st.integers(0, 10**6), st.sampled_from(["exact", "rejection"]))
def test_of_each_place_that_the_target_came_to_one_guess_at_most_was_right(draft: Draft, seed: int, rule: str) -> None:
    params = SamplingParams(temperature=1.0)
    noise = BlockNoise(noise_key(seed, 0), 5)

    def scores(row: int):
        return logits_after([seed % 7, *(draft.tokens[i] for i in draft.path(row - 1))])[:4]

    verdict = verify(rule, draft, scores, params.temperature, noise)
    is_rejected = (verdict.path[-1] if verdict.path else -1) in draft.parents
    found = list(trials(draft, verdict.path, is_rejected))
    assert sum(trial.is_accepted for trial in found) == len(verdict.path)
    places = {trial.depth for trial in found}
    assert places == set(range(len(verdict.path) + is_rejected))
    for place in places:
        own = [trial for trial in found if trial.depth == place]
        assert [trial.is_first for trial in own] == [True, *[False] * (len(own) - 1)]
        assert sum(trial.is_accepted for trial in own) == (place < len(verdict.path))


@given(drafts(), st.lists(st.integers(0, 3), max_size=6))
def test_a_draft_that_was_not_used_is_judged_by_what_came(draft: Draft, came: list[int]) -> None:
    """As it would have been: the same trials as of the draft under a target whose tokens these are."""
    context = Context(0, [9, 9], 2, SamplingParams(), 0)
    seen: list[list[Trial]] = []

    class Recording(Acceptance):
        def observe(self, context_id: int, route: str, proposer: str, trials: list[Trial]) -> None:
            seen.append(list(trials))

    shadows = Shadows()
    shadows.keep(context, "a", draft)
    context.tokens += came
    shadows.judge(context, Recording())
    path: list[int] = []
    for token in came:
        below = [i for i, p in enumerate(draft.parents) if p == (path[-1] if path else -1) and draft.tokens[i] == token]
        if not below:
            break
        path += below
    last = path[-1] if path else -1
    assert seen == [list(trials(draft, path, len(path) < len(came) and last in draft.parents))]


def test_planted_chances_of_siblings_are_found_and_first_guesses_keep_theirs() -> None:
    """The first guess is right in 6 of 10 cases, the second in 2, whatever is drafted below."""
    acceptance, rng = Acceptance(), random.Random(1)
    sums = [0.0, 0.0, 0.0]
    for moment in range(150):
        for _ in range(20):
            chance = rng.random()
            path = (0,) if chance < 0.6 else (1,) if chance < 0.8 else ()
            draft = Draft("p", (1, 2), (-1, -1), grades=(2, -1))
            acceptance.observe(moment, "a", "p", list(trials(draft, path, not path)))
        survival = acceptance.survival(999, "a", "p", (2, -1), (-1, -1))
        sums = [s + e for s, e in zip(sums, (*survival, acceptance.alpha(999, "a", "p", None, 0)), strict=True)]
    assert [total / 150 for total in sums] == pytest.approx([0.6, 0.2, 0.6], abs=0.08)
    assert acceptance.mean("a", "p") == pytest.approx(0.6, abs=0.2)
    assert acceptance.alpha(999, "a", "p", SIBLING, 0) == pytest.approx(0.2, abs=0.15)


graded = st.lists(st.tuples(st.integers(-6, 5), st.integers(0, 3)), min_size=1, max_size=12)


@given(graded, st.integers(0, 1000))
def test_survivals_of_a_tree_fall_and_no_node_is_above_its_parent(nodes, seed) -> None:
    acceptance, rng = Acceptance(), random.Random(seed)
    for _ in range(30):
        grade = rng.randint(-6, 5)
        acceptance.observe(0, "a", "p", [Trial(grade, 0, rng.random() < 0.5, grade >= 0)])
    parents = [max(node - 1 - back, -1) for node, (_, back) in enumerate(nodes)]
    survival = acceptance.survival(1, "a", "p", [grade for grade, _ in nodes], parents)
    assert list(survival) == sorted(survival, reverse=True)
    for node, chance in enumerate(survival):
        assert LEAST_SURVIVAL <= chance <= 1
        path, at = 1.0, node
        while at >= 0:
            depth = len(_path(parents, at)) - 1
            path *= acceptance.chance(1, "a", "p", nodes[at][0], depth)
            at = parents[at]
        assert chance <= path + 1e-12


def _path(parents: list[int], node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path
