"""`foredraft plan --model`: from the kept profile of a tiny model to the table, the words and the picture."""

import json
import re

import pytest

from cli_run import refused
from foredraft import _native
from foredraft.governor import profile as profiling
from foredraft.governor import profile_cache
from foredraft.governor.profile import Point, Profile
from foredraft.governor.profile_cache import profile_path
from tiny import write_tiny


def points(cost, rows=(1, 2, 4, 8, 16, 32)):
    return tuple(Point(count, 64, cost(count), 1) for count in rows)


@pytest.fixture
def model(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(profile_cache, "FOLDER", tmp_path / "profiles", raising=False)
    return write_tiny(tmp_path / "tiny.gguf")


@pytest.fixture
def keep(model):
    """Keep a profile for the tiny model: a pass over n rows takes 10 + n ms; draft: ms of a draft's single row."""

    def keep_profile(draft=None):
        threads = 1
        roles = {"model": model, **({"draft": model} if draft else {})}
        source = {"models": {"model": {"file": model.name}}, "options": {"threads": threads, "isa": _native.isa()}}
        measured = Profile(source, 10.0, points(lambda rows: 10 + rows), (Point(1, 64, draft, 1),) if draft else ())
        path = profile_path(roles, threads, _native.isa())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(measured.as_dict()))
        return path

    return keep_profile


def table(text):
    """The rows of the table over concurrency, by alpha."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]
    return {cells[0]: cells[1:] for cells in rows if len(cells) == 9}


def plan(cli, model, *arguments):
    done = cli("plan", "--model", model, "--threads", 1, *arguments)
    assert done.status == 0, done.err
    return done


def test_table_over_concurrency(cli, model, keep):
    path = keep()
    done = plan(cli, model)
    assert f"measured before ({path})" in done.err
    rows = table(done.out)
    assert list(rows) == ["0.4", "0.6", "0.8", "0.9", "0.95"]
    # One sequence at alpha 0.6: 2.176 tokens with k 3 in 14 ms, where one token takes 11; 2.3056 with k 4 in 15.
    assert rows["0.6"][0] == "1.71x k 3"
    assert rows["0.4"][6] == "~ -"
    crossovers = [int(cells[-1]) for cells in list(rows.values())[:3]]
    assert crossovers == sorted(crossovers)
    # One token for each of b at alpha 0.4 pays by 2% while 1.4 (10 + b) >= 1.02 (10 + 2 b).
    assert crossovers[0] == 6
    assert "beyond the 32 rows measured" in done.out
    assert f"At alpha 0.8 the crossover is {crossovers[2]}" in done.out
    assert re.search(
        rf"Rows that add half as much to a pass would move the crossover from {crossovers[2]} to ", done.out
    )
    assert "A draft of half the cost" not in done.out
    assert "6 at alpha 0.4" in done.out


def test_draft_and_alpha(cli, model, keep):
    keep(draft=3.3)
    done = plan(cli, model, "--draft", model, "--alpha", 0.7, "--k", 2)
    assert "alpha 0.7, c 0.3; answers of 500 tokens" in done.out
    assert "k 2: 2.190 tokens per step, " in done.out
    assert list(table(done.out)) == ["0.4", "0.6", "0.7", "0.8", "0.9", "0.95"]
    assert "A drafted token takes 0.300 of a pass" in done.out
    found = re.search(r"A draft of half the cost would move the crossover from (\d+) to (\d+)\.", done.out)
    assert found
    assert int(found[1]) == int(table(done.out)["0.7"][-1]) < int(found[2])


def test_drafts_at_a_given_cost(cli, model, keep):
    keep()
    assert "A drafted token takes 0.250 of a pass" in plan(cli, model, "--c", 0.25).out


def test_drafts_that_never_pay(cli, model, keep):
    keep()
    done = plan(cli, model, "--c", 3, "--alpha", 0.8)
    assert "At alpha 0.8 no k pays, even for one sequence: leave drafting off." in done.out
    assert "A draft of half the cost would leave the crossover at 1." in done.out


def test_measures_where_nothing_is_kept(cli, model, monkeypatch):
    monkeypatch.setattr(profiling, "read_bandwidth", lambda threads: 1e9)
    monkeypatch.setattr(profiling, "ROUNDS", 1)
    assert "measured before" not in plan(cli, model).err
    assert "measured before" in plan(cli, model).err
    assert "measured before" in cli("profile", "--model", model, "--threads", 1).err


def test_plot(cli, model, keep, tmp_path):
    keep()
    path = tmp_path / "plot.svg"
    assert f"plot written to {path}" in plan(cli, model, "--plot", path).out
    assert "<svg" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--model {model} --curve x.json", "both --model and --curve"),
        ("--model {model} --draft {model} --c 0.1", "both --draft and --c"),
        ("--draft {model} --alpha 0.5", "--draft says how to measure and needs a --model"),
        ("--threads 2 --alpha 0.5", "--threads says how to measure and needs a --model"),
        ("--model nowhere.gguf", "neither a file nor a known model"),
        ("--model {model} --alpha 2", "alpha is 2.0; allowed is 0 to 1"),
        ("--model {model} --k 0", "--k, --tokens and --tokens-per-s are 0"),
        ("--model {model} --threads 1 --alpha 0.5 --k 40", "passes were measured up to 32 rows"),
        ("--model {model} --plot plot.txt", "names that end in .png"),
    ],
)
def test_refusals(cli, model, keep, arguments, reason):
    keep()
    assert reason in refused(cli("plan", *arguments.format(model=model).split()))
