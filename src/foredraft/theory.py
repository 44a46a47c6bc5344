"""The cost maths of speculative decoding: pure functions, no measurement, no model (Leviathan et al. 2211.17192).

Symbols used throughout: *alpha*, the chance that a drafted token is accepted given that all before it were; *k*, the
number of drafted tokens; *c*, the time of one draft step divided by that of one target step. One target step over n
rows costs `pass_cost(n)`; without that function a pass is taken to cost the same whatever its number of rows, which
holds for large accelerators and not for CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from foredraft.errors import ConfigError

PassCost = Callable[[int], float]

_BISECTIONS = 60  # halves [0, 1] below the resolution of a float64


def _constant_cost(rows: int) -> float:
    return 1.0


def _check(alpha: float = 0.0, k: int = 0, c: float = 0.0, batch: int = 1) -> None:
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha is {alpha!r}; allowed is 0 to 1")
    if k < 0:
        raise ConfigError(f"k is {k!r}; allowed is 0 or more")
    if not 0 <= c < math.inf:
        raise ConfigError(f"c is {c!r}; allowed is 0 or more")
    if batch < 1:
        raise ConfigError(f"batch is {batch!r}; allowed is 1 or more")


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens per target step, the one that the target itself adds included: (1 - alpha^(k+1)) / (1 - alpha)."""
    _check(alpha=alpha, k=k)
    return math.fsum(alpha**depth for depth in range(k + 1))


def expected_tokens_mixture(alphas: Sequence[float], weights: Sequence[float], k: int) -> float:
    """Tokens per target step when a share `weights[i]` of the steps has `alphas[i]`; weights need not sum to 1.

    Never less than `expected_tokens` of the mean alpha, which hides the spread.
    """
    if len(alphas) != len(weights) or not alphas:
        raise ConfigError(f"{len(alphas)} alphas and {len(weights)} weights; give one weight for each alpha")
    if min(weights) < 0 or sum(weights) <= 0:
        raise ConfigError(f"weights are {list(weights)!r}; allowed is 0 or more, with a sum above 0")
    return math.fsum(w * expected_tokens(a, k) for a, w in zip(alphas, weights, strict=True)) / math.fsum(weights)


def step_cost(k: int, c: float, pass_cost: PassCost = _constant_cost, batch: int = 1) -> float:
    """Time of a step that drafts and verifies k tokens for each of `batch` sequences, in steps without drafts."""
    _check(k=k, c=c, batch=batch)
    return pass_cost(batch * (k + 1)) / pass_cost(batch) + k * c


def speedup(alpha: float, k: int, c: float, pass_cost: PassCost = _constant_cost, batch: int = 1) -> float:
    """Tokens per second with speculation divided by tokens per second without.

    Args:
        c: draft step time / target step time at this batch.
        pass_cost: time of a target pass over that many rows, in any unit; called with `batch` and `batch * (k + 1)`.
    """
    return expected_tokens(alpha, k) / step_cost(k, c, pass_cost, batch)


def break_even_alpha(k: int, c: float, pass_cost: PassCost = _constant_cost, batch: int = 1) -> float | None:
    """The alpha above which drafting k >= 1 tokens is faster than not drafting; None if even alpha 1 is not."""
    if k < 1:
        raise ConfigError(f"k is {k!r}; a break-even needs 1 or more")
    cost = step_cost(k, c, pass_cost, batch)
    return _alpha_where(lambda alpha: expected_tokens(alpha, k) > cost)


def best_k(alpha: float, c: float, k_max: int, pass_cost: PassCost = _constant_cost, batch: int = 1) -> int:
    """The k of 0 to `k_max` with the highest speed-up, the smallest on ties; 0 where drafting does not pay.

    Every k is tried: real pass costs have steps, so the first k that lowers the speed-up need not be the last.
    """
    _check(k=k_max)
    return max(range(k_max + 1), key=lambda k: (speedup(alpha, k, c, pass_cost, batch), -k))


def estimate_alpha(num_accepted: int, num_ended_by_rejection: int) -> float | None:
    """Accepted tokens over trials (accepted tokens plus drafts that a rejection ended); None before any trial."""
    if num_accepted < 0 or num_ended_by_rejection < 0:
        raise ConfigError(f"counts are {num_accepted!r} and {num_ended_by_rejection!r}; allowed is 0 or more")
    trials = num_accepted + num_ended_by_rejection
    return num_accepted / trials if trials else None


def acceptance_rate(alpha: float, k: int) -> float:
    """Accepted over drafted tokens, k >= 1, as most engines report it. It falls with k by construction."""
    if k < 1:
        raise ConfigError(f"k is {k!r}; an acceptance rate needs 1 or more")
    return (expected_tokens(alpha, k) - 1) / k


def alpha_from_acceptance_rate(rate: float, k: int) -> float:
    """The alpha at which k drafted tokens give this share of accepted ones: the inverse of `acceptance_rate`."""
    if not 0 <= rate <= 1:
        raise ConfigError(f"acceptance rate is {rate!r}; allowed is 0 to 1")
    found = _alpha_where(lambda alpha: acceptance_rate(alpha, k) > rate)
    return 1.0 if found is None else found


def seconds_saved(num_tokens: int, seconds_per_token: float, speedup: float) -> float:
    """Seconds that `num_tokens` tokens took less than they would have at `seconds_per_token` (without speculation).

    Negative where speculation was slower.
    """
    if num_tokens < 0 or seconds_per_token < 0:
        raise ConfigError(f"tokens and seconds are {num_tokens!r} and {seconds_per_token!r}; allowed is 0 or more")
    if not speedup > 0:
        raise ConfigError(f"speed-up is {speedup!r}; allowed is above 0")
    return num_tokens * seconds_per_token * (1 - 1 / speedup)


def _alpha_where(holds: Callable[[float], bool]) -> float | None:
    """The lower end of where a condition monotone in alpha holds; None if it does not hold at 1."""
    if not holds(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
