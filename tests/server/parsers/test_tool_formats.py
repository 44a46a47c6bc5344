"""Formats of tool calls are known by what chat templates of real models say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foredraft.errors import TemplateError
from foredraft.server.parsers.formats import tool_format

ORACLE = json.loads((Path(__file__).parents[2] / "data" / "chat.json").read_text())
# The lines that matter of each model's template.
TEMPLATES = {
    "qwen2.5": ("hermes", r"""{{- '\n<tool_call>\n{"name": "' }}{{- tool_call.name }}"""),
    "qwen2.5-coder": (
        "hermes",
        r"""XML tags:\n<tool_call>\n{{\"name\": <function-name>, \"arguments\": <args>}}\n</tool_call>""",
    ),
    "hermes 3": ("hermes", "<tool_call>\n{'arguments': <args-dict>, 'name': <function-name>}\n</tool_call>"),
    "llama 3.2": ("llama3", r"""{{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}"""),
    "mistral v0.3": ("mistral", """{{- "[TOOL_CALLS] [" }}{%- for tool_call in message.tool_calls %}"""),
}
UNKNOWN = {
    "qwen3-coder": r"""{{- '\n<tool_call>\n<function=' + tool_call.name + '>\n' }}""",
    "glm 4.5": "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>",
    "mistral small 3.2": """{{- "[TOOL_CALLS]" + tool.function.name + "[CALL_ID]" + tool.id + "[ARGS]" }}""",
    "none": "{{ tools }}",
}


@pytest.mark.parametrize("model", TEMPLATES)
def test_templates_of_known_formats(model: str) -> None:
    name, template = TEMPLATES[model]
    assert tool_format(f"{{# first #}}\n{template}\nlast").name == name


def test_a_whole_template() -> None:
    assert tool_format(ORACLE["templates"]["qwen2.5-coder"]).name == "hermes"


@pytest.mark.parametrize("model", UNKNOWN)
def test_other_templates_are_refused(model: str) -> None:
    with pytest.raises(TemplateError, match=r"none of the known formats of tool calls \(hermes, llama3, mistral\)"):
        tool_format(UNKNOWN[model])
