"""The tree that is likely to grow, against all trees there could be."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.core import Draft
from foredraft.governor.shape import alphas, likely_tree, num_rows

chances = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=4)


@given(chances, st.floats(0.0, 0.4), st.integers(1, 3), st.integers(1, 12))
def test_it_has_the_surest_nodes_of_all(alpha, sibling, width, num_tokens):
    """Where no depth has more nodes than may have children, which is all that keeps any out."""
    survival, parents = likely_tree(alpha, [sibling] * len(alpha), width, num_tokens)
    assert len(survival) == len(parents) <= num_tokens
    assert list(survival) == sorted(survival, reverse=True)
    assert all(-1 <= parent < node for node, parent in enumerate(parents))
    totals = [min(sibling * (width - 1), 0.9 * (1 - a)) for a in alpha]
    shares = {1: [], 2: [1.0], 3: [2 / 3, 1 / 3]}[width]
    siblings = [[a, *(min(a, total * share) for share in shares)] for a, total in zip(alpha, totals, strict=True)]
    everything = sorted(
        (prod(path) for depth in range(1, len(alpha) + 1) for path in product(*siblings[:depth])), reverse=True
    )
    draft = Draft("p", (0,) * len(parents), parents)
    sizes = [draft.depths.count(depth) for depth in range(len(alpha))]
    if max(sizes) <= width:
        assert survival == pytest.approx([each for each in everything if each >= 0.01][:num_tokens])
    assert sum(survival) <= sum(everything[:num_tokens]) + 1e-9


@given(chances, st.integers(1, 12))
def test_of_width_1_it_is_the_chain(alpha, num_tokens):
    survival, parents = likely_tree(alpha, alpha, 1, num_tokens)
    assert parents == tuple(range(-1, len(parents) - 1))
    assert list(survival) == pytest.approx([prod(alpha[: depth + 1]) for depth in range(len(survival))])
    assert alphas(survival) == pytest.approx(alpha[: len(survival)])


def test_a_sure_chain_comes_before_any_second_guess():
    assert likely_tree([0.95] * 4, [0.2] * 4, 3, 4)[1] == (-1, 0, 1, 2)
    assert likely_tree([0.5] * 4, [0.2] * 4, 3, 3)[1] == (-1, -1, 0)


@given(chances, st.integers(1, 3), st.integers(1, 12))
def test_no_pass_has_more_rows_of_a_sequence_than_the_width(alpha, width, num_tokens):
    _, parents = likely_tree(alpha, [0.2] * len(alpha), width, num_tokens)
    rows = num_rows(Draft("p", (0,) * len(parents), parents))
    assert sorted(rows) == list(range(len(rows)))
    assert all(1 <= count <= width for count in rows.values())
    assert not parents or rows[0] == 1


def test_rows_are_the_tokens_that_have_children():
    assert num_rows(Draft.chain("p", (1, 2, 3))) == {0: 1, 1: 1, 2: 1}
    assert num_rows(Draft("p", (1, 2, 3, 4, 5), (-1, -1, 0, 1, 1))) == {0: 1, 1: 2}
    assert num_rows(Draft("p", (), ())) == {}
