"""The tree that a proposer is likely to grow, before it has grown: its shape, and the chances of its tokens. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise

from foredraft.core import Draft
from foredraft.governor.acceptance import LEAST_SURVIVAL


def likely_tree(
    alphas: Sequence[float], siblings: Sequence[float], width: int, num_tokens: int
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The surest tokens in falling order: for each the chance that it and all before it are accepted, and its parent.

    alphas: by depth, the chance of the first guess for a place; siblings: the same of one of the others, in the mean.
    At each depth the `width` surest tokens have `width` children each, as proposers/tree.py grows them.
    """
    survival: list[float] = []
    parents: list[int] = []
    num_open = [0] * (len(alphas) + 1)
    chances = [_children(*each, width) for each in zip(alphas, siblings, strict=True)]
    heap = [(-chance, -1, 0) for chance in chances[0]] if chances else []
    while heap and len(survival) < num_tokens:
        negative, parent, depth = heappop(heap)
        if -negative < LEAST_SURVIVAL:
            break
        survival.append(-negative)
        parents.append(parent)
        num_open[depth] += 1
        if depth + 1 < len(alphas) and num_open[depth] <= width:
            for chance in chances[depth + 1]:
                heappush(heap, (negative * chance, len(survival) - 1, depth + 1))
    return tuple(survival), tuple(parents)


def _children(alpha: float, sibling: float, width: int) -> list[float]:
    """Chances of a place's guesses, each sibling half as likely as the one before it. The first guess is the surest,
    and all together leave the target a tenth of what the first leaves it."""
    shares = [2.0**-rank for rank in range(1, width)]
    total = min(sibling * len(shares), 0.9 * (1 - alpha))
    return [alpha, *(min(alpha, total * share / sum(shares)) for share in shares)]


def alphas(survival: Sequence[float]) -> list[float]:
    """The chance of each token of a chain, given that all before it are accepted."""
    return [after / before for before, after in pairwise((1.0, *survival))]


def num_rows(draft: Draft) -> dict[int, int]:
    """How many rows its proposer's passes had for a draft, by depth: one for each token that has children below."""
    opened = {(parent, depth) for parent, depth in zip(draft.parents, draft.depths, strict=True)}
    return Counter(depth for _, depth in opened)
