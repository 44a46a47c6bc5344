"""`foredraft check`: see on this machine that a promise holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from foredraft.cli.options import loaded, model_options, positive_integers, prompt_tokens

if TYPE_CHECKING:
    from foredraft.bench.exact import Difference, Outcome
    from foredraft.engine.llm import LLM

TOKENS, QUICK_TOKENS = 64, 24
THREADS, QUICK_THREADS = "1,2,3", "1,2"


@click.group(short_help="Check on this machine that drafts change nothing.")
def check() -> None:
    """Check on this machine what foredraft promises."""


@check.command(short_help="The same text with and without drafts.")
@model_options(threads=False)
@click.option("--threads", metavar="N,M", help=f"Thread counts to try. [default: {THREADS}; {QUICK_THREADS} if quick]")
@click.option("--quick", is_flag=True, help="Fewer prompts, shorter answers, fewer thread counts.")
def exact(**options: Any) -> None:
    """Compare the text without drafts with that of every proposer, and of those the governor chooses, token by token.

    At temperatures 0, 0.7 and 1, one and eight prompts at a time, on several thread counts. Prints `exact: N of N
    equal`; every difference is shown with its position, and the exit status is then 1.
    """
    from foredraft.bench.exact import BATCH_SIZES, ExactCheck, check_prompts
    from foredraft.cli.output import progress

    is_quick = options["quick"]
    threads = positive_integers(options["threads"] or (QUICK_THREADS if is_quick else THREADS), "--threads")

    def encode(llm: LLM, text: str) -> list[int]:
        return prompt_tokens(llm, text, raw=False)

    checking = ExactCheck(
        lambda count: loaded({**options, "threads": count}, max_sequences=max(BATCH_SIZES)),
        encode,
        check_prompts(is_quick),
        QUICK_TOKENS if is_quick else TOKENS,
        threads,
    )
    with progress() as bar:
        task = bar.add_task("loading", total=None)
        for way in checking.run():
            bar.update(task, description=str(way))
    _report(checking.outcome)
    if checking.outcome.differences:
        raise click.exceptions.Exit(1)


def _report(outcome: Outcome) -> None:
    for difference in outcome.differences:
        click.echo(describe(difference))
    drafts = ", ".join(f"{name} {count}" for name, count in sorted(outcome.num_drafts.items()))
    click.echo(f"exact: {outcome.num_equal} of {outcome.num_total} equal (drafts checked: {drafts or 'none'})")


def describe(difference: Difference) -> str:
    """One line: where, what was expected, what was found, and how close the two were."""
    gap = "not among the likeliest" if difference.logit_gap is None else f"{difference.logit_gap:.6g}"
    return (
        f"different: {difference.prompt} [{difference.way}] at token {difference.position}: expected "
        f"{_token(difference.expected)}, found {_token(difference.found)}, logit gap {gap}"
    )


def _token(token: int | None) -> str:
    return "the end" if token is None else str(token)
