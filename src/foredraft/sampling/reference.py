"""What the sampler computes, in numpy and without haste: the specification that csrc/sample.hpp is tested by."""

from __future__ import annotations

import math

import numpy as np

from foredraft.core import FloatArray
from foredraft.sampling.noise import Float64Array, Stream, gumbel


def heated(logits: FloatArray, temperature: float) -> Float64Array:
    """(logits - maximum) / temperature. In float64 and with the maximum at 0, no temperature overflows upward."""
    with np.errstate(over="ignore"):
        return (logits.astype(np.float64) - float(logits.max())) / temperature


def truncate(logits: FloatArray, temperature: float, top_k: int, top_p: float, min_p: float) -> FloatArray:
    """Top-k (0: off), then top-p of what is left (1: off), then min-p (0: off): what is removed becomes -inf.

    Top-p keeps the shortest run of best tokens whose probabilities reach it, min-p those at least that fraction as
    likely as the best.
    """
    scores = heated(logits, temperature)
    kept = np.argsort(-logits, kind="stable")  # best first, of equals the lowest id
    if top_k:
        kept = kept[:top_k]
    if top_p < 1:
        sums = np.cumsum(np.exp(scores[kept]))
        kept = kept[: int(np.searchsorted(sums, top_p * sums[-1])) + 1]
    if min_p > 0:
        kept = kept[logits[kept] >= float(logits.max()) + temperature * math.log(min_p)]
    truncated = np.full_like(logits, -np.inf)
    truncated[kept] = logits[kept]
    return truncated


def softmax(logits: FloatArray, temperature: float) -> Float64Array:
    weights = np.exp(heated(logits, temperature))
    return np.asarray(weights / weights.sum())


def draw(scores: Float64Array, key: int, stream: Stream) -> int:
    """argmax of scores + noise, lowest id on ties: the Gumbel-max trick, exp(score) being proportional to the law."""
    return int((scores + gumbel(key, stream, np.arange(scores.size))).argmax())


def draw_from(law: Float64Array, key: int, stream: Stream) -> int:
    with np.errstate(divide="ignore"):
        return draw(np.log(law), key, stream)


def log_probabilities(logits: FloatArray, chosen: int, count: int) -> tuple[float, list[tuple[int, float]]]:
    scores = heated(logits, 1.0)
    logprobs = scores - math.log(np.exp(scores).sum())
    best = np.argsort(-logits, kind="stable")[:count].tolist()
    return float(logprobs[chosen]), [(token, float(logprobs[token])) for token in best]
