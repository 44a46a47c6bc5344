"""The rule `exact`: keep drafted tokens while they are the ones that the target chooses itself.

The target's choice depends on the path and the request's key alone (sampling/noise.py), so the text is the same, byte
for byte, whatever was drafted. A point-mass draft is accepted with the target's probability of it; a drafter that
shares the target's noise agrees with chance sum over x of 1 / sum over y of max(p_y/p_x, q_y/q_x), at least
(1 - TV)/(1 + TV), the best that any rule whose output ignores the drafter can promise (Daliri, Musco and Suresh,
2408.07978).
"""

from __future__ import annotations

from collections.abc import Callable

from foredraft.core import Draft, Verdict


def exact(draft: Draft, choose: Callable[[int], int]) -> Verdict:
    """Walk from the root to the child that equals the target's token, until there is none.

    Args:
        choose: the target's own token after a row: row 0 is the context's last token, row i + 1 is draft token i.
            Called for the rows of the accepted path only.
    """
    path: list[int] = []
    node = -1
    token = choose(0)
    for child, (parent, drafted) in enumerate(zip(draft.parents, draft.tokens, strict=True)):
        if parent == node and drafted == token:
            path.append(child)
            node = child
            token = choose(node + 1)
    return Verdict(tuple(path), token)
