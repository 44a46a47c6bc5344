import json

import pytest

from cli_run import refused

CELL = {
    "workload", "arm", "concurrency", "tokens_per_s", "prompt_tokens_per_s", "ttft_ms", "itl_p50_ms", "itl_p95_ms",
    "alpha", "acceptance_rate", "accepted_per_position", "tokens_per_step", "expected_tokens_per_step", "same_text",
}  # fmt: skip


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_table_and_json(cli, fake, model, tmp_path):
    path = tmp_path / "result.json"
    arguments = "--arms off,on:lookup:2,auto --workload chat,quote --concurrency 1,2 --rounds 2 --max-tokens 12"
    done = cli("bench", "--model", model, *arguments.split(), "--json", path)
    assert done.status == 0, done.err
    assert "on:lookup:2" in done.out
    result = json.loads(path.read_text())
    assert result["provenance"]["models"]["model"]["file"] == "model.gguf"
    assert result["provenance"]["models"]["model"]["size"] == 4
    assert result["provenance"]["options"]["arms"] == "off,on:lookup:2,auto"
    assert str(tmp_path) not in path.read_text()  # a record may be published
    assert {"date", "foredraft", "git_commit", "cpu", "cpu_flags", "cores", "python"} <= result["provenance"].keys()
    cells = result["cells"]
    assert len(cells) == 2 * 2 * 3
    assert all(cell.keys() >= CELL and cell["same_text"] and len(cell["rounds"]) == 2 for cell in cells)
    off, on = cells[0], cells[1]
    assert (off["arm"], off["alpha"], off["tokens_per_step"], off["expected_tokens_per_step"]) == (
        "off",
        None,
        1.0,
        1.0,
    )
    # Every third draft of two ends in a refusal of the token after it.
    assert on["tokens_per_step"] == 3.0
    assert on["alpha"] == 8 / 9
    assert on["accepted_per_position"] == [24, 24]
    assert on["expected_tokens_per_step"] == pytest.approx(1 + 8 / 9 + 64 / 81)
    (llm,) = fake.instances
    assert llm.settings["prefix_cache"] is False
    assert llm.settings["max_sequences"] == 2
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".part"] == []


def test_text_that_differs_is_marked(cli, fake, model):
    fake.is_wrong_with = "lookup"
    done = cli("bench", "--model", model, "--workload", "chat", "--rounds", 1, "--max-tokens", 12)
    rows = [line for line in done.out.splitlines() if "│ chat" in line]
    assert [row.rstrip("│ ").rpartition("│")[2].strip() for row in rows] == ["yes", "NO"]


def test_own_prompts(cli, fake, model, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"name": "a", "prompt": "x", "max_tokens": 3}\n\n{"name": "b", "prompt": "y", "max_tokens": 4}\n')
    done = cli("bench", "--model", model, "--prompts", path, "--rounds", 1, "--arms", "off", "--raw")
    assert done.status == 0
    assert [bytes(prompt) for prompt in fake.instances[0].prompts] == [b"x", b"x", b"y"]  # the first is the warm-up


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--arms fast", "arm 'fast' is not understood"),
        ("--arms off,off", "give each only once"),
        ("--arms on::3", "names no proposer"),
        ("--arms on:lookup:x", "arm 'on:lookup:x' is not understood"),
        ("--arms on:lookup:99", "k is 99; allowed is a whole number, 0 to 64"),
        ("--workload poems", "unknown workload 'poems'; known are edit, quote, chat, write, ideas"),
        ("--prompts /nowhere", "/nowhere cannot be read"),
        ("--workload edit --prompts x", "give one of them"),
        ("--concurrency 0", "--concurrency is '0'"),
        ("--rounds 0", "0 is not in the range"),
        ("--temperature -1", "temperature is -1.0"),
        ("--json /nowhere/x.json", "no folder /nowhere"),
        ("--json /", "/ is a folder"),
    ],
)
def test_refusals(cli, fake, model, arguments, reason):
    assert reason in refused(cli("bench", "--model", model, *arguments.split()))
    assert not fake.instances, "an error that can be seen before the model is loaded has to be"


@pytest.mark.parametrize(
    "text", ["hello", "[1]", '{"name": "a"}', '{"name": "a", "prompt": "x", "max_tokens": true}', ""]
)
def test_prompts_that_are_none(cli, fake, model, tmp_path, text):
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    assert str(path) in refused(cli("bench", "--model", model, "--prompts", path))
