import json
import re

import pytest

from cli_run import refused
from foredraft.governor import profile as profiling
from foredraft.governor import profile_cache
from tiny import write_tiny


@pytest.fixture
def home(monkeypatch, tmp_path):
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setattr(profile_cache, "FOLDER", path / ".cache" / "foredraft" / "profiles", raising=False)
    return path


@pytest.fixture
def tiny_model(home, monkeypatch, tmp_path):
    """A real model of no size; each measurement finds one more GB/s of read bandwidth."""
    speeds = iter(range(1, 100))
    monkeypatch.setattr(profiling, "read_bandwidth", lambda threads: next(speeds) * 1e9)
    monkeypatch.setattr(profiling, "ROUNDS", 1)
    monkeypatch.setattr(profiling, "DRAFT_ROWS", (1,))
    return write_tiny(tmp_path / "tiny.gguf")


def rows(text):
    """The cells of every row of the table."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]


def test_table_and_json(cli, tiny_model, tmp_path):
    path = tmp_path / "profile.json"
    done = cli("profile", "--model", tiny_model, "--draft", tiny_model, "--threads", 2, "--json", path)
    assert (done.status, done.err) == (0, "")
    saved = json.loads(path.read_text())
    assert saved["bandwidth_gb_s"] == 1
    assert saved["provenance"]["models"]["draft"]["file"] == "tiny.gguf"
    assert saved["provenance"]["options"]["threads"] == 2
    table = rows(done.out)
    assert len(table) == len(saved["points"]) + len(saved["draft"]) == 2 * len(profiling.ROWS) + 2
    one, two = saved["points"][0], saved["points"][1]
    gb_s = two["num_bytes"] / two["ms"] / 1e6
    figures = [
        f"{two['ms']:.2f}",
        f"{two['ms'] / one['ms']:.2f}",
        f"{2000 / two['ms']:.1f}",
        f"{gb_s:.1f}",
        f"{gb_s:.0%}",
    ]
    assert table[0][:3] == ["model", "64", "1"]
    assert table[0][4] == "1.00"
    assert table[1] == ["model", "64", "2", *figures]
    draft = saved["draft"][0]
    assert table[-2][:5] == ["draft", "64", "1", f"{draft['ms']:.2f}", f"{draft['ms'] / one['ms']:.2f}"]
    assert table[-1][4] == "-"  # the draft's longest context here is one that the target was not measured at


def test_measured_once(cli, tiny_model, home):
    def bandwidth(*arguments):
        done = cli("profile", "--model", tiny_model, "--threads", 1, *arguments)
        assert done.status == 0
        return re.search(r"the (\d+\.\d) GB/s", done.out)[1], done.err

    assert bandwidth() == ("1.0", "")
    (kept,) = (home / ".cache" / "foredraft" / "profiles").iterdir()
    assert bandwidth() == ("1.0", f"measured before ({kept}); --again measures anew\n")
    assert bandwidth("--again") == ("2.0", "")
    assert bandwidth()[0] == "2.0"
    assert bandwidth("--threads", 2)[0] == "3.0"
    kept.write_text("{")
    assert bandwidth() == ("4.0", "")
    tiny_model.write_bytes(tiny_model.read_bytes() + b"\0")
    assert bandwidth()[0] == "5.0"


def test_a_kept_profile_can_be_saved(cli, tiny_model, tmp_path):
    paths = [tmp_path / "first.json", tmp_path / "second.json"]
    for path in paths:
        cli("profile", "--model", tiny_model, "--json", path)
    assert paths[0].read_text() == paths[1].read_text()


def test_a_profile_that_cannot_be_kept(cli, tiny_model, home):
    (home / ".cache").write_text("in the way")
    done = cli("profile", "--model", tiny_model)
    assert done.status == 0
    assert rows(done.out)
    assert done.err.startswith("not kept for the next time: ")


def test_plot(cli, tiny_model, tmp_path):
    path = tmp_path / "plot.svg"
    done = cli("profile", "--model", tiny_model, "--plot", path)
    assert done.status == 0
    assert f"plot written to {path}" in done.out
    assert "<svg" in path.read_text()


def test_plan_reads_a_profile(cli, tiny_model, tmp_path):
    path = tmp_path / "profile.json"
    cli("profile", "--model", tiny_model, "--json", path)
    done = cli("plan", "--alpha", 0.8, "--k", 31, "--curve", path)
    assert done.status == 0
    assert len(rows(done.out)) > 31


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--model nowhere.gguf", "'nowhere.gguf' is neither a file nor a known model"),
        ("--model {model} --draft nowhere.gguf", "'nowhere.gguf' is neither a file nor a known model"),
        ("--model {folder}", "is a directory"),
        ("--model {text}", "is not"),
        ("--model {model} --threads 0", "threads is 0; allowed is 1 to 256"),
        ("--model {model} --json /nowhere/x.json", "no folder /nowhere"),
        ("--model {model} --json {folder}", "is a folder"),
        ("--model {model} --plot plot.txt", "names that end in .png"),
        ("--model {model} --plot /nowhere/plot.png", "no folder /nowhere"),
        ("", "Missing option '--model'"),
    ],
)
def test_refusals(cli, tiny_model, home, tmp_path, arguments, reason):
    text = tmp_path / "text.gguf"
    text.write_text("hello")
    given = arguments.format(model=tiny_model, folder=home, text=text).split()
    assert reason in refused(cli("profile", *given))
    assert not list(home.iterdir()), "nothing may have been measured and kept"


def test_real_model(cli, smollm2, home, monkeypatch, tmp_path):
    for name, value in (("ROWS", (1, 4)), ("CONTEXTS", (16,)), ("ROUNDS", 1)):
        monkeypatch.setattr(profiling, name, value)
    path = tmp_path / "profile.json"
    assert cli("profile", "--model", smollm2, "--json", path).status == 0
    saved = json.loads(path.read_text())
    assert [(point["rows"], point["context"]) for point in saved["points"]] == [(1, 16), (4, 16)]
    assert saved["draft"] == []
    # A pass reads the whole file but norms and metadata, packed a little looser or tighter.
    assert all(point["num_bytes"] == pytest.approx(smollm2.stat().st_size, rel=0.1) for point in saved["points"])
    assert saved["bandwidth_gb_s"] > 0


def test_a_trimmed_draft_model_has_a_profile_of_its_own(cli, tiny_model, home, tmp_path):
    def num_bytes(*arguments):
        path = tmp_path / "profile.json"
        done = cli("profile", "--model", tiny_model, "--draft", tiny_model, *arguments, "--json", path)
        assert done.status == 0, done.err
        saved = json.loads(path.read_text())
        return saved["draft"][0]["num_bytes"], saved["provenance"]["options"]["num_kept"], done.err

    whole, trimmed = num_bytes(), num_bytes("--draft-vocabulary", 100)
    assert whole[1] is None
    assert 100 < trimmed[1] < 110
    assert trimmed[0] < whole[0]
    assert "measured before" not in trimmed[2]
    assert num_bytes("--draft-vocabulary", 100)[2].startswith("measured before")
    assert "allowed is 1 to 273" in refused(
        cli("profile", "--model", tiny_model, "--draft", tiny_model, "--draft-vocabulary", 0)
    )
    assert "--draft-vocabulary is of a draft model" in refused(
        cli("profile", "--model", tiny_model, "--draft-vocabulary", 10)
    )
