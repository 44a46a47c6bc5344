"""Choosing tokens by keyed noise: the target's own choice, a drafter's draws, and the draws of the acceptance rules.

All draws are Gumbel-max: the token with the largest log probability + Gumbel noise has exactly that probability. The
work over a whole vocabulary is C++ (csrc/sample.hpp); reference.py says what it computes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foredraft import _native
from foredraft.core import FloatArray
from foredraft.sampling.noise import Purpose, Stream, stream_state, uniform
from foredraft.sampling.processors import Scores, best_token, probabilities


def choose(scores: Scores, temperature: float, key: int, position: int) -> int:
    """The target's own token at a position: argmax of scores / temperature + G(key, position, token), lowest id on
    ties. At temperature 0 there is no noise.

    A function of the row's path and the request's key alone, which is what makes `exact` exact. A drafter that calls
    it with its own scores (processed like the target's, indexed by the target's token ids) shares the noise, and so
    agrees with the target nearly as often as any rule allows.

    Args:
        scores: [vocabulary], from `process`.
        position: number of tokens before this one, prompt included.

    Raises:
        ForedraftError: a score is NaN or +inf, or all are -inf.
    """
    best = best_token(scores)
    if temperature == 0:
        return best
    return _native.draw(scores, best, temperature, stream_state(key, Stream(Purpose.FINAL, position)))


def choose_several(scores: Scores, temperature: float, key: int, position: int, count: int) -> list[int]:
    """The first `count` tokens in the order of which `choose` takes the first; fewer where no more may be chosen.

    Raises:
        ForedraftError: as `choose` does.
    """
    left, tokens = scores.copy(), list[int]()
    for _ in range(max(1, min(count, int((scores > -np.inf).sum())))):
        tokens.append(choose(left, temperature, key, position))
        left[tokens[-1]] = -np.inf
    return tokens


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

    def draft(self, depth: int, law: NDArray[np.floating]) -> int:
        """A drafter's token at this depth, drawn from `law` [vocabulary]."""
        return self._draw(Stream(Purpose.DRAFT, self.start + depth, self.start), law)

    def final(self, depth: int, law: NDArray[np.floating]) -> int:
        """The correction or bonus token at this depth, drawn from `law` [vocabulary]; it need not sum to 1."""
        return self._draw(Stream(Purpose.FINAL, self.start + depth), law)

    def _uniform(self, stream: Stream, index: int) -> float:
        return uniform(self.key, stream, index)

    def _draw(self, stream: Stream, law: NDArray[np.floating]) -> int:
        return _native.draw_from(law, best_token(law), stream_state(self.key, stream))


def draft_token(
    scores: Scores, temperature: float, rule: str, noise: BlockNoise, depth: int
) -> tuple[int, FloatArray | None]:
    """A draft model's token at this depth, and the law it was drawn from if the rule has to know it.

    Under `exact`, the draft model's choice with the target's own noise; its law plays no part. Under `rejection` and
    `block` a draw with noise of its own, and the law it was really drawn from, float32 [vocabulary].

    Args:
        scores: the draft model's, by the target's `process` and parameters, indexed by the target's token ids.
    """
    if temperature == 0 or rule == "exact":
        return choose(scores, temperature, noise.key, noise.start + depth), None
    law = probabilities(scores, temperature).astype(np.float32)
    return noise.draft(depth, law), law
