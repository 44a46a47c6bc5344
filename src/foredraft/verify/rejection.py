"""The rule `rejection`: speculative sampling (Leviathan et al. 2211.17192, Chen et al. 2302.01318), also for trees.

A drafted token x is accepted with chance min(1, p(x)/q(x)); after a rejection the rest of the law, norm(max(0, p - q)),
decides. Siblings of a tree are tested one after the other against what is left of the law (SpecInfer 2305.09781,
Sequoia 2402.12374), where q of a later sibling must be the law that it was really drawn from: without the earlier ones.
Siblings chosen deterministically are point masses. The text has the target's law; its bytes depend on the drafter.
"""

from __future__ import annotations

from collections.abc import Callable

from foredraft.core import Draft, Verdict
from foredraft.sampling.noise import Float64Array
from foredraft.sampling.sampler import BlockNoise
from foredraft.verify.residual import draft_prob, excess, normalized


def rejection(draft: Draft, target_probs: Callable[[int], Float64Array], noise: BlockNoise) -> Verdict:
    """Accept from the root down, testing the children of each accepted node in order.

    Args:
        target_probs: the target's law after a row, float64 [vocabulary], not changed: row 0 is the context's last
            token, row i + 1 is draft token i. Called for the rows of the accepted path only.
        noise: of this step; its start is the length of the context.
    """
    path: list[int] = []
    node, sibling = -1, 0
    probs = target_probs(0)
    for child, parent in enumerate(draft.parents):
        if parent != node:
            continue
        drawn_with = draft_prob(draft, child)
        ratio = float(probs[draft.tokens[child]]) / drawn_with if drawn_with > 0 else 0.0
        if noise.accept(len(path), sibling) < ratio:
            path.append(child)
            node, sibling = child, 0
            probs = target_probs(child + 1)
        else:
            probs = normalized(excess(probs, draft, child), fallback=probs)
            sibling += 1
    return Verdict(tuple(path), noise.final(len(path), probs))
