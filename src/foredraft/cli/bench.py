"""`foredraft bench`: the speed of several ways to run the same requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foredraft.cli.bench_prompts import asked, prompts_of
from foredraft.cli.files import check_writable, read_json, write_json
from foredraft.cli.options import (
    conversation_tokens,
    default_proposers,
    loaded,
    model_names,
    model_options,
    model_proposers,
    positive_integers,
    split_names,
    temperatures,
)
from foredraft.cli.output import console, progress
from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from foredraft.bench.records import Record
    from foredraft.bench.runner import Turn
    from foredraft.bench.workloads import Prompt

ARMS = "off,on:lookup:8"
MODELS, OUTPUTS = (
    ("model", "draft", "drafter"),
    ("json_path", "heat_map"),
)  # options that a result does not list as such


@click.command(short_help="Compare speeds with and without drafts.")
@model_options()
@click.option(
    "--workloads",
    metavar="A,B",
    help="Of edit, quote, chat, write, ideas (default: these five) and enrichment, short batch texts.",
)
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='Own prompts in place of the workloads: JSON lines {"name", "prompt", "max_tokens"}.',
)
@click.option(
    "--questions",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Questions of Spec-Bench or HumanEvalFix in place of the workloads: each with all arms before the next one, "
    "paired by question.",
)
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="With --questions: only so many of each task, evenly spread."
)
@click.option(
    "--arms",
    metavar="A,B",
    help="What to compare, each mode[:proposers joined by +[:k[xwidth]]]; the first is the baseline. all: every "
    f"proposer alone, and auto with all of them. Default: {ARMS}, and on:NAME:4 for each model that drafts.",
)
@click.option("--concurrency", default="1", show_default=True, metavar="N,M", help="Requests at a time.")
@click.option(
    "--rounds", type=click.IntRange(1, 100), help="Medians are over these. Default: 3, and 1 with --questions."
)
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Shorten all answers to this many tokens.")
@click.option(
    "--temperature", default="0", show_default=True, metavar="T,U", help="One or several; 0 takes the likeliest token."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same for every request and arm.")
@click.option("--raw", is_flag=True, help="Give prompts as they are, without the model's chat template.")
@click.option(
    "--prefix-cache",
    is_flag=True,
    help="Read prompts before anything is measured and find them again: quicker, and only decoding is compared.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Save the result after every run; a file of the same benchmark that was broken off is continued.",
)
@click.option(
    "--heat-map",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw how auto compares with off and with the best fixed arm, into a .png or .svg file.",
)
def bench(**options: Any) -> None:
    """Run the same requests with speculation off and on, in turn, in one process, and compare.

    Speeds are medians over the rounds. Decode speed counts the tokens that come while all requests of a batch are
    being written, after the first of each; a step that emits several tokens counts as that many gaps between tokens.
    The prefix cache is off unless --prefix-cache is given. At concurrency N, N requests run together, filled up from
    the workload's prompts.

    x is the decode speed over that of the first arm in the same round (or for the same question), its mean and 95%
    interval. With --questions or --arms all, all cells together say at the end which arm to use. With --questions, what
    cannot be answered is counted as failed and left out of everything else.

    An arm that is auto is also compared with off and with the best fixed arm of the same cell: the ratio of speeds of
    the same round, its mean over the rounds, and the 95% interval of that. A bound holds while the interval is not
    wholly below it.
    """
    from foredraft.bench.arms import ALL, all_arms, parse_arms
    from foredraft.bench.cells import cells
    from foredraft.bench.paired import comparisons
    from foredraft.bench.runner import turns
    from foredraft.cli.bench_tables import cells_table, paired_table, proposers_table, summary_table, verdicts

    _check_outputs(options)
    models = model_proposers(options)
    has_all = options["arms"] == ALL
    if has_all:
        options["arms"] = all_arms(models)
    options["arms"] = options["arms"] or ",".join([ARMS, *(f"on:{name}:4" for name in models)])
    options["rounds"] = options["rounds"] or (1 if options["questions"] else 3)
    arms, heats = parse_arms(options["arms"]), temperatures(options["temperature"])
    if options["heat_map"] and all(arm.speculation.mode != "auto" for arm in arms):
        raise ConfigError("--heat-map shows how auto compares, and no arm is auto; add one to --arms")
    if options["heat_map"] and len(heats) > 1:
        raise ConfigError("--heat-map shows one temperature, and --temperature names several")
    concurrencies = positive_integers(options["concurrency"], "--concurrency")
    workloads = asked(options)
    num_blocks = -(-max(map(len, workloads.values())) // max(concurrencies)) if options["questions"] else 0
    order = turns(list(workloads), arms, concurrencies, options["rounds"], heats, num_blocks)
    due = [turn for turn in order if prompts_of(workloads, turn, max(concurrencies))]
    records = _run(options, workloads, due)
    out, found = console(), cells(records)
    out.print(cells_table(found))
    if any(len(cell["by_proposer"]) > 1 for cell in found):
        out.print(proposers_table(found))
    if compared := comparisons(records):
        out.print(paired_table(compared))
        for line in verdicts(compared):
            out.print(line)
    if has_all or options["questions"]:
        from foredraft.bench.summary import recommendation, summaries

        together = summaries(records)
        out.print(summary_table(together))
        out.print(recommendation(together))
    if options["heat_map"]:
        from foredraft.cli.plot import draw_heat_map

        draw_heat_map(options["heat_map"], compared)
        out.print(f"heat map written to {options['heat_map']}")


def _check_outputs(options: Mapping[str, Any]) -> None:
    for name in OUTPUTS:
        check_writable(options[name])
    if options["heat_map"]:
        from foredraft.cli.plot import check_can_plot

        check_can_plot(options["heat_map"])


def _provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """A record may be published: it names files, not the folders they lie in."""
    from foredraft import _native
    from foredraft.models import catalog
    from foredraft.provenance import identity, provenance

    files = {role: catalog.resolve(name) for role, name in model_names(options).items()}
    given = {name: value for name, value in options.items() if name not in (*MODELS, *OUTPUTS)}
    given["isa"] = _native.isa()
    for name in ("prompts", "questions", "draft_vocabulary"):
        if given[name] and Path(given[name]).is_file():
            given[name] = identity(Path(given[name]))
    return provenance(files, given)


def _run(options: Mapping[str, Any], workloads: dict[str, list[Prompt]], due: Sequence[Turn]) -> list[Record]:
    """The records of all turns: those in the file, and those of the turns that are left, saved one by one."""
    from foredraft.bench.arms import parse_arm, proposers_of
    from foredraft.bench.cells import cells
    from foredraft.bench.paired import comparisons
    from foredraft.bench.records import Record, result
    from foredraft.bench.runner import Runner
    from foredraft.bench.summary import summaries
    from foredraft.core import SamplingParams

    params = SamplingParams(seed=options["seed"])
    for temperature in {turn.temperature for turn in due}:
        SamplingParams(temperature=temperature)  # refused before anything is loaded
    arms = [parse_arm(text) for text in split_names(options["arms"])]
    source, path = _provenance(options), options["json_path"]
    records, source = _saved(path, source)
    left = [turn for turn in due if not any(record.is_of(turn) for record in records)]
    if not left:
        return records
    settings = {
        "proposers": proposers_of(arms, default_proposers(options)),
        "max_sequences": max(turn.concurrency for turn in due),
        "prefix_cache": options["prefix_cache"],
    }
    with loaded(options, **settings) as llm, progress() as bar:
        encode = partial(conversation_tokens, llm, raw=options["raw"])
        runner = Runner(
            llm, params, options["max_tokens"], encode, options["prefix_cache"], options["questions"] is not None
        )
        task = bar.add_task("warm-up", total=len(due), completed=len(records))
        runner.warm_up(arms, next(iter(workloads.values()))[0])
        for turn in left:
            bar.update(task, description=f"{turn.workload} x{turn.concurrency} {turn.arm.name}")
            run = runner.run(turn, prompts_of(workloads, turn, settings["max_sequences"]))
            records.append(Record.of(run, has_prompt_times=not options["prefix_cache"]))
            if path:
                compared = [one.as_dict() for one in comparisons(records)]
                together = [one.as_dict() for one in summaries(records)]
                write_json(path, result(source, records, cells(records), compared, together))
            bar.advance(task)
    return records


def _saved(path: Path | None, source: dict[str, Any]) -> tuple[list[Record], dict[str, Any]]:
    """The records that are in the file already, and the provenance to save from now on: the file's own, with the date
    and commit of every continuation."""
    from foredraft.bench.records import saved_records

    if path is None or not path.exists():
        return [], source
    saved = read_json(path)
    records = saved_records(saved, source, str(path))
    click.echo(f"{path} has {len(records)} runs of this benchmark, which are not repeated", err=True)
    again = {name: source[name] for name in ("date", "git_commit")}
    return records, {**saved["provenance"], "continued": [*saved["provenance"].get("continued", ()), again]}
