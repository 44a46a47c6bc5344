"""The commands with learned drafters, on a tiny model."""

import json
import re

import pytest

import tiny
import tiny_drafters
from cli_run import refused


@pytest.fixture
def model(tmp_path):
    return tiny.write_tiny(tmp_path / "tiny.gguf", context_length=4096)


@pytest.fixture
def head(tmp_path):
    return tiny_drafters.write_eagle3(tmp_path / "head", max_position_embeddings=4096)


def test_answers_are_the_same_and_heads_draft(cli, model, head):
    options = ["--prompt", "the cat", "--raw", "--json", "--max-tokens", 20, "--ignore-eos", "--seed", 1]
    plain = json.loads(cli("generate", "--model", model, *options).out)["choices"][0]
    done = cli("generate", "--model", model, "--drafter", head, "--proposer", "eagle3", "--speculation", "on", *options)
    drafted = json.loads(done.out)["choices"][0]
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["stats"]["num_drafts_by_proposer"]["eagle3"] > 10


def test_check_exact_covers_them(cli, model, head):
    done = cli("check", "exact", "--model", model, "--drafter", head, "--quick", "--threads", 1)
    assert done.status == 0, done.out + done.err
    assert re.search(r"exact: (\d+) of \1 equal \(drafts checked: eagle3 \d+", done.out)


def test_bench_compares_them(cli, model, head, tmp_path):
    prompts, path = tmp_path / "prompts.jsonl", tmp_path / "result.json"
    prompts.write_text(json.dumps({"name": "one", "prompt": "the cat", "max_tokens": 8}) + "\n")
    options = ["--prompts", prompts, "--raw", "--rounds", 1, "--concurrency", 1, "--json", path]
    done = cli("bench", "--model", model, "--drafter", head, *options)
    assert done.status == 0, done.err
    result = json.loads(path.read_text())
    assert [cell["arm"] for cell in result["cells"]] == ["off", "on:lookup:8", "on:eagle3:4"]
    assert all(cell["same_text"] for cell in result["cells"])
    assert result["provenance"]["models"]["drafter 1"]["file"] == "head"
    assert str(tmp_path) not in path.read_text()  # a record may be published


def test_refusals(cli, model, head, tmp_path):
    nowhere = tmp_path / "nowhere"
    assert "neither a file nor" in refused(cli("generate", "--model", model, "--drafter", nowhere, "--prompt", "x"))
    assert "config.json is missing" in refused(cli("bench", "--model", model, "--drafter", tmp_path))
    other = tiny.write_tiny(tmp_path / "other.gguf", vocab_size=300)
    assert "this target's is 300" in refused(cli("generate", "--model", other, "--drafter", head, "--prompt", "x"))
