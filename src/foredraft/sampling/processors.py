"""From a row's raw logits to the scores that its token is chosen by.

One pure function for every row, drafted or not: what a row gets depends on its own token path only, so penalties count
the accepted part of a block and a mask of min_tokens ends where it should (the faults of other engines here: a bias
or penalty that reaches only the first row of a block). The order is fixed: logit bias, repetition penalty, presence
and frequency penalties, min_tokens, mask, top-k, top-p, min-p; the last two look at the law at the row's temperature.

The work over a whole vocabulary is C++ (csrc/sample.hpp); reference.py says what it computes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from foredraft import _native
from foredraft.core import BoolArray, FloatArray, SamplingParams
from foredraft.errors import ForedraftError, RequestError
from foredraft.sampling.noise import Float64Array

Scores = FloatArray  # a row's logits after `process`


def process(
    logits: FloatArray,
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    eos_ids: Collection[int],
    mask: BoolArray | None = None,
) -> Scores:
    """The scores that the next token is chosen by, float32 [vocabulary]; masked tokens are -inf.

    These are the logits after bias, penalties, min_tokens, mask and truncation (the very same array if none is asked
    for). The target's law is the softmax of scores / temperature, at temperature 0 its argmax. `logits` is never
    changed.

    Args:
        logits: float32 [vocabulary], the model's own.
        prompt, output: the row's own path, up to and with its token; drafted tokens before it are part of `output`.
            Not looked at unless `params.looks_back`.
        eos_ids: tokens that end a request, forbidden with the stop tokens while output is shorter than min_tokens.
        mask: bool [vocabulary], the tokens that a constraint allows after this path; None allows all.

    Raises:
        RequestError: a token id of the parameters is outside the vocabulary.
        ForedraftError: there is a truncation, and a logit is NaN or +inf, or nothing is left to choose from.
    """
    scores = _adjust(logits, params, prompt, output, eos_ids, mask)
    is_truncated = params.top_k > 0 or params.top_p < 1 or params.min_p > 0
    if params.temperature == 0 or not is_truncated:
        return scores
    truncated = np.empty_like(scores)
    top_k = min(params.top_k, scores.size)
    best = best_token(scores)
    _native.truncate(scores, best, params.temperature, top_k, params.top_p, params.min_p, truncated)
    return truncated


def best_token(scores: NDArray[np.floating]) -> int:
    """The token with the largest score, lowest id on ties.

    Raises:
        ForedraftError: a score is NaN or +inf, or all are -inf.
    """
    token = int(scores.argmax())  # the first NaN, if there is any
    best = float(scores[token])
    if not math.isfinite(best):
        reason = "no token is left to choose from" if best == -math.inf else f"the model produced a logit of {best}"
        raise ForedraftError(f"{reason}; the model file is damaged or this is a bug, please report it")
    return token


def probabilities(scores: Scores, temperature: float) -> Float64Array:
    """The softmax of scores / temperature, float64 [vocabulary]: the target's law at a temperature above 0.

    Raises:
        ForedraftError: a score is NaN or +inf, or all are -inf.
    """
    law = np.empty(scores.size)
    _native.softmax(scores, best_token(scores), temperature, law)
    return law


def log_probabilities(logits: FloatArray, chosen: int, count: int) -> tuple[float, list[tuple[int, float]]]:
    """Log probability of `chosen`, and the `count` most likely tokens with theirs, by the model's own distribution."""
    best = best_token(logits)
    log_total = _native.log_sum_exp(logits, best)

    def logprob(token: int) -> float:
        return float(logits[token]) - float(logits[best]) - log_total

    return logprob(chosen), [(token, logprob(token)) for token in _native.highest(logits, count)]


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
