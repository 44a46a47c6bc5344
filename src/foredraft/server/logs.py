"""Structured logs: one line for each event, as JSON or as key=value, uvicorn's among them.

Text of prompts and answers is never in them unless the configuration asks for it, and nothing that a client sends can
begin a line of its own or reach a terminal as a control character.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from foredraft.config import check, option

log = logging.getLogger("foredraft.requests")
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)  # of the request this task works for

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"[\w.:/+-]+", re.ASCII)


@dataclass(frozen=True)
class LogConfig:
    """The section [logs] of a configuration file."""

    level: str = option("info", "The least that is worth a line.", choices=("debug", "info", "warning", "error"))
    format: str = option(
        "text", "text: time, level, message, key=value; json: an object a line.", choices=("text", "json")
    )
    prompts: bool = option(False, "Also write the text of prompts and answers. They may hold what nobody should read.")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class RequestSummary:
    """What is logged of a request once it is over. outcome: one of metrics.OUTCOMES; times from its arrival on."""

    route: str
    outcome: str
    status: int
    total_ms: float
    ttft_ms: float | None = None
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted: int = 0


class RequestLog:
    """Writes the line of a request that is over, with the texts only where the configuration asks for them."""

    def __init__(self, config: LogConfig) -> None:
        self._with_texts = config.prompts

    def ended(self, summary: RequestSummary, prompt: str = "", answer: str = "") -> None:
        fields = {name: value for name, value in asdict(summary).items() if value is not None}
        if self._with_texts:
            fields |= {"prompt": prompt, "answer": answer}
        level = logging.ERROR if summary.outcome == "error" else logging.INFO
        log.log(level, "request ended", extra={"fields": fields})


def configure(config: LogConfig, stream: TextIO | None = None) -> None:
    """Send the logs of this process to `stream` (standard error) and nowhere else, those of uvicorn included.

    For uvicorn to leave it at that, give it `log_config=None`. Other libraries are heard from WARNING on.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_JsonFormatter() if config.format == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for logger in map(logging.getLogger, ("uvicorn", "uvicorn.error", "uvicorn.access")):
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.NOTSET)
    for name in ("foredraft", "uvicorn"):
        logging.getLogger(name).setLevel(config.level.upper())


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    """What goes with the message: the request that was being worked for, and the `fields` given to the logger."""
    current = request_id.get()
    return {**({"request_id": current} if current else {}), **getattr(record, "fields", {})}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str).replace("\x7f", "\\u007f")  # the one control character that JSON lets be


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        pairs = [f" {name}={_quoted(value)}" for name, value in _fields(record).items()]
        line = f"{_time(record)} {record.levelname.lower():7} {record.getMessage()}{''.join(pairs)}"
        trace = self.formatException(record.exc_info).split("\n") if record.exc_info else []
        return "\n".join(_printable(each) for each in [line, *(f"    {each}" for each in trace)])


def _printable(line: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", line)


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
