"""Questions of published benchmarks become workloads; here they are our own, in the published formats."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.bench.questions import parse_questions
from foredraft.bench.workloads import Prompt
from foredraft.errors import ConfigError


def spec(number, category, *turns):
    return json.dumps({"question_id": number, "category": category, "turns": turns, "reference": ["unused"]})


def fix(name, **changes):
    row = {"task_id": f"Python/{name}", "prompt": f"def {name}(x):\n", "buggy_solution": "    return x\n"}
    return json.dumps({**row, "entry_point": name, "canonical_solution": "secret", **changes})


def test_chats_are_one_task_and_keep_all_turns():
    text = "\n".join([spec(81, "writing", "one", "two"), "", spec(91, "roleplay", "three"), spec(5, "qa", "four")])
    assert parse_questions(text, "q") == {
        "multi_turn": [Prompt("writing-81", "one", 1024, ("two",)), Prompt("roleplay-91", "three", 1024)],
        "qa": [Prompt("qa-5", "four", 1024)],
    }


def test_a_fix_shows_the_bug_and_not_the_answer():
    [prompt] = parse_questions(fix("double"), "q")["humanevalfix"]
    assert "Fix the bug in the function `double`" in prompt.text
    assert "```python\ndef double(x):\n    return x\n```" in prompt.text
    assert "secret" not in prompt.text
    assert prompt.name == "humanevalfix-Python/double"


@given(st.integers(1, 50), st.integers(1, 60))
def test_a_limit_takes_as_many_evenly_spread(total, limit):
    text = "\n".join(spec(number, "qa", f"q{number}") for number in range(total))
    found = parse_questions(text, "q", limit)["qa"]
    numbers = [int(prompt.text[1:]) for prompt in found]
    assert len(numbers) == min(limit, total)
    assert numbers[0] == 0
    gaps = [b - a for a, b in zip(numbers, [*numbers[1:], total], strict=True)]
    assert max(gaps) - min(gaps) <= 1
    assert found == parse_questions(text, "q", limit)["qa"]


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        "[]",
        "{}",
        '{"question_id": 1, "category": "qa", "turns": []}',
        '{"question_id": 1, "category": "qa", "turns": ["", "x"]}',
        '{"question_id": 1, "category": "qa", "turns": "x"}',
        '{"question_id": 1, "category": 7, "turns": ["x"]}',
        '{"name": "greet", "prompt": "Say hello.", "max_tokens": 50}',
        fix("f", buggy_solution=3),
        fix("f", entry_point=""),
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_question_is_named(line):
    with pytest.raises(ConfigError, match=r"q\.jsonl, line 2 is not a question; known are those of Spec-Bench"):
        parse_questions(f"{spec(1, 'qa', 'x')}\n{line}", "q.jsonl")


def test_an_empty_file():
    with pytest.raises(ConfigError, match="q holds no questions"):
        parse_questions("\n \n", "q")
