"""One token of a draft from a drafter's logits: how draft models and learned drafters choose it, and how sure they are.

The logits become scores by the target's own processors; what a constraint forbids is not drafted. Under `exact` the
target's own noise is shared, so that drafter and target agree as often as their laws allow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import NamedTuple

from foredraft import _native
from foredraft.core import BoolArray, Context, FloatArray
from foredraft.sampling.processors import process
from foredraft.sampling.sampler import BlockNoise, draft_token

# By how much a token's logit has to exceed all others for a grade: accepted as often as not below the first lead, and
# nearly always above the last (0.5B drafting for 1.5B).
LEADS = (0.5, 1.0, 2.0, 3.0, 4.5)


class Drawn(NamedTuple):
    """A drafted token, the law it was drawn from where the rule has to know it, and its grade."""

    token: int
    law: FloatArray | None
    grade: int


def draw(
    logits: FloatArray, context: Context, drafted: Sequence[int], eos_ids: Collection[int], draftable: BoolArray
) -> Drawn:
    """The token that follows a context and then `drafted`.

    Args:
        logits: float32 [target vocabulary], minus infinity where a token cannot be drafted.
        draftable: bool [target vocabulary], where it is not.

    Raises:
        ForedraftError: there is nothing to choose from.
    """
    params = context.params
    # A token that the target's mask forbids could only be refused, unless no other can be drafted.
    mask = context.constraint.mask(drafted) if context.constraint else None
    if mask is not None and not (mask & draftable).any():
        mask = None
    scores = process(logits, params, *context.history(drafted), eos_ids, mask)
    noise = BlockNoise(context.key, len(context.tokens))
    token, law = draft_token(scores, params.temperature, context.rule, noise, len(drafted))
    best, second = _native.highest(scores, 2)
    lead = float(scores[token] - scores[best if token != best else second])
    return Drawn(token, law, bisect_right(LEADS, lead))
