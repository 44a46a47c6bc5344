"""The tables of `foredraft plan` for one sequence: speed-up over k, what it says in words, where to start."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from foredraft import theory

ADVICE = (
    ("The output copies its input (code edits, quoting, forms)", "lookup, k 5 to 10"),
    ("Interactive chat at low concurrency", "a trained head or the model's own MTP block, k 3 to 5"),
    ("A pool near compute saturation", "off; measure first"),
)


def k_table(
    alpha: float, k: int, c: float, k_max: int, tokens: int, tokens_per_s: float, cost: dict[str, Any]
) -> Table:
    best = theory.best_k(alpha, c, k_max, **cost)
    table = Table(
        title=f"alpha {alpha:g}, c {c:.3g}; answers of {tokens} tokens, {tokens_per_s:g} tokens/s without drafts"
    )
    for heading in ("k", "tokens per step", "speed-up", "break-even alpha", "tokens/s", "device-seconds saved", ""):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for row_k in range(1, k_max + 1):
        gain = theory.speedup(alpha, row_k, c, **cost)
        even = theory.break_even_alpha(row_k, c, **cost)
        table.add_row(
            str(row_k),
            f"{theory.expected_tokens(alpha, row_k):.4f}",
            f"{gain:.4f}",
            "never" if even is None else f"{even:.3f}",
            f"{tokens_per_s * gain:.1f}",
            f"{theory.seconds_saved(tokens, 1 / tokens_per_s, gain):.2f}",
            ", ".join(["asked for"] * (row_k == k) + ["best"] * (row_k == best)),
            style="bold" if row_k in (k, best) else "",
        )
    return table


def summary(alpha: float, k: int, c: float, k_max: int, cost: dict[str, Any]) -> list[str]:
    best = theory.best_k(alpha, c, k_max, **cost)
    gain = theory.speedup(alpha, k, c, **cost)
    here = "faster" if gain > 1 else "not faster"
    advice = (
        f"k {best} is best: {theory.speedup(alpha, best, c, **cost):.3f}x" if best else "no k pays: leave drafting off"
    )
    lines = [
        f"k {k}: {theory.expected_tokens(alpha, k):.3f} tokens per step, {gain:.3f}x, {here} than without drafts.",
        f"Of k 1 to {k_max}, {advice}.",
    ]
    if c == 0 and not cost:
        lines.append("Neither drafts nor rows cost anything here, so more is always better; give --c or a --curve.")
    return lines


def advice_table() -> Table:
    table = Table(title="Where to start")
    table.add_column("situation")
    table.add_column("speculation")
    for situation, what in ADVICE:
        table.add_row(situation, what)
    return table
