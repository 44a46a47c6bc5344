"""`foredraft serve`: a model over the OpenAI API."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from foredraft import config
from foredraft.cli.files import check_writable
from foredraft.cli.options import model_options, speculation_options, split_names
from foredraft.cli.tracing import trace_option, traced
from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from foredraft.engine.config import ModelConfig


# The section and key of a configuration file that each option stands for.
KEYS = {
    "model": ("model", "target"),
    "draft": ("model", "draft"),
    "draft_vocabulary": ("model", "draft_vocabulary"),
    "drafter": ("model", "drafters"),
    "context": ("model", "context_length"),
    "threads": ("model", "threads"),
    "max_sequences": ("model", "max_sequences"),
    "kv_memory": ("model", "kv_memory_mib"),
    "host": ("server", "host"),
    "port": ("server", "port"),
    "model_name": ("server", "model_name"),
    "api_keys_file": ("server", "api_keys_file"),
    "grace": ("server", "grace_s"),
    "max_queue": ("limits", "max_queue"),
    "max_tokens": ("limits", "max_tokens"),
    "deadline": ("limits", "deadline_s"),
    "max_body": ("limits", "max_body_bytes"),
    "speculation": ("speculation", "mode"),
    "k": ("speculation", "k"),
    "proposer": ("speculation", "proposers"),
    "rule": ("speculation", "rule"),
    "tree_width": ("speculation", "tree_width"),
    "trace": ("trace", "file"),
}


def _given(ctx: click.Context) -> dict[str, dict[str, Any]]:
    """What was given on the command line, by section and key."""
    given: dict[str, dict[str, Any]] = {}
    for name, (section, key) in KEYS.items():
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            value = ctx.params[name]
            given.setdefault(section, {})[key] = split_names(value) if name == "proposer" else value
    return given


@click.command(short_help="Serve a model over the OpenAI API.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A configuration file (docs/config.md); options here win over it.",
)
@click.option("--dump-config", is_flag=True, help="Print the configuration that all of this amounts to, and exit.")
@model_options(required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=int, default=8000, show_default=True, help="0 takes any free one.")
@click.option("--model-name", metavar="NAME", help="What clients call the model; default: as it was loaded.")
@click.option(
    "--api-keys-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keys that clients may come with, one a line; also read from the environment variable FOREDRAFT_API_KEYS.",
)
@speculation_options
@click.option("--max-sequences", type=int, default=16, show_default=True, help="Answers that are written at once.")
@click.option("--max-queue", type=int, default=64, show_default=True, help="Answers that may wait; more are refused.")
@click.option("--max-tokens", type=int, metavar="N", help="Most tokens that a request may ask for; default: --context.")
@click.option("--kv-memory", type=int, metavar="MIB", help="Memory for keys and values; default: what is needed.")
@click.option("--deadline", type=float, default=600.0, show_default=True, help="Seconds that a request may take.")
@click.option("--grace", type=float, default=10.0, show_default=True, help="Seconds to finish in when told to stop.")
@click.option("--max-body", type=int, default=2 << 20, show_default=True, help="Largest request, in bytes.")
@trace_option
def serve(config_file: Path | None, dump_config: bool, **options: Any) -> None:
    """Answer many clients at once: chat completions, completions, models, tokenize and detokenize.

    Requests can set `speculation` (off, auto, on, or an object with mode, k, proposer, rule and tree_width); the
    options here are for those that do not. Ctrl-C or SIGTERM lets running answers finish, and ends them after --grace.
    """
    try:
        from foredraft.engine.llm import LLM
        from foredraft.server.auth import VARIABLE
        from foredraft.server.config import SECTIONS, assembled, with_keys
        from foredraft.server.engine_thread import EngineThread
        from foredraft.server.logs import configure
        from foredraft.server.run import bind, run
    except ModuleNotFoundError as exc:
        raise ConfigError(f"the server needs {exc.name}; install it with: pip install 'foredraft[server]'") from exc

    settings = config.load(SECTIONS, config_file, _given(click.get_current_context()))
    server = assembled(settings, config_file)
    if dump_config:
        click.echo(config.dump(settings), nl=False)
        return
    model: ModelConfig = settings["model"]
    if model.target is None:
        raise ConfigError("there is no model to serve; give --model, or target in the section [model] of --config")
    server = with_keys(server)
    check_writable(settings["trace"].file)
    bound = bind(server.host, server.port)
    if not server.api_keys and server.host not in ("127.0.0.1", "::1", "localhost"):
        click.echo(f"anybody who reaches {server.host} can use this server; set {VARIABLE} to ask for a key", err=True)
    proposers = server.speculation.proposers or None
    arguments = {**model.arguments, "proposers": proposers, "pools": server.pools, "routes": server.pool_names}
    with bound, LLM(model.target, model.draft, **arguments) as llm:
        configure(server.logs)
        host, port = bound.getsockname()[:2]
        name = server.model_name or llm.model_name
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
        with traced(llm, settings["trace"], asdict(server.speculation)):
            is_well = run(
                EngineThread(llm), server, bound, lambda: click.echo(f"serving {name} at {url} (Ctrl-C to stop)")
            )
        if not is_well:
            raise ConfigError("the engine failed, so the server stopped; the log above says how")
