"""Published results beside the formula, for `foredraft plan --examples`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Example:
    """A published speed-up. `alpha` None: not published; the table then shows the alpha that it takes at this c."""

    what: str
    source: str
    alpha: float | None
    k: int
    c: float
    published: float | None


EXAMPLES = (
    Example("T5-XXL, translation, T 0", "Leviathan 2211.17192", 0.75, 7, 0.02, 3.4),
    Example("T5-XXL, summarization, T 0", "Leviathan 2211.17192", 0.65, 5, 0.02, 3.1),
    Example("Chinchilla 70B, HumanEval", "Chen 2302.01318", None, 4, 0.0, 2.46),
    Example("Chinchilla 70B, XSum", "Chen 2302.01318", None, 4, 0.0, 1.92),
    Example("DeepSeek-V3, one MTP block, low end", "DeepSeek-AI 2412.19437", 0.85, 1, 0.02, 1.8),
    Example("DeepSeek-V3, one MTP block, high end", "DeepSeek-AI 2412.19437", 0.90, 1, 0.02, 1.8),
    Example("code edit of 200 lines, lookup", "-", 0.85, 8, 0.0, None),
)
EDIT_TOKENS_PER_S, EDIT_TOKENS = 50.0, 2000  # before speculation; 200 lines of about ten tokens
SPREAD_ALPHAS, SPREAD_K = (0.40, 0.98), 8


def _alpha_needed(gain: float, k: int, c: float) -> float:
    """The alpha at which the formula gives this speed-up."""
    from foredraft import theory

    return theory.alpha_from_acceptance_rate((gain * (1 + k * c) - 1) / k, k)


def examples_table() -> Table:
    """Every example with the formula's figures and the residual: published over formula, less one."""
    from rich.table import Table

    from foredraft import theory

    table = Table(title="Published results beside the formula", caption=_caption(), caption_justify="left")
    for heading in ("case", "source"):
        table.add_column(heading)
    for heading in ("alpha", "k", "c", "tokens per step", "formula", "published", "residual"):
        table.add_column(heading, justify="right")
    for e in EXAMPLES:
        alpha = _alpha_needed(e.published or 1, e.k, e.c) if e.alpha is None else e.alpha
        gain = theory.speedup(alpha, e.k, e.c)
        table.add_row(
            e.what,
            e.source,
            f"(needs {alpha:.2f})" if e.alpha is None else f"{alpha:.2f}",
            str(e.k),
            f"{e.c:g}",
            f"{theory.expected_tokens(alpha, e.k):.4f}",
            f"{gain:.3f}x",
            "-" if e.published is None else f"{e.published:.2f}x",
            "-" if e.published is None or e.alpha is None else f"{e.published / gain - 1:+.1%}",
        )
    return table


def _caption() -> str:
    from foredraft import theory

    edit = EXAMPLES[-1]
    gain = theory.speedup(edit.alpha or 0, edit.k, edit.c)
    mean = sum(SPREAD_ALPHAS) / len(SPREAD_ALPHAS)
    real = theory.expected_tokens_mixture(SPREAD_ALPHAS, [1.0] * len(SPREAD_ALPHAS), SPREAD_K)
    return (
        f"The code edit: {EDIT_TOKENS_PER_S:g} tokens/s before, {EDIT_TOKENS_PER_S * gain:.0f} after; "
        f"{EDIT_TOKENS} tokens take {EDIT_TOKENS / EDIT_TOKENS_PER_S:.1f} s before, "
        f"{EDIT_TOKENS / EDIT_TOKENS_PER_S / gain:.1f} s after.\n"
        "c 0.02 is assumed for the rows of 2211.17192 and 2412.19437, and 0 for those of 2302.01318, which give no "
        "alpha: in brackets stands the least alpha that could explain them.\n"
        f"A mean alpha hides spread: an even mix of alpha {SPREAD_ALPHAS[0]} and {SPREAD_ALPHAS[1]} at k {SPREAD_K} "
        f"gives {real:.2f} tokens per step, the formula at their mean {mean:.2f} only "
        f"{theory.expected_tokens(mean, SPREAD_K):.2f}."
    )
