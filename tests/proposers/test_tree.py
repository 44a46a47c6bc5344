"""Trees by confidence: against a slow version by the book, and what makes them useful: any number of nodes from the
front is the best tree of that size."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import EOS, VOCAB, logits_after, next_token
from foredraft.core import Context, Draft, SamplingParams
from foredraft.proposers.base import check_draft, whole
from foredraft.proposers.tree import LEADS, FedRows, Growth, Guess, grow, guesses, most_rows
from foredraft.sampling.noise import Purpose, Stream, gumbel, noise_key
from foredraft.sampling.processors import probabilities, process

Path = tuple[int, ...]
Confidences = Mapping[Path, Sequence[tuple[int, float]]]


def context(seed: int = 0, rule: str = "exact", **params) -> Context:
    tokens = random.Random(seed).choices(range(EOS), k=6)
    return Context(seed, tokens, 4, SamplingParams(seed=seed, **params), noise_key(seed, 0), rule)


@dataclass
class Drafter:
    """A function of the path as a drafter; counts the rows of its passes."""

    rows: list[int] = field(default_factory=list)

    def __call__(self, growths: Sequence[Growth]) -> Iterator[np.ndarray]:
        self.rows.append(sum(len(growth.open) for growth in growths))
        for growth in growths:
            for node in growth.open:
                yield logits_after([*growth.context.tokens, *(guess.token for guess in growth.path(node))])


def grown(one: Context, budget: int, width: int, goes_on=whole) -> Draft:
    growth = Growth(0, one, budget, width)
    grow([growth], Drafter(), {EOS}, goes_on)
    draft = growth.draft("tree")
    assert draft is not None
    check_draft(draft, "tree", one, budget, VOCAB)
    return draft


def confidences(one: Context, path: Path, width: int) -> list[tuple[int, float]]:
    """The children of a node with their confidence, from whole arrays of noise."""
    logits = logits_after([*one.tokens, *path]).astype(np.float64)
    position, temperature = len(one.tokens) + len(path), one.params.temperature
    noise = np.zeros(VOCAB)
    if one.rule == "exact" and temperature > 0:
        noise = temperature * gumbel(one.key, Stream(Purpose.FINAL, position), np.arange(VOCAB))
    elif temperature > 0:
        logits = logits / temperature
    children = np.argsort(-(logits + noise), kind="stable")[:width]
    weights = np.exp(logits)
    weights[children] *= np.exp(noise[children])
    return [(int(child), float(weights[child] / weights.sum())) for child in children]


def by_the_book(one: Context, budget: int, width: int) -> list[tuple[Path, float]]:
    """Paths of the draft's nodes and their confidence, in order: EAGLE-2, one node after the other."""
    found: list[tuple[Path, float]] = []
    newest: list[tuple[Path, float]] = [((), 1.0)]
    while newest:
        children = [
            ((*path, token), so_far * own) for path, so_far in newest for token, own in confidences(one, path, width)
        ]
        found += children
        best = sorted(found, key=lambda node: -node[1])
        newest = [node for node in best[: budget - 1] if node in children][:width]
    return best[:budget]


def paths(draft: Draft) -> list[Path]:
    return [tuple(draft.tokens[i] for i in draft.path(node)) for node in range(len(draft.tokens))]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.integers(2, 4),
    st.sampled_from([0.0, 0.7, 1.3]),
    st.sampled_from(["exact", "rejection"]),
)
def test_trees_are_those_of_the_book(seed, budget, width, temperature, rule):
    one = context(seed, rule, temperature=temperature)
    assert paths(grown(one, budget, width)) == [path for path, _ in by_the_book(one, budget, width)]


branches = st.lists(st.sampled_from([1.0, 0.9, 0.5, 0.5, 0.3, 0.1, 0.0]), min_size=0, max_size=3)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(branches, min_size=8, max_size=8), min_size=4, max_size=4), st.integers(1, 7))
def test_any_number_of_nodes_from_the_front_is_the_best_tree_of_that_size(tables, budget):
    growth = Growth(0, context(), budget, 3)
    for table in tables:
        children = [[Guess(i, chance, 0) for i, chance in enumerate(own)] for own in table]
        growth.branch(children[: len(growth.open)])
    draft = growth.draft("tree")
    confidence = dict(zip(map(tuple, _found(growth)), growth.confidences, strict=True))
    assert draft is None or len(draft.tokens) == min(budget, len(growth.guesses))
    for count in range(len(draft.tokens) + 1) if draft else ():
        cut = draft.cut(count)
        assert all(parent < node for node, parent in enumerate(cut.parents))
        most = max(
            sum(confidence[path] for path in some)
            for some in combinations(confidence, count)
            if all(path[:-1] in some or len(path) == 1 for path in some)
        )
        assert sum(confidence[path] for path in paths(cut)) == pytest.approx(most)


def _found(growth: Growth) -> list[list[int]]:
    return [[guess.token for guess in growth.path(node)] for node in range(len(growth.guesses))]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 4), st.sampled_from([0.0, 1.0]))
def test_no_node_is_fed_in_vain_and_none_beyond_the_rows_reserved(seed, budget, width, temperature):
    """A pass has at most `width` rows of a sequence; a fed node was among the best when it was fed."""
    drafter, growth = Drafter(), Growth(0, context(seed, temperature=temperature), budget, width)
    grow([growth], drafter, {EOS}, whole)
    first, *others = drafter.rows
    assert first == 1
    assert all(1 <= rows <= width for rows in others)
    assert sum(others) <= most_rows(budget, width)
    if width == 1:
        assert sum(others) == most_rows(budget, 1) == budget - 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_chain_is_the_trunk_of_surest_children(temperature):
    """What the target's own function drafts first is what the target says, also among siblings."""
    for seed in range(10):
        one = context(seed, temperature=temperature)
        tokens: list[int] = []
        for _ in range(4):
            tokens.append(next_token(one, tokens))
        assert grown(one, 4, 1).tokens == tuple(tokens)
        assert (tokens[0],) in paths(grown(one, 4, 3))


def test_a_confident_drafter_makes_a_chain_and_an_unsure_one_branches():
    sure = Growth(0, context(), 4, 2)
    unsure = Growth(0, context(), 4, 2)
    while sure.open:
        sure.branch([[Guess(1, 0.98, 0), Guess(2, 0.01, 0)]] * len(sure.open))
    while unsure.open:
        unsure.branch([[Guess(1, 0.4, 0), Guess(2, 0.35, 0)]] * len(unsure.open))
    assert sure.draft("tree").parents == (-1, 0, 1, 2)
    assert unsure.draft("tree").parents == (-1, -1, 0, 0)


def test_confidence_tells_how_often_a_noisy_copy_of_the_logits_agrees():
    """Under the exact rule with noise shared: of a target whose logits are the drafter's and some noise of their own,
    the first sibling is chosen about as often as its confidence says, and so is the second."""
    rng = np.random.default_rng(5)
    expected, agreed = np.zeros(2), np.zeros(2)
    for seed in range(1500):
        one = context(seed, temperature=0.8)
        growth = Growth(0, one, 4, 2)
        logits = rng.normal(0, 2, VOCAB).astype(np.float32)
        first, second = guesses(logits, growth, -1, {EOS}, LEADS)
        noise = 0.8 * gumbel(one.key, Stream(Purpose.FINAL, len(one.tokens)), np.arange(VOCAB))
        chosen = int(np.argmax(logits + noise + rng.gumbel(size=VOCAB)))
        expected += first.confidence, second.confidence
        agreed += first.token == chosen, second.token == chosen
    assert np.abs(expected - agreed).max() / 1500 < 0.08
    assert agreed[0] > 2 * agreed[1]


def test_under_rejection_siblings_are_point_masses_in_the_order_of_the_law():
    one = context(3, "rejection", temperature=0.7, top_k=6)
    draft = grown(one, 6, 3)
    assert draft.probs is None
    scores = process(logits_after(one.tokens), one.params, one.prompt, one.output, {EOS})
    law = probabilities(scores, 0.7)
    roots = [token for token, parent in zip(draft.tokens, draft.parents, strict=True) if parent == -1]
    assert roots == np.argsort(-law)[: len(roots)].tolist()


def test_grades_fall_from_the_first_sibling_to_the_last():
    for seed in range(20):
        one = context(seed, temperature=1.0)
        first, *others = guesses(logits_after(one.tokens), Growth(0, one, 9, 4), -1, {EOS}, LEADS)
        assert first.grade >= 0
        grades = [guess.grade for guess in others]
        assert grades == sorted(grades, reverse=True)
        assert all(-1 - len(LEADS) <= grade <= -1 for grade in grades)


def test_siblings_are_only_what_a_constraint_allows():
    class Two:
        finish_reason = None

        def mask(self, path: Sequence[int]) -> np.ndarray:
            return np.isin(np.arange(VOCAB), [4, 5])

    one = context(1)
    one.constraint = Two()
    draft = grown(one, 7, 3)
    assert set(draft.tokens) == {4, 5}
    assert len(draft.tokens) == 7


def test_a_row_of_nan_ends_its_own_branch_only():
    one, growth = context(2), None

    def feed(growths):
        (growth,) = growths
        rows = [logits_after([*one.tokens, *(g.token for g in growth.path(node))]).copy() for node in growth.open]
        if len(rows) > 1:
            rows[0][:] = np.nan
        return rows

    growth = Growth(0, one, 6, 2)
    grow([growth], feed, {EOS}, whole)
    draft = growth.draft("tree")
    assert draft is not None
    assert 0 not in draft.parents
    assert 1 in draft.parents


def test_growing_ends_where_it_is_told_to_and_paths_are_those_to_open_nodes():
    asked = []

    def goes_on(open_paths):
        asked.append(open_paths)
        return {0} if len(asked) == 1 else {}

    draft = grown(context(4), 9, 2, goes_on)
    assert [len(path) for path in asked[0][0]] == [1, 1]
    assert {len(path) for path in asked[1][0]} == {2}
    assert max(len(path) for path in paths(draft)) == 2


def test_matching_rows_follow_the_tree():
    fed = FedRows([5, 6, 7, 7, 8, 9], [-1, -1, 1, 0, 3, 2])
    assert fed.matching([5, 7, 8, 9]) == [0, 3, 4]
    assert fed.matching([6, 7, 9]) == [1, 2, 5]
    assert fed.matching([6, 8]) == [1]
    assert fed.matching([7]) == fed.matching([]) == []


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3))
def test_no_draft_is_deeper_than_its_drafter_sees(seed, depth, width):
    drafter, growth = Drafter(), Growth(0, context(seed), 12, width, depth)
    grow([growth], drafter, {EOS}, whole)
    draft = growth.draft("tree")
    assert max(draft.depths) < len(drafter.rows) <= depth
    assert width > 1 or max(draft.depths) + 1 == depth
