"""From a row's raw logits to the scores that its token is chosen by.

One pure function for every row, drafted or not: what a row gets depends on its own token path only, so penalties count
the accepted part of a block and a mask of min_tokens ends where it should (the faults of other engines here: a bias
or penalty that reaches only the first row of a block). The order is fixed: logit bias, repetition penalty, presence
and frequency penalties, min_tokens, mask, temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from foredraft.core import BoolArray, FloatArray, SamplingParams
from foredraft.errors import ForedraftError, RequestError
from foredraft.sampling.noise import Float64Array

Scores = NDArray[np.floating]

_FIRST_CANDIDATES = 128  # how many tokens top-p orders at first; most nuclei are smaller


def process(
    logits: FloatArray,
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    eos_ids: Collection[int],
    mask: BoolArray | None = None,
) -> Scores:
    """The scores that the next token is chosen by, [vocabulary]; masked tokens are -inf.

    At temperature 0 these are the logits after bias, penalties, min_tokens and mask (the very same array if none is
    asked for), to be taken by argmax. Else they are float64, divided by the temperature, with a maximum of 0; their
    softmax is the target's law. `logits` is never changed.

    Args:
        logits: float32 [vocabulary], the model's own.
        prompt, output: the row's own path, up to and with its token; drafted tokens before it are part of `output`.
        eos_ids: tokens that end a request, forbidden with the stop tokens while output is shorter than min_tokens.
        mask: bool [vocabulary], the tokens that a constraint allows after this path; None allows all.

    Raises:
        RequestError: a token id of the parameters is outside the vocabulary.
        ForedraftError: a logit is NaN or +inf, or nothing is left to choose from.
    """
    adjusted = _adjust(logits, params, prompt, output, eos_ids, mask)
    if params.temperature == 0:
        return adjusted
    scores = _heat(adjusted, params.temperature)
    if params.top_k == 0 and params.top_p == 1:
        return _min_p(scores, params.min_p)
    kept = _ordered(scores, params.top_k) if params.top_k else None
    if params.top_p < 1:
        kept = _nucleus(scores, kept, params.top_p)
    assert kept is not None
    truncated = np.full_like(scores, -np.inf)
    truncated[kept] = scores[kept]
    return _min_p(truncated, params.min_p)


def probabilities(scores: Scores) -> Float64Array:
    """The softmax of scores, float64 [vocabulary]: the law that `process` describes at a temperature above 0."""
    law = scores.astype(np.float64)
    law -= law.max()
    np.exp(law, out=law)
    law /= law.sum()
    return law


def log_probabilities(logits: FloatArray, chosen: int, count: int) -> tuple[float, list[tuple[int, float]]]:
    """Log probability of `chosen`, and the `count` most likely tokens with theirs, by the model's own distribution."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    wide -= math.log(np.exp(wide).sum())
    best = _ordered(wide, count).tolist() if count else []
    return float(wide[chosen]), [(token, float(wide[token])) for token in best]


def check_choosable(best: float) -> None:
    """Raise unless the best of a row's logits or scores is a finite number: NaN and +inf show up as the maximum."""
    if not math.isfinite(best):
        reason = "no token is left to choose from" if best == -math.inf else f"the model produced a logit of {best}"
        raise ForedraftError(f"{reason}; the model file is damaged or this is a bug, please report it")


def _adjust(
    logits: FloatArray,
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    eos_ids: Collection[int],
    mask: BoolArray | None,
) -> FloatArray:
    """Bias, penalties, min_tokens and mask, in float32; returns `logits` itself where none is asked for."""
    is_early = len(output) < params.min_tokens
    has_counts = bool(params.presence_penalty or params.frequency_penalty)
    if not (params.logit_bias or params.repetition_penalty != 1 or has_counts or is_early or mask is not None):
        return logits
    scores = logits.copy()
    if params.logit_bias:
        ids = _checked("logit_bias", params.logit_bias, scores.size)
        scores[ids] += np.fromiter(params.logit_bias.values(), np.float32, ids.size)
    if params.repetition_penalty != 1:
        seen = np.unique(np.fromiter((*prompt, *output), np.int64))
        before = scores[seen]
        penalty = np.float32(params.repetition_penalty)
        scores[seen] = np.where(before > 0, before / penalty, before * penalty)
    if has_counts and output:
        seen, counts = np.unique(np.asarray(output, np.int64), return_counts=True)
        scores[seen] -= (params.presence_penalty + params.frequency_penalty * counts).astype(np.float32)
    if is_early:
        scores[_checked("stop_token_ids", params.stop_token_ids, scores.size)] = -np.inf
        if not params.ignore_eos:
            scores[list(eos_ids)] = -np.inf
    if mask is not None:
        scores[~mask] = -np.inf
    return scores


def _checked(name: str, ids: Iterable[int], vocabulary: int) -> NDArray[np.int64]:
    array = np.fromiter(ids, np.int64)
    if array.size and array.max() >= vocabulary:
        raise RequestError(f"{name} names token {array.max()}; this model's tokens are 0 to {vocabulary - 1}")
    return array


def _heat(logits: FloatArray, temperature: float) -> Float64Array:
    """(logits - maximum) / temperature. In float64 and with the maximum at 0, no temperature overflows upward."""
    best = float(logits.max())
    check_choosable(best)
    scores = logits.astype(np.float64)
    scores -= best
    with np.errstate(over="ignore"):
        scores /= temperature
    return scores


def _ordered(scores: Scores, count: int) -> NDArray[np.int64]:
    """The ids of the `count` best tokens, by (score descending, id ascending)."""
    count = min(count, scores.size)
    least = np.partition(scores, scores.size - count)[scores.size - count]
    ids = np.flatnonzero(scores >= least)  # ascending, and with all that tie for the last place
    return ids[np.argsort(-scores[ids], kind="stable")[:count]]


def _nucleus(scores: Float64Array, ordered: NDArray[np.int64] | None, top_p: float) -> NDArray[np.int64]:
    """The shortest run of best tokens whose probabilities reach top_p, out of `ordered` or of all tokens.

    Sums run over the ordered tokens one after the other, so they do not depend on how many were ordered at first.
    """
    if ordered is not None:
        return ordered[: _run_length(scores[ordered], float(np.exp(scores[ordered]).sum()), top_p)]
    total = float(np.exp(scores.astype(np.float32)).sum(dtype=np.float64))  # float32: a third of the time
    count = _FIRST_CANDIDATES
    while True:
        ordered = _ordered(scores, count)
        length = _run_length(scores[ordered], total, top_p)
        if length <= ordered.size or ordered.size == scores.size:
            return ordered[:length]
        count *= 8


def _run_length(ordered_scores: Float64Array, total: float, top_p: float) -> int:
    """How many leading tokens reach top_p of the total; one more than there are if they do not."""
    sums = np.cumsum(np.exp(ordered_scores))
    return int(np.searchsorted(sums, top_p * total)) + 1


def _min_p(scores: Float64Array, min_p: float) -> Float64Array:
    """Mask tokens less likely than min_p times the most likely one, whose score is 0. Mutates and returns scores."""
    if min_p > 0:
        scores[scores < math.log(min_p)] = -np.inf
    return scores
