from __future__ import annotations

import numpy as np

from fakes import VOCAB, Steps
from foredraft.constraints.pruning import pruned
from foredraft.core import Draft

# After nothing: any but multiples of 3. After 1: no 2, 5, 8. After 1, 3: no 2, 5. Then one token: the sum.
ALLOWED = (1, 3, 1, 5)


def test_a_chain_ends_before_the_first_forbidden_token():
    assert pruned(Draft.chain("x", ALLOWED), Steps(9)) == Draft.chain("x", ALLOWED)
    assert pruned(Draft.chain("x", (1, 3, 2, 4)), Steps(9)) == Draft.chain("x", (1, 3))
    assert pruned(Draft.chain("x", (3, 1)), Steps(9)).tokens == ()


def test_a_tree_loses_forbidden_nodes_and_all_below_them():
    tree = Draft("x", (3, 1, 1, 2, 3, 4), (-1, 0, -1, 2, 2, 3))
    assert pruned(tree, Steps(9)) == Draft("x", (1, 3), (-1, 0))


def test_a_whole_tree_stays_as_it_is():
    tree = Draft("x", (1, 2, 3, 3), (-1, -1, 0, 1))
    assert pruned(tree, Steps(9)) == tree


def test_a_drawn_draft_is_left_to_the_rule():
    drawn = Draft.chain("x", (3, 1), np.full((2, VOCAB), 1 / VOCAB, np.float32))
    assert pruned(drawn, Steps(9)) is drawn
