"""`foredraft experiment`: an A/B on a pool of a running server, or on a model of its own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from foredraft.cli.admin_api import VARIABLE, AdminApi, admin_key
from foredraft.cli.files import check_writable, write_json
from foredraft.cli.options import default_proposers, loaded, model_names, model_options, prompt_tokens, split_names
from foredraft.cli.output import progress
from foredraft.errors import ConfigError, ForedraftError, UnavailableError

POLL_S = 0.5
OF_A_SERVER = ("url", "admin_key_file", "pool")
OF_A_MODEL = ("draft", "draft_vocabulary", "drafter", "context", "threads", "workload", "concurrency", "max_tokens")


@click.command(short_help="Find out on live traffic whether drafts pay.")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, metavar="URL", help="Of the server.")
@click.option(
    "--admin-key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Holds the admin key; else it is read from the environment variable {VARIABLE}.",
)
@click.option("--pool", default="default", show_default=True, metavar="NAME", help="The pool to try the arms on.")
@model_options(required=False)
@click.option("--workload", metavar="A,B", help="With --model: of edit, quote, chat, write, ideas; default: all.")
@click.option(
    "--concurrency", type=click.IntRange(1, 1024), default=4, show_default=True, help="With --model: requests at once."
)
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="With --model: shorten all answers to this.")
@click.option(
    "--arms",
    default="off,auto",
    show_default=True,
    metavar="A,B",
    help="The baseline and the candidate, each mode[:proposers joined by +[:k]].",
)
@click.option("--window", type=float, default=30.0, show_default=True, help="Seconds to measure in each window.")
@click.option(
    "--carry-over",
    type=float,
    default=1.0,
    show_default=True,
    help="Least seconds to leave out after a switch; the longest answer seen so far raises it.",
)
@click.option("--blocks", type=int, default=12, show_default=True, help="Blocks of four windows.")
@click.option("--seed", type=int, help="Draws the order of the arms; default: a fresh one, which the record has.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="Save the record.")
def experiment(**options: Any) -> None:
    """Let two arms take turns on a pool, while its requests come in, until they are told apart.

    Whole windows belong to one arm, in blocks ABBA or BAAB. The experiment ends early if the candidate does harm, and
    else after all blocks with a verdict. If that is better or worse, the server gives the pool the better arm's
    settings; after every other end the pool has its own settings back. Ctrl-C stops it.

    With --model there is no server: the model is loaded here and always has --concurrency requests.
    """
    check_writable(options["json_path"])
    _check_mixture(options["model"] is not None)
    wish = {
        "pool": options["pool"],
        "arms": split_names(options["arms"]),
        "window_s": options["window"],
        "carry_over_s": options["carry_over"],
        "blocks": options["blocks"],
        "seed": secrets.randbits(53) if options["seed"] is None else options["seed"],
    }

    def report(record: Mapping[str, Any]) -> None:
        from foredraft.cli.experiment_tables import show

        if options["json_path"]:
            write_json(options["json_path"], record)
        show(record)

    if options["model"] is None:
        _on_a_server(options, wish, report)
    else:
        _on_a_model(options, wish, report)


Report = Callable[[Mapping[str, Any]], None]


def _check_mixture(has_model: bool) -> None:
    """Refuse options that would not be honored."""
    ctx = click.get_current_context()
    for name in OF_A_SERVER if has_model else OF_A_MODEL:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{option} is for an experiment {'on a server, without' if has_model else 'with'} --model"
            )


def _on_a_server(options: Mapping[str, Any], wish: Mapping[str, Any], report: Report) -> None:
    if not options["url"].startswith(("http://", "https://")):
        raise ConfigError(f"--url is {options['url']!r}; it begins with http:// or https://")
    api = AdminApi(options["url"], admin_key(options["admin_key_file"]))
    record = api("POST", "/admin/experiments", wish)
    path = f"/admin/experiments/{record['id']}"
    try:
        with progress() as bar:
            task = bar.add_task("", total=len(record["design"]))
            while record["status"] == "running":
                bar.update(task, completed=len(record["windows"]), description=_now(record))
                time.sleep(POLL_S)
                record = api("GET", path)
    except KeyboardInterrupt:
        report(api("DELETE", path))
        raise
    except (ConfigError, UnavailableError) as error:
        raise UnavailableError(f"{error}; if the server runs, so does experiment {record['id']}") from None
    report(record)
    if record["status"] in ("no_traffic", "failed"):
        raise UnavailableError(record["reason"])


def _on_a_model(options: Mapping[str, Any], wish: Mapping[str, Any], report: Report) -> None:
    from foredraft.bench.arms import parse_arms, proposers_of
    from foredraft.bench.closed_loop import ClosedLoop
    from foredraft.bench.workloads import select
    from foredraft.governor.experiment import Experiment, ExperimentConfig
    from foredraft.governor.pools import DEFAULT, PoolConfig
    from foredraft.models import catalog
    from foredraft.provenance import provenance

    config = ExperimentConfig(**wish)
    arms = parse_arms(options["arms"])
    workload = [prompt for prompts in select(split_names(options["workload"])).values() for prompt in prompts]
    proposers = proposers_of(arms, default_proposers(options))
    files = {role: catalog.resolve(name) for role, name in model_names(options).items()}
    given = {name: options[name] for name in OF_A_MODEL if name not in ("draft", "drafter")}
    with loaded(options, proposers=proposers, max_sequences=options["concurrency"], prefix_cache=False) as llm:
        loop = ClosedLoop(
            llm,
            workload,
            lambda text: prompt_tokens(llm, text, raw=False),
            concurrency=options["concurrency"],
            max_tokens=options["max_tokens"],
        )
        tried = Experiment(config, PoolConfig(), [DEFAULT], time.perf_counter())
        try:
            with progress() as bar:
                task = bar.add_task("", total=len(tried.design))
                loop.run(
                    tried,
                    {name: arm.speculation for name, arm in zip("AB", arms, strict=True)},
                    lambda: bar.update(task, completed=len(tried.windows), description=_now(tried.record())),
                )
        except KeyboardInterrupt:
            tried.end("stopped", "stopped by Ctrl-C")
            raise
        except ForedraftError as error:
            tried.end("failed", str(error))
            raise
        finally:
            report({**tried.record(), "provenance": provenance(files, given)})


def _now(record: Mapping[str, Any]) -> str:
    return f"window {len(record['windows']) + 1}, {' against '.join(record['config']['arms'])}"
