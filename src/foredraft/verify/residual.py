"""What is left of a law once a drafted token has been refused: shared by `rejection` and `block`."""

from __future__ import annotations

from foredraft.core import Draft
from foredraft.sampling.noise import Float64Array


def draft_prob(draft: Draft, node: int) -> float:
    """The chance with which the drafter drew the token of `node`; 1 for a point mass."""
    return 1.0 if draft.probs is None else float(draft.probs[node, draft.tokens[node]])


def excess(weights: Float64Array, draft: Draft, node: int) -> Float64Array:
    """max(0, weights - q) for the law q that the token of `node` was drawn from; a new array [vocabulary].

    For a point mass, whose q is 1 at that token, this removes the token, as no weight exceeds 1.
    """
    left = weights.copy()
    if draft.probs is None:
        left[draft.tokens[node]] = 0.0
    else:
        left -= draft.probs[node]
        left.clip(0.0, None, out=left)
    return left


def normalized(weights: Float64Array, fallback: Float64Array) -> Float64Array:
    """weights / their sum; `fallback` if that is 0, which happens by rounding only: then nothing was to be refused."""
    total = weights.sum()
    return weights / total if total > 0 else fallback
