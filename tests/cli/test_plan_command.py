import importlib.util
import json
import re
import struct

import pytest

from cli_run import refused

CURVE = {"1": 24.0, "2": 24.6, "8": 31.0, "16": 50.0}


def row(text: str, k: int) -> list[str]:
    """The cells of the table's row for k."""
    (line,) = [line for line in text.splitlines() if re.match(rf"│ +{k} │", line)]
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_table(cli):
    done = cli("plan", "--alpha", 0.8, "--k", 4, "--c", 0.05, "--tokens", 1000, "--tokens-per-s", 20)
    assert done.status == 0
    # E = (1 - 0.8^5) / 0.2; divided by 1.2; 1000 tokens at 20/s take 50 s, less 50 / 2.8013 s.
    assert row(done.out, 4) == ["4", "3.3616", "2.8013", "0.167", "56.0", "32.15", "asked for"]
    assert row(done.out, 8)[-1] == "best"
    assert "k 8 is best: 3.092x" in done.out


@pytest.mark.parametrize(("alpha", "k", "tokens"), [(0.85, 8, "5.1226"), (0.4, 8, "1.6662"), (1.0, 3, "4.0000")])
def test_tokens_per_step(cli, alpha, k, tokens):
    assert row(cli("plan", "--alpha", alpha, "--k", k).out, k)[1] == tokens


def test_drafting_that_never_pays(cli):
    done = cli("plan", "--alpha", 0.3, "--c", 0.5)
    assert "no k pays: leave drafting off" in done.out
    assert "not faster" in done.out


def test_curve(cli, tmp_path):
    path = tmp_path / "curve.json"
    path.write_text(json.dumps(CURVE))
    done = cli("plan", "--alpha", 0.8, "--k", 3, "--curve", path)
    # Four rows lie a third of the way from 2 to 8: 24.6 + 6.4 / 3; 2.952 * 24 / 26.7333.
    assert row(done.out, 3)[2] == "2.6502"
    assert row(done.out, 7)[2] == f"{4.1611392 * 24 / 31:.4f}"
    assert "k 7 is best" in done.out
    assert "k 1 to 12" in done.out  # the curve reaches to 15, the table goes on to 12


def test_curve_of_a_profile(cli, tmp_path):
    """The smallest context counts, and the file may say more."""
    path = tmp_path / "profile.json"
    points = [{"rows": int(rows), "context": 64, "ms": ms, "num_bytes": 1} for rows, ms in CURVE.items()]
    more = [{"rows": 1, "context": 1024, "ms": 99.0}, {"rows": 64, "context": 1024, "ms": 99.0}]
    path.write_text(json.dumps({"provenance": {}, "bandwidth_gb_s": 20.0, "points": more + points, "draft": []}))
    done = cli("plan", "--alpha", 0.8, "--k", 3, "--curve", path)
    assert row(done.out, 3)[2] == "2.6502"
    assert row(done.out, 7)[2] == f"{4.1611392 * 24 / 31:.4f}"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"1": "x"}', '{"1": -3, "9": 4}', '{"0": 1, "9": 2}', '{"1": 1e999, "9": 2}', '{"a": 1}',
     '{"points": []}', '{"points": 3}', '{"points": [{"rows": 1}]}', '{"points": [[1, 2]]}'],
)  # fmt: skip
def test_broken_curve(cli, tmp_path, text):
    path = tmp_path / "curve.json"
    path.write_text(text)
    assert "is not a cost curve" in refused(cli("plan", "--alpha", 0.8, "--curve", path))


def test_curve_that_is_too_short(cli, tmp_path):
    path = tmp_path / "curve.json"
    path.write_text(json.dumps(CURVE))
    assert "k + 1 = 17" in refused(cli("plan", "--alpha", 0.8, "--k", 16, "--curve", path))


def test_advice(cli):
    text = cli("plan", "--alpha", 0.5).out
    assert "lookup, k 5 to 10" in text
    assert "MTP block, k 3 to 5" in text
    assert "off; measure first" in text


def test_examples(cli):
    text = cli("plan", "--examples").out
    lines = {
        line.split("│")[1].strip(): [c.strip() for c in line.split("│")[3:-1]]
        for line in text.splitlines()
        if "│" in line
    }
    assert lines["T5-XXL, translation, T 0"] == ["0.75", "7", "0.02", "3.5995", "3.157x", "3.40x", "+7.7%"]
    assert lines["code edit of 200 lines, lookup"][:4] == ["0.85", "8", "0", "5.1226"]
    assert "50 tokens/s before, 256 after" in text
    assert "gives 4.99 tokens per step" in re.sub(r"\s+", " ", text)
    assert "3.11" in text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "--alpha is missing"),
        (("--alpha", 1.5), "alpha is 1.5; allowed is 0 to 1"),
        (("--alpha", "high"), "'high' is not a valid float"),
        (("--alpha", 0.5, "--k", 0), "--k, --tokens and --tokens-per-s are 0"),
        (("--alpha", 0.5, "--c", -1), "c is -1.0; allowed is 0 or more"),
        (("--alpha", 0.5, "--tokens-per-s", 0), "above 0"),
        (("--alpha", 0.5, "--curve", "/nowhere.json"), "/nowhere.json cannot be read"),
        (("--alpha", 0.5, "--plot", "plot.txt"), "names that end in .png"),
        (("--alpha", 0.5, "--plot", "/nowhere/plot.png"), "no folder /nowhere"),
        (("--alpha", 0.5, "--plots", "x"), "No such option"),
    ],
)
def test_refusals(cli, arguments, reason):
    assert reason in refused(cli("plan", *arguments))


def test_plot(cli, tmp_path):
    path = tmp_path / "plot.png"
    done = cli("plan", "--alpha", 0.8, "--c", 0.05, "--plot", path)
    assert done.status == 0
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1050, 675)
    assert list(tmp_path.iterdir()) == [path]


def test_plot_without_matplotlib(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'foredraft[plot]'" in refused(cli("plan", "--alpha", 0.8, "--plot", tmp_path / "plot.png"))
