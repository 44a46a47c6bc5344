"""`foredraft demo`: the whole idea in a minute, on a model small enough for any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from foredraft.cli.exchange import Exchange
    from foredraft.cli.output import Writer
    from foredraft.core import Speculation
    from foredraft.engine.llm import LLM

MODEL = "smollm2-135m"
K = 8
LETTER = (
    "Dear neighbors, the summer festival is on Saturday, 14 June, from two in the afternoon until ten at night. There "
    "will be music in the yard, a long table for cakes and salads, and games for children by the river. Please bring "
    "plates, cups and a chair. If it rains, we meet in the old school on Mill Lane. Tell Agnes by Wednesday what you "
    "will bring. We also need six people who help to carry tables at noon, and two who stay to clean up."
)
PROMPTS = {
    "edit": (f"In this letter, replace 14 June with 15 June.\n\n{LETTER}", 240),
    "chat": ("Why is the sky blue? Answer in two or three sentences.", 120),
}


@click.command(short_help="See drafts at work on a small model.")
def demo() -> None:
    """Pull SmolLM2-135M, answer an edit and a chat question without drafts, with a fixed number of drafted tokens, and
    as the governor decides, and compare bytes and speeds.

    Exit status 1 if the bytes differ.
    """
    from foredraft.cli.output import Writer, console, legend
    from foredraft.cli.pull import fetch
    from foredraft.core import Speculation

    fetch(MODEL)
    from foredraft.engine.llm import LLM

    ways = {"off": Speculation("off"), "on (lookup)": Speculation("on", K), "auto (lookup)": Speculation()}
    llm = LLM(MODEL, context_length=2048, max_sequences=1, prefix_cache=False, proposers=["lookup"])
    for how in ways.values():
        _exchange(llm, "edit", how, max_tokens=8)  # warm up, and measure what passes cost
    done: dict[str, dict[str, Exchange]] = {}
    for name, (text, max_tokens) in PROMPTS.items():
        writer = Writer(show_drafts=True)
        click.echo(f"\n--- {name}: {text.splitlines()[0]}\n{legend(writer.is_colored)}\n")
        done[name] = {
            way: _exchange(llm, name, how, max_tokens, writer if how.mode == "auto" else None)
            for way, how in ways.items()
        }
        click.echo("\n")
    console().print(_table(done))
    if all(len({exchange.answers[0].text for exchange in each.values()}) == 1 for each in done.values()):
        click.echo("The bytes are equal with and without drafts.")
        return
    click.echo("The bytes differ, which must not happen; foredraft check exact shows where.")
    raise click.exceptions.Exit(1)


def _exchange(llm: LLM, name: str, how: Speculation, max_tokens: int, writer: Writer | None = None) -> Exchange:
    from foredraft.cli.exchange import Exchange
    from foredraft.core import SamplingParams

    tokens = llm.chat_tokens([{"role": "user", "content": PROMPTS[name][0]}])
    exchange = Exchange(tokens, SamplingParams(max_tokens=max_tokens), how)
    exchange.run(llm, writer)
    return exchange


def _table(done: dict[str, dict[str, Exchange]]) -> Table:
    from rich.table import Table

    table = Table(title=f"{MODEL}, temperature 0, on with k {K}")
    for heading in ("prompt", "speculation"):
        table.add_column(heading)
    for heading in ("tokens/s", "speed-up", "tokens per step", "alpha", "accepted", "same bytes"):
        table.add_column(heading, justify="right")
    for name, each in done.items():
        off = each["off"]
        for way, exchange in each.items():
            answer, stats = exchange.answers[0], exchange.answers[0].stats
            assert stats is not None
            table.add_row(
                name,
                way,
                f"{exchange.tokens_per_s or 0:.1f}",
                f"{(exchange.tokens_per_s or 0) / (off.tokens_per_s or 1):.2f}x",
                f"{stats.tokens_per_step:.2f}",
                "-" if stats.alpha is None else f"{stats.alpha:.2f}",
                f"{stats.num_accepted} of {stats.num_draft_tokens}",
                "yes" if answer.text == off.answers[0].text else "NO",
            )
    return table
