"""`foredraft chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from foredraft.cli.options import (
    loaded,
    max_tokens_option,
    model_options,
    sampling_options,
    sampling_params,
    speculation,
    speculation_options,
)
from foredraft.errors import RequestError

if TYPE_CHECKING:
    from foredraft.core import SamplingParams, Speculation
    from foredraft.engine.llm import LLM

HELP = "/reset forgets the conversation, /stats shows the last answer's figures, /quit or Ctrl-D leaves"


@click.command(short_help="Talk with a model.")
@model_options()
@click.option("--system", metavar="TEXT", help="A system message to begin every conversation with.")
@max_tokens_option(1024)
@sampling_options
@speculation_options
@click.option("--show-drafts", is_flag=True, help="Mark in the text which tokens were drafted.")
def chat(**options: Any) -> None:
    """Talk with a model; its work on the conversation so far is kept, so only new text is read.

    /reset forgets the conversation, /stats shows the last answer's figures, /quit or Ctrl-D leaves. Ctrl-C stops an
    answer and keeps what was said. Lines can be piped in. The model's file must have a chat template.
    """
    params, how = sampling_params(options), speculation(options)
    with loaded(options, max_sequences=1) as llm:
        conversation = Conversation(llm, params, how, options["system"], options["show_drafts"])
        if sys.stdin.isatty():
            click.echo(f"{llm.model_name}: {HELP}", err=True)
        for line in _lines():
            if line == "/quit":
                break
            if line == "/reset":
                conversation.reset()
            elif line == "/stats":
                click.echo(conversation.stats, err=True)
            elif line.startswith("/"):
                click.echo(f"unknown command {line.split()[0]}; {HELP}", err=True)
            elif line.strip():
                conversation.answer(line)


class Conversation:
    """The messages so far, and the figures of the last answer.

    Raises:
        TemplateError: the model's file has no chat template (when made), or it refuses the messages.
    """

    def __init__(
        self, llm: LLM, params: SamplingParams, how: Speculation, system: str | None, show_drafts: bool
    ) -> None:
        self.llm, self.params, self.how, self.show_drafts = llm, params, how, show_drafts
        self._opening = [{"role": "system", "content": system}] if system else []
        self.reset()
        llm.chat_tokens([*self._opening, {"role": "user", "content": "?"}])  # refuse before the first question

    def reset(self) -> None:
        self.messages = list(self._opening)
        self.stats = "no answer yet"

    def answer(self, question: str) -> None:
        """Stream the answer to a question and remember both. Ctrl-C ends the answer; a refused question is dropped."""
        from foredraft.cli.exchange import Exchange
        from foredraft.cli.output import Writer

        messages = [*self.messages, {"role": "user", "content": question}]
        exchange = Exchange(self.llm.chat_tokens(messages), self.params, self.how)
        try:
            exchange.run(self.llm, Writer(self.show_drafts))
        except KeyboardInterrupt:
            click.echo("(stopped)", err=True)
        except RequestError as error:
            click.echo(f"error: {error}; /reset starts afresh", err=True)
            return
        if not sys.stdout.isatty():
            click.echo()
        self.stats = exchange.describe()
        text = exchange.answers[0].text if exchange.answers else ""
        self.messages = [*messages, {"role": "assistant", "content": text}]


def _lines() -> Iterator[str]:
    """Lines of standard input; on a terminal with a prompt and line editing, where Ctrl-C only clears the line."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            yield line.rstrip("\r\n")
        return
    import contextlib

    with contextlib.suppress(ImportError):  # no line editing on some systems; input() works without
        import readline  # noqa: F401
    while True:
        try:
            yield input("> ")
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()
