"""What a run of the command line left behind."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


def refused(done: Done) -> str:
    """The one sentence of a refused command."""
    assert done.status == 2, done
    assert done.out == ""
    lines = done.err.strip().splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("error: ")
    return lines[0]
