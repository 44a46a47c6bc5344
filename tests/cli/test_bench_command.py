import json
import math

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
    arguments = "--arms off,on:lookup:2,auto --workloads chat,quote --concurrency 1,2 --rounds 2 --max-tokens 12"
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
    assert all(cell.keys() >= CELL and cell["same_text"] and cell["num_rounds"] == 2 for cell in cells)
    assert [run["round"] for run in result["runs"]] == [1] * 12 + [2] * 12
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
    assert cells[2]["expected_tokens_per_step"] is None, "auto has no fixed k for the formula"
    (llm,) = fake.instances
    assert llm.settings["prefix_cache"] is False
    assert set(llm.routes) == {"warm-up", "chat", "quote"}
    assert llm.settings["max_sequences"] == 2
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".part"] == []


def test_text_that_differs_is_marked(cli, fake, model):
    fake.is_wrong_with = "lookup"
    done = cli("bench", "--model", model, "--workloads", "chat", "--rounds", 1, "--max-tokens", 12)
    rows = [line for line in done.out.splitlines() if "│ chat" in line]
    assert [row.rstrip("│ ").rpartition("│")[2].strip() for row in rows] == ["yes", "NO"]


def test_own_prompts(cli, fake, model, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"name": "a", "prompt": "x", "max_tokens": 3}\n\n{"name": "b", "prompt": "y", "max_tokens": 4}\n')
    done = cli("bench", "--model", model, "--prompts", path, "--rounds", 1, "--arms", "off", "--raw")
    assert done.status == 0
    assert [bytes(prompt) for prompt in fake.instances[0].prompts] == [b"x", b"x", b"y"]  # the first is the warm-up


GRID = [
    *("--arms", "off,on:lookup:2,auto", "--workloads", "chat", "--concurrency", "1,2"),
    *("--max-tokens", 40, "--rounds", 2),
]


def test_auto_is_compared_within_rounds(cli, fake, model, tmp_path):
    path, picture = tmp_path / "result.json", tmp_path / "map.png"
    done = cli("bench", "--model", model, *GRID, "--json", path, "--heat-map", picture)
    assert done.status == 0, done.err
    result = json.loads(path.read_text())
    assert [(one["workload"], one["concurrency"], one["arm"]) for one in result["comparisons"]] == [
        ("chat", 1, "auto"),
        ("chat", 2, "auto"),
    ]
    speeds = {(run["arm"], run["round"]): run["tokens_per_s"] for run in result["runs"] if run["concurrency"] == 1}
    ratio = result["comparisons"][0]["over_off"]
    product = math.prod(speeds["auto", number] / speeds["off", number] for number in (1, 2))
    assert ratio["mean"] == pytest.approx(math.sqrt(product))
    assert ratio["low"] < ratio["mean"] < ratio["high"]
    assert "at least 1 x off holds in" in done.out
    assert "of 2 cells" in done.out
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_one_round_proves_nothing(cli, fake, model):
    done = cli("bench", "--model", model, "--arms", "off,auto", "--workloads", "chat", "--rounds", 1)
    assert "needs that arm and two rounds or more" in done.out


def test_broken_off_and_continued(cli, fake, model, tmp_path):
    path = tmp_path / "result.json"
    command = ("bench", "--model", model, *GRID, "--json", path)
    fake.interrupt_after = 9  # calls: three to warm up, then two batches for the first arm's three prompts at a time
    done = cli(*command)
    assert done.status == 130
    broken = json.loads(path.read_text())
    assert 0 < len(broken["runs"]) < 12
    again = cli(*command)
    assert again.status == 0
    assert f"{path} has {len(broken['runs'])} runs of this benchmark, which are not repeated" in again.err
    whole = json.loads(path.read_text())
    assert whole["runs"][: len(broken["runs"])] == broken["runs"]
    order = [(run["round"], run["concurrency"], run["arm"]) for run in whole["runs"]]
    arms = ["off", "on:lookup:2", "auto"]
    assert order == [(1, c, arm) for c in (1, 2) for arm in arms] + [(2, c, arm) for c in (1, 2) for arm in arms[::-1]]
    assert len(whole["provenance"]["continued"]) == 1
    # What is complete is only printed again, without loading the model.
    loaded = len(fake.instances)
    assert "on:lookup:2" in cli(*command).out
    assert len(fake.instances) == loaded
    assert json.loads(path.read_text()) == whole


def test_another_benchmark_in_the_file(cli, fake, model, tmp_path):
    path = tmp_path / "result.json"
    command = ["bench", "--model", model, *GRID, "--json", path]
    cli(*command)
    before = path.read_bytes()
    message = refused(cli(*command[:-3], 3, "--json", path))
    assert "rounds is 2 there and 3 here" in message
    model.write_bytes(b"GGUF, another")
    assert "model is model.gguf (4 bytes" in refused(cli(*command))
    assert path.read_bytes() == before
    for text in ("[]", "{}", '{"cells": []}', '{"runs": [{"round": 1}], "provenance": {}}'):
        path.write_text(text)
        assert "not a result that can be continued" in refused(cli(*command))


def test_own_prompts_that_changed(cli, fake, model, tmp_path):
    path, prompts = tmp_path / "result.json", tmp_path / "prompts.jsonl"
    prompts.write_text('{"name": "a", "prompt": "x", "max_tokens": 3}')
    command = ["bench", "--model", model, "--prompts", prompts, "--rounds", 1, "--json", path]
    assert cli(*command).status == 0
    assert cli(*command).status == 0
    prompts.write_text('{"name": "a", "prompt": "y", "max_tokens": 3}')
    assert "prompts is prompts.jsonl" in refused(cli(*command))


def test_prompts_are_read_before(cli, fake, model, tmp_path):
    path, prompts = tmp_path / "result.json", tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"name": "a", "prompt": "{p}", "max_tokens": 9}}\n' for p in "xy"))
    options = ["--prompts", prompts, "--arms", "off", "--rounds", 1, "--concurrency", 4, "--raw", "--prefix-cache"]
    assert cli("bench", "--model", model, *options, "--json", path).status == 0
    (llm,) = fake.instances
    assert llm.settings["prefix_cache"] is True
    assert [bytes(prompt) for prompt in llm.prompts] == [b"x", b"x", b"y", b"x", b"y", b"x", b"y"]
    assert llm.routes == ["warm-up", "warm-up", "a"]
    (cell,) = json.loads(path.read_text())["cells"]
    assert cell["prompt_tokens_per_s"] is cell["ttft_ms"] is None
    assert cell["num_tokens"] == 4 * 9


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--arms fast", "arm 'fast' is not understood"),
        ("--arms off,off", "give each only once"),
        ("--arms on::3", "names no proposer"),
        ("--arms on:lookup:x", "arm 'on:lookup:x' is not understood"),
        ("--arms on:lookup:99", "k is 99; allowed is a whole number, 0 to 64"),
        ("--workloads poems", "unknown workload 'poems'; known are edit, quote, chat, write, ideas, enrichment"),
        ("--prompts /nowhere", "/nowhere cannot be read"),
        ("--workloads edit --prompts x", "give one of them"),
        ("--concurrency 0", "--concurrency is '0'"),
        ("--rounds 0", "0 is not in the range"),
        ("--temperature -1", "temperature is -1.0"),
        ("--temperature 0,hot", "--temperature is '0,hot'; allowed is a comma-separated list of numbers"),
        ("--temperature 0,1 --arms off,auto --heat-map map.png", "--heat-map shows one temperature"),
        ("--arms off,on:lookup:4x99", "tree_width is 99; allowed is a whole number, 1 to 8"),
        ("--arms off,on:lookup:4x", "arm 'on:lookup:4x' is not understood"),
        ("--questions /nowhere.jsonl", "/nowhere.jsonl does not exist; foredraft brings no questions of others: fetch"),
        ("--questions x --prompts x", "both --prompts and --questions are given; give one of them"),
        ("--limit 3", "--limit is for --questions"),
        ("--json /nowhere/x.json", "no folder /nowhere"),
        ("--heat-map /nowhere/x.png --arms off,auto", "no folder /nowhere"),
        ("--heat-map map.txt --arms off,auto", "names that end in .png"),
        ("--heat-map map.png --arms off,on", "no arm is auto"),
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


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    rows = [(81, "writing", ["ab", "cd"]), (82, "roleplay", ["ef", "gh"]), (1, "qa", ["ij"]), (2, "math", ["kl", "mn"])]
    lines = [json.dumps({"question_id": q, "category": c, "turns": turns}) for q, c, turns in rows]
    fix = {"prompt": "def f():\n", "buggy_solution": "    return 1\n", "entry_point": "f"}
    path.write_text("\n".join([*lines, json.dumps(fix)]))
    return path


ASKED = ["--arms", "off,on:lookup:2,auto", "--temperature", "0,1", "--max-tokens", 12]


def test_questions_by_task_and_temperature(cli, fake, model, questions, tmp_path):
    path = tmp_path / "result.json"
    done = cli("bench", "--model", model, "--questions", questions, *ASKED, "--json", path)
    assert done.status == 0, done.err
    result = json.loads(path.read_text())
    assert result["provenance"]["options"]["questions"]["file"] == "questions.jsonl"
    assert result["provenance"]["options"]["rounds"] == 1
    runs = [(run["block"], run["workload"], run["temperature"], run["arm"]) for run in result["runs"]]
    arms = ["off", "on:lookup:2", "auto"]
    tasks = {1: ("multi_turn", "qa", "humanevalfix"), 2: ("multi_turn",), 3: ("multi_turn",)}
    assert runs == [
        (block, task, heat, arm)
        for block, its_tasks in tasks.items()
        for task in its_tasks
        for heat in (0, 1)
        for arm in (arms if block % 2 else arms[::-1])
    ]
    (llm,) = fake.instances
    asked = [bytes(prompt).decode() for prompt in llm.prompts]
    assert asked.count("<user>ab<assistant>ABABABABABAB<user>cd") == 2 * 3  # temperatures x arms
    cells = result["cells"]
    assert len(cells) == 3 * 2 * 3
    assert all(cell["same_text"] and cell["num_failed"] == 0 for cell in cells)
    assert cells[1]["by_proposer"]["lookup"]["alpha"] == cells[1]["alpha"]
    assert [one["arm"] for one in result["summaries"]] == arms
    assert result["summaries"][0]["num_pairs"] == 2 * 5
    assert "All cells together" in done.out
    assert done.out.splitlines()[-1].startswith(("use ", "no recommendation"))


def test_questions_are_limited_by_task_and_continued(cli, fake, model, questions, tmp_path):
    path = tmp_path / "result.json"
    command = ("bench", "--model", model, "--questions", questions, *ASKED, "--limit", 2, "--json", path)
    fake.interrupt_after = 12
    assert cli(*command).status == 130
    broken = json.loads(path.read_text())["runs"]
    assert broken
    again = cli(*command)
    assert again.status == 0
    runs = json.loads(path.read_text())["runs"]
    assert runs[: len(broken)] == broken
    assert len(runs) == (2 + 1 + 1) * 2 * 3
    asked = {bytes(prompt).decode() for prompt in fake.instances[-1].prompts}
    assert any("ef" in text for text in asked)
    assert not any("kl" in text for text in asked)  # the last of three chats
    assert "limit is 2 there and 1 here" in refused(cli(*command[:-3], 1, "--json", path))


def test_several_questions_at_once_are_a_part(cli, fake, model, questions, tmp_path):
    path = tmp_path / "result.json"
    options = ["--questions", questions, "--arms", "off,auto", "--concurrency", "1,2", "--max-tokens", 4]
    assert cli("bench", "--model", model, *options, "--json", path).status == 0
    runs = json.loads(path.read_text())["runs"]
    assert [(r["block"], r["concurrency"]) for r in runs if (r["workload"], r["arm"]) == ("multi_turn", "off")] == [
        (1, 1), (1, 2), (2, 1), (2, 2),
    ]  # fmt: skip


def test_a_question_that_does_not_fit_is_counted(cli, fake, model, questions):
    done = cli(
        "bench", "--model", model, "--questions", questions, "--arms", "off,auto", "--max-tokens", 9, "--context", 60
    )
    assert done.status == 0
    assert "failed" in done.out
    rows = {tuple(cell.strip() for cell in line.strip("│").split("│")) for line in done.out.splitlines() if "│" in line}
    (fixes,) = [row for row in rows if row[0] == "humanevalfix" and row[2] == "off"]
    assert "1" in fixes  # failed
    assert fixes[3] == "-"  # no speed


def test_all_arms_and_which_to_use(cli, fake, model, tmp_path):
    path, prompts = tmp_path / "result.json", tmp_path / "prompts.jsonl"
    prompts.write_text('{"name": "a", "prompt": "x", "max_tokens": 30}')
    options = ["--draft", model, "--prompts", prompts, "--arms", "all", "--rounds", 2, "--json", path]
    done = cli("bench", "--model", model, *options)
    assert done.status == 0, done.err
    arms = [
        *("off", "on:suffix:8", "on:lookup:8", "on:draft_model:4", "on:draft_model:8x3"),
        "auto:suffix+lookup+draft_model",
    ]
    assert [one["arm"] for one in json.loads(path.read_text())["summaries"]] == arms
    (llm,) = fake.instances
    assert set(llm.settings["proposers"]) == {"lookup", "suffix", "draft_model"}
    assert "use " in done.out.splitlines()[-1]
    assert "draft_model" not in cli("bench", "--model", model, "--prompts", prompts, "--arms", "all").out
