"""`foredraft bench`: the speed of several ways to run the same requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foredraft.cli.files import check_writable, read_text, write_json
from foredraft.cli.options import loaded, model_options, positive_integers, prompt_tokens, split_names
from foredraft.cli.output import console, progress

if TYPE_CHECKING:
    from rich.table import Table

    from foredraft.bench.arms import Arm
    from foredraft.bench.runner import Run, Runner
    from foredraft.bench.workloads import Prompt

ARMS, DRAFT_ARM = "off,on:lookup:8", "on:draft_model:4"
FILES = ("model", "draft", "prompts", "json_path")  # options that name files


@click.command(short_help="Compare speeds with and without drafts.")
@model_options()
@click.option("--workload", metavar="A,B", help="Of edit, quote, chat, write, ideas; default: all of them.")
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='Own prompts in place of the workloads: JSON lines {"name", "prompt", "max_tokens"}.',
)
@click.option(
    "--arms",
    metavar="A,B",
    help="What to compare, each mode[:proposers joined by +[:k]]; the first is the baseline. "
    f"Default: {ARMS}, and {DRAFT_ARM} with --draft.",
)
@click.option("--concurrency", default="1", show_default=True, metavar="N,M", help="Requests at a time.")
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Medians are over these.")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Shorten all answers to this many tokens.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 takes the most likely token.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same for every request and arm.")
@click.option("--raw", is_flag=True, help="Give prompts as they are, without the model's chat template.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="Save the result.")
def bench(**options: Any) -> None:
    """Run the same requests with speculation off and on, in turn, in one process, and compare.

    Speeds are medians over the rounds. Decode speed counts the tokens after the first over the time from the first to
    the last; a step that emits several tokens counts as that many gaps between tokens. The prefix cache is off.
    """
    from foredraft.bench.arms import parse_arms, proposers_of
    from foredraft.bench.cells import cells
    from foredraft.bench.runner import Runner
    from foredraft.core import SamplingParams
    from foredraft.models import catalog
    from foredraft.provenance import provenance

    check_writable(options["json_path"])
    arms = parse_arms(options["arms"] or (f"{ARMS},{DRAFT_ARM}" if options["draft"] else ARMS))
    concurrencies = positive_integers(options["concurrency"], "--concurrency")
    workloads = _workloads(options)
    params = SamplingParams(temperature=options["temperature"], seed=options["seed"])
    proposers = proposers_of(arms, has_draft=options["draft"] is not None)
    with loaded(options, proposers=proposers, max_sequences=max(concurrencies), prefix_cache=False) as llm:
        encode = partial(prompt_tokens, llm, raw=options["raw"])
        runner = Runner(llm, params, options["max_tokens"], encode)
        runs = _run(runner, workloads, arms, concurrencies, options["rounds"])
    files = {role: catalog.resolve(options[role]) for role in ("model", "draft") if options[role]}
    # A record may be published: it names files, not the folders they lie in.
    given = {name: Path(value).name if name in FILES and value else value for name, value in options.items()}
    rows = cells(runs)
    console().print(_table(rows, arms[0].name))
    if options["json_path"]:
        write_json(options["json_path"], {"provenance": provenance(files, given), "cells": rows})


def _workloads(options: Mapping[str, Any]) -> dict[str, list[Prompt]]:
    from foredraft.bench.workloads import parse_prompts, select
    from foredraft.errors import ConfigError

    if options["prompts"] is None:
        return select(split_names(options["workload"]))
    if options["workload"] is not None:
        raise ConfigError("both --workload and --prompts are given; give one of them")
    return parse_prompts(read_text(options["prompts"]), str(options["prompts"]))


def _run(
    runner: Runner,
    workloads: dict[str, list[Prompt]],
    arms: Sequence[Arm],
    concurrencies: Sequence[int],
    rounds: int,
) -> list[Run]:
    """Warm up, then all rounds, with a progress bar on standard error."""
    from foredraft.bench.runner import run_all

    with progress() as bar:
        task = bar.add_task("warm-up", total=rounds * len(workloads) * len(concurrencies) * len(arms))
        runner.warm_up(arms, next(iter(workloads.values()))[0])

        def done(run: Run) -> None:
            bar.update(task, advance=1, description=f"{run.workload} x{run.concurrency} {run.arm.name}")

        return run_all(runner, workloads, arms, concurrencies, rounds, done)


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "prompt/s": lambda cell: _figure(cell["prompt_tokens_per_s"], 0),
    "TTFT ms": lambda cell: _figure(cell["ttft_ms"], 0),
    "ITL p50": lambda cell: _figure(cell["itl_p50_ms"], 1),
    "p95 ms": lambda cell: _figure(cell["itl_p95_ms"], 1),
    "alpha": lambda cell: _figure(cell["alpha"], 2),
    "accepted": lambda cell: _figure(cell["acceptance_rate"], 2),
    "per step": lambda cell: _figure(cell["tokens_per_step"], 2),
    "formula": lambda cell: _figure(cell["expected_tokens_per_step"], 2),
    "same text": lambda cell: "yes" if cell["same_text"] else "NO",
}


def _table(rows: Sequence[dict[str, Any]], baseline: str) -> Table:
    from rich.table import Table

    table = Table(caption="tokens/s and x: decode speed, and over that of the first arm", caption_justify="left")
    for heading in ("workload", "at once", "arm", "tokens/s", "x", *COLUMNS):
        is_text = heading in ("workload", "arm", "same text")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=heading == "arm")
    base = {(r["workload"], r["concurrency"]): r["tokens_per_s"] for r in rows if r["arm"] == baseline}
    for cell in rows:
        speed, before = cell["tokens_per_s"], base[cell["workload"], cell["concurrency"]]
        ratio = speed / before if speed and before else None
        head = (cell["workload"], str(cell["concurrency"]), cell["arm"], _figure(speed, 1), _figure(ratio, 2))
        table.add_row(*head, *(column(cell) for column in COLUMNS.values()))
    return table


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
