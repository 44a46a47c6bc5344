"""Log lines: structured, one for an event whatever a client sends, and without anybody's prompts."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foredraft.server.logs import LogConfig, RequestLog, RequestSummary, configure, request_id

SUMMARY = RequestSummary("chat", "stop", 200, total_ms=812.5, ttft_ms=31.2, num_prompt_tokens=40, num_output_tokens=9)
LOGGERS = ("", "foredraft", "uvicorn", "uvicorn.error", "uvicorn.access")


@pytest.fixture(autouse=True)
def _loggers_as_they_were() -> Iterator[None]:
    before = [(logging.getLogger(name), {**vars(logging.getLogger(name))}) for name in LOGGERS]
    yield
    for logger, state in before:
        logger.handlers, logger.propagate = state["handlers"], state["propagate"]
        logger.setLevel(state["level"])


def written(config: LogConfig, *events: tuple[str, int, str], exc_info: BaseException | None = None) -> str:
    """What is written for messages (logger, level, message)."""
    stream = io.StringIO()
    configure(config, stream)
    for name, level, message in events:
        logging.getLogger(name).log(level, "%s", message, exc_info=exc_info)
    return stream.getvalue()


def line_of(config: LogConfig, summary: RequestSummary, **texts: str) -> str:
    stream = io.StringIO()
    configure(config, stream)
    RequestLog(config).ended(summary, **texts)
    return stream.getvalue()


def test_a_request_as_json():
    line = json.loads(line_of(LogConfig(format="json"), SUMMARY, prompt="secret", answer="also secret"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "info",
        "logger": "foredraft.requests",
        "message": "request ended",
        "route": "chat",
        "outcome": "stop",
        "status": 200,
        "total_ms": 812.5,
        "ttft_ms": 31.2,
        "num_prompt_tokens": 40,
        "num_cached_tokens": 0,
        "num_output_tokens": 9,
        "num_draft_tokens": 0,
        "num_accepted": 0,
    }


def test_a_request_as_text():
    token = request_id.set("req 1")
    line = line_of(LogConfig(), SUMMARY)
    request_id.reset(token)
    assert re.match(
        r'\S+Z info    request ended request_id="req 1" route=chat outcome=stop status=200 total_ms=812\.5 ', line
    )
    assert line.count("\n") == 1


@pytest.mark.parametrize("format", ["text", "json"])
def test_texts_are_written_only_when_asked_for(format):
    quiet = line_of(LogConfig(format=format), SUMMARY, prompt="my secret", answer="an answer")
    assert "secret" not in quiet
    assert "answer" not in quiet
    loud = line_of(LogConfig(format=format, prompts=True), SUMMARY, prompt="my secret", answer="an answer")
    assert "my secret" in loud
    assert "an answer" in loud


def test_a_fault_of_ours_is_an_error():
    failed = RequestSummary("chat", "error", 500, 1.0)
    assert json.loads(line_of(LogConfig(format="json"), failed))["level"] == "error"
    assert line_of(LogConfig(level="error"), SUMMARY) == ""


def test_uvicorn_writes_into_the_same_log():
    lines = written(
        LogConfig(format="json"),
        ("uvicorn.error", logging.INFO, "Started server process"),
        ("uvicorn.access", logging.INFO, "GET /health"),
        ("foredraft", logging.INFO, "ready"),
        ("httpx", logging.INFO, "some library's chatter"),
        ("httpx", logging.WARNING, "some library's warning"),
    )
    assert [json.loads(line)["message"] for line in lines.splitlines()] == [
        "Started server process",
        "GET /health",
        "ready",
        "some library's warning",
    ]


def test_uvicorn_leaves_the_log_alone():
    uvicorn = pytest.importorskip("uvicorn", reason="the server extra is not installed")
    stream = io.StringIO()
    configure(LogConfig(format="json", level="debug"), stream)
    uvicorn.Config("app:app", log_config=None)
    logging.getLogger("uvicorn.error").info("hello")
    assert json.loads(stream.getvalue())["logger"] == "uvicorn.error"


def test_what_uvicorn_did_before_does_not_matter():
    logger = logging.getLogger("uvicorn.error")
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    logger.handlers = [logging.NullHandler()]
    assert "hello" in written(LogConfig(), ("uvicorn.error", logging.INFO, "hello"))


def test_configuring_again_replaces_the_log():
    first = io.StringIO()
    configure(LogConfig(), first)
    assert written(LogConfig(), ("foredraft", logging.INFO, "once")).count("once") == 1
    assert first.getvalue() == ""


def error_of(message: str) -> BaseException:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


@given(st.text(max_size=40))
@example("\x00\n\r\x1b[2J\x7f\x85\u2028")
def test_a_message_is_one_line_whatever_is_in_it(text):
    for config in (LogConfig(), LogConfig(format="json")):
        output = written(config, ("foredraft", logging.INFO, text))
        assert output.endswith("\n")
        assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029]", output[:-1])
    assert json.loads(output)["message"] == text


def test_an_exception_is_kept_and_cannot_forge_a_line():
    error = error_of("bad\n2026-01-01T00:00:00.000Z info    all is well\x1b[2J")
    text = written(LogConfig(), ("foredraft", logging.ERROR, "failed"), exc_info=error)
    head, *trace = text.splitlines()
    assert head.endswith("failed")
    assert any("ValueError: bad" in line for line in trace)
    assert all(line.startswith("    ") for line in trace)
    assert "\x1b" not in text
    line = json.loads(written(LogConfig(format="json"), ("foredraft", logging.ERROR, "failed"), exc_info=error))
    assert "ValueError: bad" in line["exception"]
