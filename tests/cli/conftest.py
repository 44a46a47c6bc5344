"""Running the command line inside the test's process, with the fake model unless a test asks for a real one."""

import io
import sys
from collections.abc import Callable

import pytest

from cli_run import Done
from fake_llm import FakeLLM
from foredraft.cli import main

RunCli = Callable[..., Done]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> RunCli:
    """Run `foredraft ARGUMENTS...` with `stdin` piped in; no argument may leave a traceback."""
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: object, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = main.run([str(argument) for argument in arguments])
        done = Done(status, *capfd.readouterr())
        assert "Traceback" not in done.err
        return done

    return run


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeLLM]:
    """Put the fake model in the place of LLM; returns its class."""
    monkeypatch.setattr("foredraft.engine.llm.LLM", FakeLLM)
    monkeypatch.setattr(FakeLLM, "instances", [])
    for name in ("has_template", "interrupt_at", "interrupt_after", "is_wrong_with"):
        monkeypatch.setattr(FakeLLM, name, getattr(FakeLLM, name))
    return FakeLLM
