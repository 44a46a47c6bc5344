"""The switchback: which arm holds in which window, and what the windows say. Pure: no clock, no I/O.

Two arms on one device share it, so they take turns, a window each, in blocks of four: ABBA or BAAB, drawn for each
block. Within a block a steady drift cancels; the draw keeps periodic load from following the pattern.

A block counts as one observation: how much better arm B was, as a log ratio, positive where B is better. Blocks are
judged by a t-test that stays valid however often one looks (Wang and Ramdas 2024, arXiv 2310.03722: the mixture over
effect sizes of the sequential t-test, a martingale of the scale-free data). With x the blocks' log ratios minus the
ratio in question, n of them, and effects in units of the standard deviation drawn from N(0, g),

    E_n = (1 + n g)^(-1/2) * (sum x^2 / (sum x^2 - g / (1 + n g) * (sum x)^2))^(n/2)

rises above 1 / alpha at any time with chance alpha at most where that ratio is the true one. So one interval, of all
ratios with E_n below 1 / alpha, serves for stopping early on harm after any block and for the verdict at the end, and
both together are wrong about two equal arms at most alpha of the time. It is infinite for the first three blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

ABBA = ("A", "B", "B", "A")
BAAB = ("B", "A", "A", "B")
ALPHA = 0.05
EFFECT_VARIANCE = 4.0  # g: most power for effects of two standard deviations, such as 10% where blocks vary by 5%
RESAMPLES = 2000

Floats = NDArray[np.float64]


def design(num_blocks: int, seed: int) -> tuple[str, ...]:
    """The arm of each window, "A" or "B", four windows to a block. The same seed draws the same blocks."""
    draws = np.random.default_rng(seed).random(num_blocks) < 0.5
    return tuple(arm for is_abba in draws for arm in (ABBA if is_abba else BAAB))


def block_log_ratios(values: ArrayLike, arms: Sequence[str]) -> Floats:
    """log(B / A) of each whole block: the difference of the means of its arms' logarithms.

    values: [..., windows], above 0. arms: [windows], as `design` made them. Windows of a block that is not whole are
    left out. Returns [..., blocks].
    """
    whole = len(arms) // 4 * 4
    logs = np.log(np.asarray(values, np.float64)[..., :whole])
    signed = np.where(np.array(arms[:whole]) == "B", logs, -logs)
    return np.asarray(signed.reshape(*logs.shape[:-1], -1, 4).sum(-1) / 2)


def confidence_sequence(log_ratios: ArrayLike, alpha: float = ALPHA) -> tuple[Floats, Floats]:
    """Lower and upper ends of the interval for the mean log ratio after each block, valid at all of them at once.

    log_ratios: [..., blocks]; so are both results. This solves E_n < 1 / alpha (see the module) for the mean.
    """
    ratios = np.asarray(log_ratios, np.float64)
    n = np.arange(1, ratios.shape[-1] + 1)
    mean = np.cumsum(ratios, -1) / n
    squares = np.maximum(np.cumsum(ratios**2, -1) - n * mean**2, 0.0)  # around the mean
    growth = 1 + n * EFFECT_VARIANCE
    bound = (np.sqrt(growth) / alpha) ** (2 / n)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.where(bound < growth, np.sqrt(squares / n * (bound - 1) / (1 - bound / growth)), np.inf)
    return mean - half, mean + half


@dataclass(frozen=True)
class Ratio:
    """B over A: an estimate and its interval, 95%; infinite ends mean that there are too few blocks."""

    estimate: float
    low: float
    high: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: None in its place."""
        low, high = (end if 0 < end < np.inf else None for end in (self.low, self.high))
        return {"estimate": self.estimate, "low": low, "high": high}


def ratio(log_ratios: Sequence[float]) -> Ratio | None:
    """How B compares with A by these blocks, with the interval that decides; None for no blocks."""
    if not len(log_ratios):
        return None
    lows, highs = confidence_sequence(log_ratios)
    return Ratio(*(float(np.exp(value)) for value in (np.mean(log_ratios), lows[-1], highs[-1])))


def bootstrap(log_ratios: Sequence[float], seed: int) -> Ratio | None:
    """The same for a figure that decides nothing: the percentile interval of means over blocks drawn with replacement
    (Efron 1979). One look only, and too narrow for few blocks. None for no blocks."""
    if not len(log_ratios):
        return None
    blocks = np.asarray(log_ratios, np.float64)
    drawn = np.random.default_rng(seed).integers(len(blocks), size=(RESAMPLES, len(blocks)))
    low, high = np.quantile(blocks[drawn].mean(-1), [ALPHA / 2, 1 - ALPHA / 2])
    return Ratio(*(float(np.exp(value)) for value in (blocks.mean(), low, high)))


def is_harm(measured: Ratio | None) -> bool:
    """Whether B is worse than A beyond doubt, which ends an experiment after any block."""
    return measured is not None and measured.high < 1


def verdict(measured: Ratio) -> str:
    """What B is, compared with A: "better", "worse" or "no difference" that could be seen."""
    if measured.low > 1:
        return "better"
    return "worse" if is_harm(measured) else "no difference"
