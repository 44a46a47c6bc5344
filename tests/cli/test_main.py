import subprocess
import sys

import pytest

import foredraft
from cli_run import refused
from foredraft.cli import main
from foredraft.errors import ForedraftError


def test_version(cli):
    assert cli("--version").out == f"foredraft {foredraft.__version__}\n"


@pytest.mark.parametrize("name", ["pull", "generate", "chat", "bench", "plan", "check", "demo"])
def test_every_command_has_help(cli, name):
    done = cli(name, "--help")
    assert done.status == 0
    assert done.out.startswith(f"Usage: foredraft {name}")
    assert name in cli("--help").out


def test_no_command_shows_the_help(cli):
    done = cli()
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("Usage: foredraft")


def test_unknown_command(cli):
    assert "No such command 'generat'" in refused(cli("generat"))


def test_our_errors_are_one_sentence(cli, monkeypatch):
    def fail(*arguments, **options):
        raise ForedraftError("it is broken; mend it")

    monkeypatch.setattr(main.cli, "main", fail)
    assert refused(cli("plan")) == "error: it is broken; mend it"


def test_reader_that_goes_away():
    """`foredraft ... | head -1` ends without a word."""
    command = [sys.executable, "-m", "foredraft", "plan", "--alpha", "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1
