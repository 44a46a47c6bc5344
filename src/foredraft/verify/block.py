"""The rule `block`: block verification (Sun et al. 2403.10444, algorithm 2), for chains.

Tokens are not decided one by one: the longest prefix that its own test accepts is kept, and a token that alone would
have been refused may be saved by later ones. Never fewer accepted tokens than `rejection` in expectation, and the same
law of the text. For point masses the two accept alike, so it pays with drafters that sample.
"""

from __future__ import annotations

from collections.abc import Callable

from foredraft.core import Draft, Verdict
from foredraft.errors import ConfigError
from foredraft.sampling.noise import Float64Array
from foredraft.sampling.sampler import BlockNoise
from foredraft.verify.residual import draft_prob, excess, normalized


def block(draft: Draft, target_probs: Callable[[int], Float64Array], noise: BlockNoise) -> Verdict:
    """Keep the longest prefix whose test accepts, then draw from what the law of the next row has left.

    Args:
        target_probs: the target's law after a row, float64 [vocabulary], not changed: row 0 is the context's last
            token, row i + 1 is draft token i.
        noise: of this step; its start is the length of the context.

    Raises:
        ConfigError: the draft is a tree.
    """
    if not draft.is_chain:
        raise ConfigError("rule 'block' verifies chains only, and this draft is a tree; use 'exact' or 'rejection'")
    length = len(draft.tokens)
    probs = target_probs(0)
    reach = 1.0  # P_i: how far the target's chance of the prefix keeps up with the drafter's, at most 1
    kept, kept_reach, kept_probs = 0, reach, probs
    for i in range(1, length + 1):
        drawn_with = draft_prob(draft, i - 1)
        reach = min(reach * float(probs[draft.tokens[i - 1]]) / drawn_with, 1.0) if drawn_with > 0 else 0.0
        if reach == 0:
            break
        probs = target_probs(i)
        threshold = reach
        if i < length:
            left = float(excess(reach * probs, draft, i).sum())
            threshold = left / (left + 1 - reach) if left + 1 - reach > 0 else 1.0
        if noise.accept(i - 1) < threshold:
            kept, kept_reach, kept_probs = i, reach, probs
    final = kept_probs
    if kept < length:
        final = normalized(excess(kept_reach * kept_probs, draft, kept), fallback=kept_probs)
    return Verdict(tuple(range(kept)), noise.final(kept, final))
