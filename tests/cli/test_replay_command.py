import json
import re
from dataclasses import replace

import pytest

import tiny
from cli_run import refused
from foredraft.governor.plan import Candidate
from foredraft.governor.trace import read_trace
from foredraft.governor.trace_format import TraceStep
from traces import outcome, plan, record, snapshot, write

LOOKUP = Candidate("lookup", (0.5, 0.25), True)
DRAFTED = TraceStep(snapshot((LOOKUP,)), plan(2), record(outcome(2, 1, True), num_tokens={1: 2}, seconds=1.5))
PLAIN = TraceStep(snapshot((LOOKUP,)), plan(), record(num_tokens={1: 1}))


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "some.trace.gz"
    write(path, [DRAFTED, PLAIN])
    return path


def rows(text: str) -> dict[str, list[str]]:
    """The cells of every line of a table, by the first."""
    lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]
    return {first: cells for first, *cells in lines}


def test_policies_side_by_side(cli, trace):
    done = cli("replay", trace, "--policy", "recorded,off, fixed:1")
    assert (done.status, done.err) == (0, "")
    found = rows(done.out)
    # 2.75 expected tokens and 3 real ones in 2.625 s; off one token a second; 3 in 2.5 s expected, 2 + 1.5 real or not.
    assert found["recorded"] == ["1.05", "1.14", "100.0%", "1.375", "1.00", "0: 50%, 2: 50%", "0.0%", "22.9"]
    assert found["off"] == ["1.00", "1.00", "100.0%", "1.000", "0.00", "0: 100%", "50.0%", "0.0"]
    assert found["fixed:1"] == ["1.20", "1.40", "50.0%", "1.500", "1.00", "1: 100%", "100.0%", "0.0"]
    assert found["0.5"] == ["0.6", "1", "0.500", "1.000"]
    assert found["0.9"] == ["1.0", "0", "", ""]
    assert "2 steps with 3 tokens in 2.500 s, 1.20 tokens/s" in done.out
    assert "2 drafted tokens" in done.out
    assert "Brier score 0.1562, expected calibration error 0.3750" in done.out


def test_many_lengths_of_drafts_are_ranges(cli, trace):
    long = Candidate("lookup", (0.5,) * 40, True)
    write(trace, [TraceStep(snapshot((long,)), plan(k), None) for k in (0, 3, 4, 7, 16, 17, 40, 40)])
    done = cli("replay", trace, "--policy", "recorded")
    assert rows(done.out)["recorded"][5] == "0: 12%, 3-4: 25%, 5-8: 12%, 9-16: 12%, 17-64: 38%"


def test_without_drafts_there_is_nothing_to_calibrate(cli, trace):
    write(trace, [PLAIN])
    done = cli("replay", trace, "--policy", "off")
    assert done.status == 0
    assert "Calibration" not in done.out


def test_json(cli, trace, tmp_path):
    path = tmp_path / "figures.json"
    assert cli("replay", trace, "--policy", "off,fixed:2", "--json", path).status == 0
    found = json.loads(path.read_text())
    assert found["trace"]["provenance"] == {"foredraft": "test"}
    assert list(found["policies"]) == ["off", "fixed:2"]
    assert found["policies"]["fixed:2"]["k_counts"] == {"2": 2}
    assert found["policies"]["off"]["tokens_per_s"] == 1
    assert found["measured"]["tokens"] == 3
    assert sum(each["count"] for each in found["calibration"]["bins"]) == 2
    assert found["is_cut_off"] is False


def test_a_trace_that_breaks_off(cli, trace):
    trace.write_bytes(trace.read_bytes()[:-8])
    done = cli("replay", trace, "--policy", "off")
    assert done.status == 0
    assert done.err == f"{trace} breaks off; read up to its last whole step\n"
    assert rows(done.out)["off"][0] == "1.00"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--policy", "magic"], "unknown policy 'magic'; known are recorded, off, auto, and fixed:K"),
        (["--policy", " , "], "--policy names nobody"),
        (["--json", "no/where.json"], "there is no folder"),
    ],
)
def test_refused(cli, trace, arguments, reason):
    assert reason in refused(cli("replay", trace, *arguments))


@pytest.mark.parametrize(("content", "reason"), [(None, "cannot be read: No such file"), (b"x", "is not a trace")])
def test_files_that_are_no_traces(cli, trace, content, reason):
    trace.unlink() if content is None else trace.write_bytes(content)
    assert reason in refused(cli("replay", trace))


def test_an_empty_trace(cli, trace):
    write(trace, [])
    assert "has no step in which the governor decided" in refused(cli("replay", trace))


def test_a_step_that_never_ended(cli, trace):
    write(trace, [replace(DRAFTED, record=None)])
    done = cli("replay", trace, "--policy", "recorded,off")
    assert (done.status, rows(done.out)["recorded"][2], rows(done.out)["off"][2]) == (0, "0.0%", "0.0%")


def test_a_run_is_traced_and_replayed(cli, tmp_path):
    """A real model writes the trace; the governor would decide the same again but for probes."""
    model, path = tiny.write_tiny(tmp_path / "tiny.gguf"), tmp_path / "run.trace.gz"
    prompt = "the cat and the dog and the cat and the dog and the cat"
    options = ["--prompt", prompt, "--raw", "--ignore-eos", "--max-tokens", 80]
    plain = cli("generate", "--model", model, *options)
    traced = cli("generate", "--model", model, *options, "--trace", path)
    assert (traced.status, traced.out) == (0, plain.out)
    trace = read_trace(path)
    steps = list(trace)
    assert steps
    assert all(step.record for step in steps)
    assert trace.header["provenance"]["models"]["model"]["file"] == "tiny.gguf"
    assert trace.header["provenance"]["options"]["mode"] == "auto"
    num_tokens = sum(sum(step.record.num_tokens.values()) + step.before.num_tokens for step in steps)
    assert 0 < num_tokens <= 80
    done = cli("replay", path, "--policy", "recorded,auto")
    assert (done.status, rows(done.out)["recorded"][6]) == (0, "0.0%")
    assert re.search(r"Measured: \d+ steps", done.out)


def test_a_trace_that_cannot_be_written(cli, fake, tmp_path):
    done = cli("generate", "--model", "any", "--prompt", "x", "--trace", tmp_path / "no" / "trace")
    assert "there is no folder" in refused(done)
    assert not fake.instances
