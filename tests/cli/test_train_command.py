"""`foredraft train`: its files from end to end on a tiny target, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

import tiny
from cli_run import refused
from foredraft.train.card import RECORD, card
from foredraft.train.prompts import write_prompts
from foredraft.train.shards import counts
from training import asked


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tiny.write_tiny(tmp_path / "tiny.gguf", num_layers=4)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    write_prompts(tmp_path / "p.jsonl", asked(40))
    return tmp_path / "p.jsonl"


def record() -> dict:
    point = {"step": 50, "tokens": 9000, "seconds": 240.0, "loss": 2.5, "acceptance": [0.5, 0.25], "alpha": 0.5}
    first = {**point, "step": 0, "tokens": 0, "loss": None, "acceptance": [0.1, 0.01]}
    return {
        "kind": "eagle3",
        "target": {"file": "some.gguf", "size": 1234, "sha256_of_first_mib": "ab"},
        "data": {
            "num_documents": 90,
            "num_tokens": 20000,
            "num_answer_tokens": 9000,
            "held_out": 5,
            "origins": {"generated (Apache-2.0)": 50, **{f"pack{i} (MIT)": 3 for i in range(14)}},
        },
        "sampling": {"max_tokens": 256, "greedy_share": 0.7},
        "schedule": {"epochs": 1.0, "batch_tokens": 512, "learning_rate": 0.0015, "seed": 0},
        "num_parameters": 1000,
        "points": [first, point],
        "best": point,
        "provenance": {"foredraft": "0.1.0", "date": "2026-01-01T00:00:00", "cpu": "a processor", "cores": 2},
    }


def test_prompts_say_what_they_hold(cli, tmp_path: Path) -> None:
    other = tmp_path / "never.jsonl"
    other.write_text('{"text": "one two three four five six seven eight nine ten"}\n')
    done = cli("train", "prompts", "--out", tmp_path / "p.jsonl", "--count", "30", "--never", other)
    assert done.status == 0
    assert "30 prompts in" in done.out
    assert "the prompts of foredraft bench, never.jsonl" in done.out
    assert len((tmp_path / "p.jsonl").read_text().splitlines()) == 30


def test_a_file_to_keep_out_has_to_be_there(cli, tmp_path: Path) -> None:
    done = cli("train", "prompts", "--out", tmp_path / "p.jsonl", "--never", tmp_path / "nothing.jsonl")
    assert "nothing.jsonl cannot be read" in refused(done)


def test_data_ends_at_its_limit_and_goes_on(cli, target: Path, prompts: Path, tmp_path: Path) -> None:
    command = ("train", "data", "--target", target, "--prompts", prompts, "--out", tmp_path / "d")
    options = ("--max-tokens", "16", "--concurrency", "4")
    done = cli(*command, *options, "--limit-tokens", "100")
    assert done.status == 0
    answered, num_tokens = counts(tmp_path / "d")
    assert 100 <= num_tokens < 250
    assert f"{len(answered)} answers with {num_tokens} tokens" in done.out
    done = cli(*command, *options)
    assert "40 answers" in done.out
    assert counts(tmp_path / "d")[0] == set(range(40))


def test_without_torch_it_is_said_how_to_get_it(cli, target: Path, tmp_path: Path, monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "torch" else find(name, *more))
    done = cli("train", "eagle3", "--target", target, "--data", tmp_path, "--out", tmp_path / "run")
    assert "pip install 'foredraft[train]'" in refused(done)


def test_training_without_data_is_refused(cli, target: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = cli("train", "eagle3", "--target", target, "--data", tmp_path, "--out", tmp_path / "run")
    assert "foredraft train data" in refused(done)


def test_a_plot_and_a_card_of_a_finished_run(cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / RECORD).write_text(json.dumps(record()))
    assert cli("train", "plot", tmp_path, "--out", tmp_path / "a.svg").status == 0
    assert "<svg" in (tmp_path / "a.svg").read_text()
    cells = [
        {"workload": "chat", "concurrency": 1, "arm": "off", "tokens_per_s": 20.0},
        {"workload": "chat", "concurrency": 1, "arm": "on:eagle3:2", "tokens_per_s": 25.0},
    ]
    bench = tmp_path / "bench.json"
    bench.write_text(json.dumps({"cells": cells, "provenance": {"cpu": "a processor"}}))
    assert cli("train", "card", tmp_path, "--bench", bench).status == 0
    assert "| chat | 1 | `on:eagle3:2` | 25.0 | 1.25 |" in (tmp_path / "README.md").read_text()


def test_a_run_that_is_not_finished_has_no_plot(cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert "holds no finished training" in refused(cli("train", "plot", tmp_path, "--out", tmp_path / "a.svg"))


def test_the_card_says_what_was_measured_and_what_was_not() -> None:
    text = card(record(), None)
    assert "| 1 | 50.0% |\n| 2 | 25.0% |" in text
    assert "1.75" in text  # tokens for each pass
    assert "The speed-up was not measured." in text
    assert "- generated (Apache-2.0): 50 prompts" in text
    assert "3 more (MIT): 9 prompts" in text
