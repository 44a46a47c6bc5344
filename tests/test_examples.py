"""The deployment examples: the configuration loads, and linters have nothing to say about the others."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foredraft.config import load
from foredraft.models import catalog
from foredraft.server.config import SECTIONS, ServerConfig, assembled

EXAMPLES = Path(__file__).parent.parent / "examples"
MOST_EXPOSURE = 15  # by the measure of systemd-analyze, times ten: 0 is shut, 100 wide open


def tool(name: str) -> str:
    """Where a linter is; it may have been installed beside this Python."""
    path = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def test_the_configuration_loads_and_shows_every_section():
    config = load(SECTIONS, EXAMPLES / "foredraft.toml")
    assert assembled(config) != ServerConfig()
    assert {config["model"].target, config["model"].draft} <= catalog.MODELS.keys()
    titles = re.findall(r"^\[(\w+)[.\w-]*\]", (EXAMPLES / "foredraft.toml").read_text(), re.MULTILINE)
    assert list(dict.fromkeys(titles)) == list(SECTIONS)
    assert {"interactive", "enrichment"} <= config["pools"].keys()


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The service with a command that exists on this machine."""
    text, count = re.subn(
        r"^ExecStart=\S+", f"ExecStart={sys.executable}", (EXAMPLES / "foredraft.service").read_text(), flags=re.M
    )
    assert count == 1
    path = tmp_path / "foredraft.service"
    path.write_text(text)
    return path


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert not done.stderr


def test_systemd_understands_the_service(unit):
    run(tool("systemd-analyze"), "verify", "--man=no", unit)


def test_the_service_is_locked_down(unit):
    run(tool("systemd-analyze"), "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", unit)


def test_the_service_waits_for_running_answers():
    text = (EXAMPLES / "foredraft.service").read_text()
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", text, re.M)[1]) >= ServerConfig().grace_s + 10


def test_hadolint_has_nothing_to_say():
    run(tool("hadolint"), EXAMPLES / "Dockerfile")


def test_what_the_dockerfile_copies_is_there():
    text = (EXAMPLES / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M) for name in line.split()]
    assert {"pyproject.toml", "src", "csrc"} <= set(copied)
    assert all((EXAMPLES.parent / name).exists() for name in copied)
