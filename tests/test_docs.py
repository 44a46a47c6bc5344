"""What README and docs say is true: examples run, names and options exist, generated pages are up to date."""

import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import foredraft
from foredraft import errors
from foredraft.cli.main import cli
from foredraft.core import SamplingParams, SpeculationStats

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "docs/python.md"])
def test_python_examples_run(name, smollm2, capsys):
    examples = blocks(ROOT / name, "python")
    assert examples
    exec("\n".join(examples), {})
    assert capsys.readouterr().out.strip()


def test_generated_pages_are_up_to_date():
    subprocess.run([sys.executable, ROOT / "tools" / "docs.py", "--check"], check=True)


def command_lines() -> list[str]:
    """Every `foredraft ...` line in a shell block of any page, without comments and redirections."""
    lines = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    return [re.split(r"[|>#]", line)[0].strip() for line in lines if re.match(r"(\.venv/bin/)?foredraft ", line)]


def test_there_are_command_lines():
    assert len(command_lines()) >= 5


@pytest.mark.parametrize("line", command_lines())
def test_command_lines_are_understood(line):
    _, *arguments = shlex.split(line)
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(command.name, arguments, resilient_parsing=False)


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    named = {target for page in PAGES for target in re.findall(r"`?make ([a-z-]+)", page.read_text())}
    assert {"demo", "test", "check", "test-models"} <= named
    assert all(f"\n{target}:" in makefile for target in named)


def test_python_page_is_complete():
    text = (ROOT / "docs" / "python.md").read_text()
    wanted = {*foredraft.__all__, *SamplingParams.__dataclass_fields__}
    wanted |= {name for name in SpeculationStats.__dataclass_fields__ if name != "num_ended_by_rejection"}
    wanted |= {name for name, value in vars(errors).items() if inspect.isclass(value)}
    wanted |= set(inspect.signature(foredraft.LLM.__init__).parameters) - {"self"}
    missing = [name for name in sorted(wanted) if not re.search(rf"\b{name}\b", text)]
    assert not missing


def test_ci_runs_what_the_readme_names():
    commands = re.findall(r"^make [a-z-]+$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    readme = (ROOT / "README.md").read_text()
    assert commands == ["make check", "make sanitize", "make demo", "make test", "make test-models"]
    assert all(command in readme for command in commands)
