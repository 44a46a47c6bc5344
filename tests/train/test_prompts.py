"""Prompts for training: the same for a seed, free of what is to be kept out, each with its license."""

from __future__ import annotations

from pathlib import Path

import pytest

from foredraft.errors import ConfigError
from foredraft.train.prompts import TrainingPrompt, make_prompts, read_prompts, runs, texts_in, write_prompts

COUNT = 80


@pytest.fixture(scope="module")
def prompts() -> list[TrainingPrompt]:
    return make_prompts(COUNT, 3, [])


def test_same_seed_same_prompts(prompts: list[TrainingPrompt]) -> None:
    assert make_prompts(COUNT, 3, []) == prompts
    assert make_prompts(COUNT, 4, []) != prompts


def test_there_are_all_kinds_of_sources_each_with_a_license(prompts: list[TrainingPrompt]) -> None:
    assert len({prompt.text for prompt in prompts}) == COUNT
    assert {"generated"} < {prompt.source for prompt in prompts}
    assert all(prompt.license for prompt in prompts)
    assert {"edit", "explain", "write"} <= {prompt.kind for prompt in prompts}


def test_every_conversation_ends_with_the_user(prompts: list[TrainingPrompt]) -> None:
    for prompt in prompts:
        roles = [message["role"] for message in prompt.messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


def test_what_shares_ten_words_is_kept_out(prompts: list[TrainingPrompt]) -> None:
    known = next(prompt for prompt in prompts if len(runs(prompt.text)) > 5)
    never = f"Something else. {known.text.upper()} And more."
    made = make_prompts(COUNT, 3, [never])
    assert known.text not in {prompt.text for prompt in made}
    assert not any(runs(never) & runs(prompt.text) for prompt in made)
    assert len(made) == COUNT


def test_nine_shared_words_are_allowed() -> None:
    assert not runs("one two three four five six seven eight nine")
    assert runs("One, two three four five six seven eight nine TEN") == {
        ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    }


def test_a_file_of_prompts_is_read_back(tmp_path: Path, prompts: list[TrainingPrompt]) -> None:
    write_prompts(tmp_path / "p.jsonl", prompts)
    assert read_prompts([tmp_path / "p.jsonl"]) == prompts


def test_a_line_may_be_a_text_alone(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "Say hello."}\n')
    [prompt] = read_prompts([tmp_path / "p.jsonl"])
    assert prompt.messages == ({"role": "user", "content": "Say hello."},)


@pytest.mark.parametrize("line", ["no json", "[]", '{"text": "a"}', '{"messages": []}', '{"messages": ["Say hello."]}'])
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "p.jsonl").write_text(f'{{"prompt": "Say hello."}}\n{line}\n')
    with pytest.raises(ConfigError, match="line 2 is not a prompt"):
        read_prompts([tmp_path / "p.jsonl"])


def test_texts_are_found_however_deep() -> None:
    assert list(texts_in({"a": ["x", {"b": "y"}], "c": 1, "d": "z"})) == ["x", "y", "z"]
