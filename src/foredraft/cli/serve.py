"""`foredraft serve`: a model over the OpenAI API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from foredraft.cli.options import loaded, model_options, speculation, speculation_options
from foredraft.errors import ConfigError


@click.command(short_help="Serve a model over the OpenAI API.")
@model_options()
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
@click.option("--max-body", type=int, default=2048, show_default=True, help="Largest request, in KiB.")
def serve(**options: Any) -> None:
    """Answer many clients at once: chat completions, completions, models, tokenize and detokenize.

    Requests can set `speculation` (off, auto, on, or an object with mode, k, proposer and rule); the options here are
    for those that do not. Ctrl-C or SIGTERM lets running answers finish, and ends them after --grace.
    """
    try:
        from foredraft.server.auth import VARIABLE, read_keys
        from foredraft.server.config import ServerConfig
        from foredraft.server.engine_thread import EngineThread
        from foredraft.server.run import bind, run
    except ModuleNotFoundError as exc:
        raise ConfigError(f"the server needs {exc.name}; install it with: pip install 'foredraft[server]'") from exc

    config = ServerConfig(
        host=options["host"],
        port=options["port"],
        model_name=options["model_name"],
        api_keys=read_keys(options["api_keys_file"]),
        max_queue=options["max_queue"],
        deadline_s=options["deadline"],
        max_tokens=options["max_tokens"],
        max_body_bytes=options["max_body"] << 10,
        grace_s=options["grace"],
        speculation=speculation(options),
    )
    bound = bind(config.host, config.port)
    if not config.api_keys and config.host not in ("127.0.0.1", "::1", "localhost"):
        click.echo(f"anybody who reaches {config.host} can use this server; set {VARIABLE} to ask for a key", err=True)
    kv_memory = None if options["kv_memory"] is None else options["kv_memory"] << 20
    with bound, loaded(options, max_sequences=options["max_sequences"], kv_memory=kv_memory) as llm:
        host, port = bound.getsockname()[:2]
        name = config.model_name or llm.model_name
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
        if not run(EngineThread(llm), config, bound, lambda: click.echo(f"serving {name} at {url} (Ctrl-C to stop)")):
            raise ConfigError("the engine failed, so the server stopped; the log above says how")
