"""`foredraft generate`: one prompt in, the text out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from foredraft.cli.files import check_writable, read_json, read_text
from foredraft.cli.options import (
    loaded,
    max_tokens_option,
    model_options,
    prompt_tokens,
    sampling_options,
    sampling_params,
    speculation,
    speculation_options,
)
from foredraft.cli.tracing import trace_option, traced
from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from foredraft.cli.exchange import Exchange
    from foredraft.cli.output import Writer


@click.command(short_help="Answer one prompt.")
@model_options()
@click.option("--prompt", metavar="TEXT", help="The prompt. Without it and --prompt-file, standard input is read.")
@click.option("--prompt-file", type=click.Path(path_type=Path), metavar="FILE", help="Read the prompt from a file.")
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without the model's chat template.")
@max_tokens_option(256)
@sampling_options
@click.option("--n", type=int, default=1, show_default=True, help="Answers to draw; above 1 only with --json.")
@click.option("--logprobs", type=int, metavar="N", help="Log probabilities of the N best tokens; only with --json.")
@click.option(
    "--json-schema", type=click.Path(path_type=Path), metavar="FILE", help="Answer in JSON that matches this schema."
)
@speculation_options
@click.option("--show-drafts", is_flag=True, help="Mark in the text which tokens were drafted.")
@click.option("--stats", is_flag=True, help="Print speeds and draft counts to standard error at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end in place of the text.")
@trace_option
def generate(**options: Any) -> None:
    """Answer one prompt and print the text as it comes: exactly the model's bytes, nothing else.

    The prompt is put into the chat template of the model's file where it has one; --raw continues it as it is.
    """
    _check(options)
    prompt = _read_prompt(options)
    params, how = sampling_params(options), speculation(options)
    response_format = _response_format(options["json_schema"])
    from foredraft.cli.exchange import Exchange
    from foredraft.governor.trace import TraceConfig

    check_writable(options["trace"])
    config = TraceConfig(options["trace"])
    with loaded(options, max_sequences=params.n) as llm, traced(llm, config, asdict(how)):
        exchange = Exchange(prompt_tokens(llm, prompt, raw=options["raw"]), params, how, response_format)
        exchange.run(llm, _writer(options))
    if options["as_json"]:
        click.echo(json.dumps(_as_json(llm.model_name, exchange), ensure_ascii=False))
    if options["stats"]:
        click.echo("\n" + exchange.describe(), err=True)


def _writer(options: Mapping[str, Any]) -> Writer | None:
    from foredraft.cli.output import Writer, legend

    if options["as_json"]:
        return None
    writer = Writer(options["show_drafts"])
    if options["show_drafts"]:
        click.echo(legend(writer.is_colored), err=True)
    return writer


def _check(options: Mapping[str, Any]) -> None:
    if options["prompt"] is not None and options["prompt_file"] is not None:
        raise ConfigError("both --prompt and --prompt-file are given; give one of them")
    if options["as_json"] and options["show_drafts"]:
        raise ConfigError("--show-drafts marks printed text, which --json does not print; leave one of them out")
    for name in ("n", "logprobs"):
        if not options["as_json"] and options[name] not in (None, 1 if name == "n" else None):
            raise ConfigError(f"--{name} {options[name]} cannot be shown as plain text; add --json")


def _read_prompt(options: Mapping[str, Any]) -> str:
    if options["prompt"] is not None:
        return str(options["prompt"])
    if options["prompt_file"] is not None:
        return read_text(options["prompt_file"])
    if sys.stdin.isatty():
        raise ConfigError("no prompt is given; use --prompt TEXT or --prompt-file FILE, or pipe the text in")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise ConfigError("standard input is not UTF-8 text; convert it first") from None


def _response_format(schema: Path | None) -> dict[str, Any] | None:
    return None if schema is None else {"type": "json_schema", "schema": read_json(schema)}


def _as_json(model: str, exchange: Exchange) -> dict[str, Any]:
    return {
        "model": model,
        "seed": exchange.params.seed,
        "num_prompt_tokens": len(exchange.tokens),
        "choices": [
            {
                "text": answer.text,
                "token_ids": answer.token_ids,
                "finish_reason": answer.finish_reason,
                "logprobs": [{"logprob": lp.logprob, "top": dict(lp.top)} for lp in answer.logprobs] or None,
                "stats": answer.stats and answer.stats.as_dict(),
            }
            for answer in exchange.answers
        ],
        "ttft_ms": exchange.timeline.ttft_s * 1e3,
        "tokens_per_s": exchange.tokens_per_s,
        "prompt_tokens_per_s": exchange.prompt_tokens_per_s,
    }
