"""The acceptance rules by the book, slowly: the specification that exact.py, rejection.py and block.py are tested by.

Laws are plain lists of numbers, floats or fractions.Fraction, one per token; random numbers are passed in; the law of
the final token is returned rather than drawn from. q None in a list of draft laws means a point mass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

Number = TypeVar("Number", float, Fraction)
Law = list[Number]


def exact(tokens: Sequence[int], parents: Sequence[int], chosen: Sequence[int]) -> tuple[list[int], int]:
    """The accepted path and the next token; `chosen[row]` is the target's token after a row (0 is the context's)."""
    path: list[int] = []
    node = -1
    while True:
        matching = [i for i in range(len(tokens)) if parents[i] == node and tokens[i] == chosen[node + 1]]
        if not matching:
            return path, chosen[node + 1]
        node = matching[0]
        path.append(node)


def rejection(
    tokens: Sequence[int],
    parents: Sequence[int],
    target_laws: Sequence[Law[Number]],
    draft_laws: Sequence[Law[Number]] | None,
    accept: Callable[[int, int], Number],
) -> tuple[list[int], Law[Number]]:
    """Leviathan et al. 2211.17192, algorithm 1; for trees SpecInfer 2305.09781, algorithm 2.

    The accepted path and the law of the final token. `accept(depth, sibling)` is the uniform of a test.
    """
    path: list[int] = []
    node = -1
    p = target_laws[0]
    while True:
        children = [i for i in range(len(tokens)) if parents[i] == node]
        for sibling, child in enumerate(children):
            q = point_mass(tokens[child], p) if draft_laws is None else draft_laws[child]
            if accept(len(path), sibling) < p[tokens[child]] / q[tokens[child]]:
                break
            p = normalize([max(p[x] - q[x], 0 * p[x]) for x in range(len(p))], p)
        else:
            return path, p
        path.append(child)
        node = child
        p = target_laws[node + 1]


def block(
    tokens: Sequence[int],
    target_laws: Sequence[Law[Number]],
    draft_laws: Sequence[Law[Number]] | None,
    accept: Callable[[int, int], Number],
) -> tuple[int, Law[Number]]:
    """Sun et al. 2403.10444, algorithm 2: the number of accepted tokens and the law of the final token."""
    k = len(tokens)
    one = 1 + 0 * target_laws[0][0]
    p = target_laws
    q = [point_mass(tokens[i], p[i]) for i in range(k)] if draft_laws is None else draft_laws
    reach = [one]
    for i in range(1, k + 1):
        reach.append(min(reach[i - 1] * p[i - 1][tokens[i - 1]] / q[i - 1][tokens[i - 1]], one))

    def left(i: int) -> Law[Number]:
        return [max(reach[i] * p[i][x] - q[i][x], 0 * one) for x in range(len(p[i]))]

    kept = 0
    for i in range(1, k + 1):
        if i == k:
            h = reach[k]
        else:
            rest = sum(left(i), 0 * one)
            h = rest / (rest + 1 - reach[i]) if rest + 1 - reach[i] > 0 else one
        if accept(i - 1, 0) < h:
            kept = i
    return kept, p[k] if kept == k else normalize(left(kept), p[kept])


def point_mass(token: int, like: Law[Number]) -> Law[Number]:
    """The law of a token that was chosen deterministically."""
    return [1 + 0 * like[x] if x == token else 0 * like[x] for x in range(len(like))]


def normalize(weights: Law[Number], fallback: Law[Number]) -> Law[Number]:
    """Weights over their sum, or `fallback` where that is 0."""
    total = sum(weights, 0 * weights[0])
    return [w / total for w in weights] if total > 0 else fallback
