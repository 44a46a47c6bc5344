"""Renders one chat template in a process of its own: one JSON line in, one JSON line out, until the input ends.

A chat template is a program from a stranger's file. Jinja's sandbox keeps it from the interpreter, but not from endless
loops, recursion, or strings and lists that double until memory is gone, and inside one process none of these can be
ended reliably: a limit on loops misses recursion, a limit on text misses lists, and a single call such as
`'x' * 10**10` never returns to any check. The operating system's limits hold for all of them. Run as a script with
nothing of foredraft imported, so that it starts fast; the other end is chat.py.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

# Templates run in milliseconds and in megabytes; conversations of millions of characters fit well below these.
MAX_CPU_SECONDS = 2.0
MAX_MEMORY_BYTES = 1 << 30
MAX_CHARS = 1 << 25


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; for a prompt only its body counts."""

    tags = {"generation"}  # noqa: RUF012 (Jinja declares it as an instance variable)

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> jinja2.Environment:
    """The environment that Hugging Face's transformers gives chat templates."""

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(f"it says: {message}")

    def strftime_now(format: str) -> str:
        return datetime.now().strftime(format)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def render(template: jinja2.Template, variables: dict[str, Any]) -> dict[str, str]:
    """{"text": ...}, or {"error": why not}."""
    pieces: list[str] = []
    num_chars = 0
    try:
        for piece in template.generate(variables):
            pieces.append(piece)
            num_chars += len(piece)
            if num_chars > MAX_CHARS:
                return {"error": f"its output is longer than {MAX_CHARS} characters"}
    except MemoryError:
        return {"error": f"it uses more than {MAX_MEMORY_BYTES >> 20} MiB of memory"}
    except jinja2.TemplateError as exc:
        return {"error": str(exc)}
    except Exception as exc:  # whatever a stranger's program raises is an answer, not a crash
        return {"error": f"{type(exc).__name__}: {exc}"}
    return {"text": "".join(pieces)}


def main() -> None:
    """Serve requests from standard input: first the template's source, then the variables of each rendering."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; this process ends with its input
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    template: jinja2.Template | None = None
    for line in sys.stdin.buffer:
        request = json.loads(line)
        # SIGPROF ends the process when the time is up, also inside a call that never returns to the interpreter.
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_SECONDS)
        try:
            template = template or _environment().from_string(request["source"])
            reply = render(template, request["variables"])
        except jinja2.TemplateError as exc:
            reply = {"error": f"line {getattr(exc, 'lineno', '?')}: {exc}"}
        except (MemoryError, RecursionError) as exc:
            reply = {"error": f"it cannot be compiled ({type(exc).__name__})"}
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
