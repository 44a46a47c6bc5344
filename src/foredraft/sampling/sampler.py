"""Choosing tokens by keyed noise: the target's own choice, a drafter's draws, and the draws of the acceptance rules.

All draws are Gumbel-max: the token with the largest log probability + Gumbel noise has exactly that probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foredraft.core import FloatArray
from foredraft.sampling.noise import (
    MAX_GUMBEL,
    Float64Array,
    Purpose,
    Stream,
    gumbel_from_bits,
    random_bits,
    uniform,
)
from foredraft.sampling.processors import Scores, check_choosable, probabilities


def choose(scores: Scores, is_greedy: bool, key: int, position: int) -> int:
    """The target's own token at a position: argmax of scores + G(key, position, token), lowest id on ties.

    A function of the row's path and the request's key alone, which is what makes `exact` exact. A drafter that calls
    it with its own scores (processed like the target's, indexed by the target's token ids) shares the noise, and so
    agrees with the target nearly as often as any rule allows.

    Args:
        scores: [vocabulary], from `process`.
        is_greedy: temperature 0: plain argmax, no noise.
        position: number of tokens before this one, prompt included.

    Raises:
        ForedraftError: a score is NaN or +inf, or all are -inf.
    """
    if not is_greedy:
        return perturbed_argmax(scores, key, Stream(Purpose.FINAL, position))
    best = int(scores.argmax())
    check_choosable(float(scores[best]))
    return best


def perturbed_argmax(scores: Scores, key: int, stream: Stream) -> int:
    """argmax of scores + Gumbel noise of the stream, lowest id on ties, without computing what cannot win.

    The best sum known so far is a bar. Noise is bounded, so tokens more than that below the bar are left out; and
    since G <= -log(v), a token whose random bits v are too large for its score is left out before any logarithm. Same
    result, bit for bit, as with all of them.
    """
    winner = int(scores.argmax())
    check_choosable(float(scores[winner]))
    bar = float(scores[winner]) - math.log(-math.log1p(-uniform(key, stream, winner)))
    best = -math.inf
    tokens = np.flatnonzero(scores >= bar - MAX_GUMBEL)
    for first in range(0, tokens.size, _CHUNK):
        chunk = tokens[first : first + _CHUNK]
        bits = random_bits(key, stream, chunk)
        can_win = _can_win(scores[chunk], bits, bar)
        if not can_win.any():
            continue
        chunk = chunk[can_win]
        sums = scores[chunk] + gumbel_from_bits(bits[can_win])
        i = int(sums.argmax())
        if sums[i] > best:
            winner, best = int(chunk[i]), float(sums[i])
            bar = max(bar, best)
    return winner


_CHUNK = 8192  # tokens at a time, so that temporaries stay in the core's cache


def _can_win(scores: Scores, bits: NDArray[np.uint64], bar: float) -> NDArray[np.bool_]:
    """Whether score - log(v) may reach the bar, v = (bits + 1/2) / 2**32; in float32 with a margin of 1%."""
    headroom = np.exp(np.minimum(scores - bar, 1.0).astype(np.float32))
    can_win: NDArray[np.bool_] = bits.astype(np.float32) <= headroom * np.float32(1.01 * 2**32) + np.float32(1.0)
    return can_win


@dataclass(frozen=True)
class BlockNoise:
    """The random numbers of one step of one request, under `rejection` and `block`.

    `start` is the position of the first token that the step decides: the length of the context. `depth` counts from
    there. Draft and accept numbers hold the start: a later step that decides the same position again draws afresh,
    else what the earlier step saw of them would bias it. The final token's do not: it is drawn once per position.
    """

    key: int
    start: int

    def accept(self, depth: int, sibling: int = 0) -> float:
        """The uniform that decides on the drafted token at this depth, one for each sibling tested there."""
        return self._uniform(Stream(Purpose.ACCEPT, self.start + depth, self.start), sibling)

    def draft(self, depth: int, law: Scores) -> int:
        """A drafter's token at this depth, drawn from `law` [vocabulary]."""
        return self._draw(Stream(Purpose.DRAFT, self.start + depth, self.start), law)

    def final(self, depth: int, law: Scores) -> int:
        """The correction or bonus token at this depth, drawn from `law` [vocabulary]; it need not sum to 1."""
        return self._draw(Stream(Purpose.FINAL, self.start + depth), law)

    def _uniform(self, stream: Stream, index: int) -> float:
        return uniform(self.key, stream, index)

    def _draw(self, stream: Stream, law: Scores) -> int:
        return perturbed_argmax(_log(law), self.key, stream)


def draft_token(
    scores: Scores, is_greedy: bool, rule: str, noise: BlockNoise, depth: int
) -> tuple[int, FloatArray | None]:
    """A draft model's token at this depth, and the law it was drawn from if the rule has to know it.

    Under `exact`, the draft model's choice with the target's own noise; its law plays no part. Under `rejection` and
    `block` a draw with noise of its own, and the law it was really drawn from, float32 [vocabulary].

    Args:
        scores: the draft model's, by the target's `process` and parameters, indexed by the target's token ids.
    """
    if is_greedy or rule == "exact":
        return choose(scores, is_greedy, noise.key, noise.start + depth), None
    law = probabilities(scores).astype(np.float32)
    return noise.draft(depth, law), law


def _log(law: Scores) -> Float64Array:
    """Natural log in float64, -inf where the law is 0."""
    scores = np.full(law.shape, -np.inf)
    np.log(law, out=scores, where=law > 0, dtype=np.float64)
    return scores
