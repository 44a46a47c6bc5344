import ast

import pytest

from foredraft.bench.workloads import parse_prompts, select, workloads
from foredraft.errors import ConfigError


def test_every_workload_has_several_prompts():
    assert list(workloads()) == ["edit", "quote", "chat", "write", "ideas", "enrichment"]
    names = [prompt.name for prompts in workloads().values() for prompt in prompts]
    assert len(set(names)) == len(names)
    assert all(len(prompts) >= 3 for prompts in workloads().values())


def test_edits_are_of_python_files_of_200_lines():
    for prompt in workloads()["edit"]:
        code = prompt.text.partition("```python\n")[2].removesuffix("```")
        ast.parse(code)
        assert 185 <= len(code.splitlines()) <= 215
        old_name = prompt.text.split("`")[1]
        assert code.count(old_name) >= 2, f"{prompt.name} renames {old_name}, which is hardly there"


def test_select():
    assert list(select(["chat", "edit"])) == ["chat", "edit"]
    assert list(select(["enrichment"])) == ["enrichment"]
    assert list(select([])) == ["edit", "quote", "chat", "write", "ideas"]


def test_lines_of_one_name_form_one_workload():
    line = '{{"name": "{}", "prompt": "{}", "max_tokens": 5}}\n'
    found = parse_prompts(line.format("a", "x") + line.format("b", "y") + line.format("a", "z"), "here")
    assert {name: [prompt.text for prompt in prompts] for name, prompts in found.items()} == {
        "a": ["x", "z"],
        "b": ["y"],
    }


def test_message_names_the_line():
    with pytest.raises(ConfigError, match="here, line 2 is not a prompt"):
        parse_prompts('{"name": "a", "prompt": "x", "max_tokens": 5}\noops\n', "here")
