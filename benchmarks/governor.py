"""What the governor does beyond the grid of `foredraft bench`; benchmarks/governor.md says what the figures are.

    python benchmarks/governor.py mixed --model MODEL [--draft MODEL] [--rounds N] [--json FILE]
    python benchmarks/governor.py convergence ... [--plot FILE]
    python benchmarks/governor.py overhead ...

Arms take turns within a round on one loaded model, backwards in every second round, each after a round that does not
count. Ratios are those of one round, with their mean and its 95% interval (bench/paired.py).
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
from governor_figures import CONCURRENCY, MIXED, WINDOW, draw, mixed_figures, settled_line, settling, show_mixed, shown
from governor_traffic import Decisions, Stream, drive, read, set_modes, switches

from foredraft import _native
from foredraft.bench.arms import parse_arms
from foredraft.bench.paired import paired_ratio
from foredraft.bench.records import Record
from foredraft.bench.runner import Runner, turns
from foredraft.bench.workloads import DEFAULT, select
from foredraft.cli.files import check_writable, write_json
from foredraft.cli.options import conversation_tokens, loaded, model_options, positive_integers
from foredraft.cli.plot import check_can_plot
from foredraft.core import SamplingParams
from foredraft.engine.llm import LLM
from foredraft.governor.policy import empty_plan
from foredraft.governor.pools import PoolConfig
from foredraft.provenance import provenance

WORKLOADS = {"interactive": ("chat", "quote", "edit"), "enrichment": ("enrichment",)}
TEXTS = {"copies": ("edit", "quote"), "free text": ("ideas", "write")}
OVERHEAD_BOUND = 0.99
WARM_UP_S = 10.0
LISTED_OTHERWISE = ("model", "draft", "json_path", "plot")  # options that a record does not list as such


def options(rounds: int) -> Callable[[Any], Any]:
    """What every measurement takes."""

    def decorate(command: Any) -> Any:
        for option in (
            click.option("--json", "json_path", type=click.Path(path_type=Path), help="Save records after each round."),
            click.option("--max-tokens", type=click.IntRange(1), help="Shorten all answers to this many tokens."),
            click.option("--rounds", type=click.IntRange(1), default=rounds, show_default=True),
            model_options(),
        ):
            command = option(command)
        return command

    return decorate


@click.group()
def main() -> None:
    """Measure the governor."""


def save(llm: LLM, options: Mapping[str, Any], records: Sequence[Any], **more: Any) -> None:
    if options["json_path"]:
        given = {name: value for name, value in options.items() if name not in LISTED_OTHERWISE}
        given["isa"] = _native.isa()
        write_json(options["json_path"], {"provenance": provenance(llm.files, given), "runs": list(records), **more})


@main.command()
@options(rounds=8)
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Of each arm and round.")
def mixed(**options: Any) -> None:
    """Interactive and enrichment traffic together on one engine."""
    check_writable(options["json_path"])
    pools = {name: PoolConfig() for name in CONCURRENCY}
    settings = {"max_sequences": sum(CONCURRENCY.values()), "pools": pools, "routes": {name: name for name in pools}}
    with loaded(options, **settings) as llm:
        streams = {
            route: Stream.of(llm, route, WORKLOADS[route], concurrency, options["max_tokens"])
            for route, concurrency in CONCURRENCY.items()
        }
        records = []
        for number in range(options["rounds"] + 1):  # round 0 is the warm-up
            logs, seconds = {}, options["seconds"] if number else min(options["seconds"], WARM_UP_S)
            for arm in MIXED if number % 2 else reversed(MIXED):
                taking_part = [streams[route] for route in MIXED[arm]]
                read(llm, taking_part)
                set_modes(llm, MIXED[arm])
                gc.collect()
                logs[arm] = drive(llm, taking_part, lambda log, end_s=seconds: log.seconds >= end_s)
            if number:
                cost = llm.governor.curves.target.cost
                records += [mixed_figures(number, arm, log, log.expected_ends_s(cost)) for arm, log in logs.items()]
                save(llm, options, records)
                click.echo(f"round {number} of {options['rounds']} done", err=True)
    show_mixed(records)


@main.command()
@options(rounds=5)
@click.option("--concurrency", default="1,4", show_default=True, metavar="N,M")
@click.option("--steps", type=click.IntRange(4 * WINDOW), default=400, show_default=True, help="Of each kind of text.")
@click.option("--seconds", type=float, default=300.0, show_default=True, help="Of the long run with all workloads.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw k over steps (.png, .svg, .pdf).")
def convergence(**options: Any) -> None:
    """A route changes from copies to free text; and a long run of everything."""
    check_writable(options["json_path"])
    if options["plot"]:
        check_can_plot(options["plot"])
    concurrencies = positive_integers(options["concurrency"], "--concurrency")
    records, long_runs = [], []
    with loaded(options, max_sequences=max(concurrencies)) as llm:
        for number in range(options["rounds"] + 1):  # round 0 is the warm-up
            for concurrency in concurrencies:
                record = change(llm, number, concurrency, options)
                if number:
                    records.append(record)
                    save(llm, options, records)
                    click.echo(settled_line(record))
        for concurrency in concurrencies:
            stream = Stream.of(llm, f"all at {concurrency}", DEFAULT, concurrency, options["max_tokens"])
            read(llm, [stream])
            log = drive(llm, [stream], lambda log: log.seconds >= options["seconds"])
            num_switches = switches(llm, stream.route)
            per_minute = 60 * num_switches / log.seconds
            figures = {"seconds": log.seconds, "num_steps": len(log.records), "num_switches": num_switches}
            long_runs.append({"concurrency": concurrency, **figures, "switches_per_minute": per_minute})
            save(llm, options, records, long_runs=long_runs)
            click.echo(
                f"all workloads, {concurrency} at a time: {per_minute:.1f} switches a minute in {log.seconds:.0f} s"
            )
    if options["plot"]:
        draw(options["plot"], records)


def change(llm: LLM, number: int, concurrency: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """So many steps of copies, then as many of free text, on a route of its own. The copies that run are ended."""
    route = f"changes at {concurrency}, round {number}"
    phases = {kind: Stream.of(llm, route, names, concurrency, options["max_tokens"]) for kind, names in TEXTS.items()}
    read(llm, list(phases.values()))
    record: dict[str, Any] = {"round": number, "concurrency": concurrency, "ks": {}, "num_switches": {}, "seconds": {}}
    for kind, stream in phases.items():
        decisions, before = Decisions(llm), switches(llm, route)
        log = drive(llm, [stream], lambda log: len(log.records) >= options["steps"])
        record["ks"][kind] = decisions.ks
        record["num_switches"][kind], record["seconds"][kind] = switches(llm, route) - before, log.seconds
    llm.governor.on_plan, llm.engine.on_step = [], []
    return {**record, **settling(record["ks"]["free text"])}


@main.command()
@options(rounds=10)
@click.option("--concurrency", default="1,4,16,64", show_default=True, metavar="N,M")
def overhead(**options: Any) -> None:
    """auto that never drafts, since every plan is the empty one, against off."""
    check_writable(options["json_path"])
    concurrencies = positive_integers(options["concurrency"], "--concurrency")
    prompts, arms = select(["ideas"]), parse_arms("off,auto")
    records: list[Record] = []
    shares: dict[str, dict[str, dict[str, float]]] = {}
    # Asking, judging and resting go on; and so do probes of a draft model, where there is one.
    with (
        loaded(options, max_sequences=max(concurrencies)) as llm,
        patch("foredraft.governor.governor.decide", empty_plan),
    ):
        runner = Runner(
            llm,
            SamplingParams(seed=0),
            options["max_tokens"],
            partial(conversation_tokens, llm, raw=False),
            reads_ahead=True,
        )
        for turn in turns(["ideas"], arms, concurrencies, 1):
            runner.run(turn, prompts["ideas"])  # warm-up
        for turn in turns(["ideas"], arms, concurrencies, options["rounds"]):
            gc.collect()
            records.append(Record.of(runner.run(turn, prompts["ideas"]), has_prompt_times=False))
            save(llm, options, [record.as_dict() for record in records])
        runner.reads_ahead = False  # the prompts are there
        for turn in turns(["ideas"], arms, concurrencies, 1):
            with stopwatch(llm) as parts:
                runner.run(turn, prompts["ideas"])
            shares.setdefault(str(turn.concurrency), {})[turn.arm.name] = parts()
        save(llm, options, [record.as_dict() for record in records], shares=shares)
    for concurrency in concurrencies:
        speeds = {
            arm.name: {r.round: r.tokens_per_s for r in records if (r.concurrency, r.arm) == (concurrency, arm.name)}
            for arm in arms
        }
        ratio = paired_ratio(speeds["auto"], speeds["off"])
        share = {arm: sum(parts.values()) for arm, parts in shares[str(concurrency)].items()}
        holds = ratio.holds(OVERHEAD_BOUND) if ratio else None
        click.echo(
            f"{concurrency:2} at a time: auto over off {shown(ratio)}, at least {OVERHEAD_BOUND}: {holds}; "
            f"drafting took {share['auto']:.3%} of the steps, {share['off']:.3%} with off"
        )


@contextmanager
def stopwatch(llm: LLM) -> Iterator[Callable[[], dict[str, float]]]:
    """The shares of the steps' time that the methods of drafting took, timed from outside."""
    engine, seconds = llm.engine, Counter[str]()
    drafting, scheduler = engine._drafting, engine.scheduler

    def timed(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = method(*arguments)
            seconds[name] += time.perf_counter() - start
            return result

        return call

    # The scheduler was given the method `budget` when it was made.
    names = ("begin", "draft", "reason", "end", "release")
    parts = [(scheduler, "_draft_budget"), *((drafting, name) for name in names)]
    with ExitStack() as stack:
        for owner, name in [(engine, "step"), *parts]:
            stack.enter_context(patch.object(owner, name, timed(name, getattr(owner, name))))
        yield lambda: {name.removeprefix("_draft_"): seconds[name] / seconds["step"] for _, name in parts}


if __name__ == "__main__":
    main()
