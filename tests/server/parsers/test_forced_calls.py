"""Forced calls: the grammar allows the calls that the parser finds, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from foredraft.errors import RequestError
from foredraft.server.parsers.forced import forced_calls
from foredraft.server.parsers.formats import FORMATS
from foredraft.server.parsers.tool_calls import ToolCallParser

WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"$ref": "#/$defs/unit"}},
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {"unit": {"enum": ["c", "f"]}},
    },
}
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": function} for function in (WEATHER, {"name": 'a"b\\é'})]
HERMES = FORMATS["hermes"]
BYTES = LLTokenizer("byte")


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n</tool_call>'


ROME, OTHER = call("get_weather", '{"city": "Rome", "unit": "c"}'), call('a"b\\é', "{}")


def allows(format: dict[str, str], text: str) -> bool:
    assert format["type"] == "grammar"
    matcher = LLMatcher(BYTES, LLMatcher.grammar_from_lark(format["grammar"]))
    assert not matcher.is_error(), matcher.get_error()
    tokens = BYTES.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize("text", [ROME, OTHER, f"{ROME}\n{OTHER}\n{ROME}"])
def test_calls_of_every_function_are_allowed_and_found(text: str) -> None:
    assert allows(forced_calls(HERMES, TOOLS), text)
    parser = ToolCallParser(HERMES, [tool["function"]["name"] for tool in TOOLS])
    parser.push(text)
    assert parser.num_calls == text.count("<tool_call>")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello",
        call("get_weather", '{"unit": "c"}'),
        call("get_weather", '{"city": "Rome", "unit": "k"}'),
        call("get_weather", '"Rome"'),
        call("get_weather", '{ "city":"Rome"}'),
        call("other", "{}"),
        call('a"b\\é', '{"x": 1}'),
        f"{ROME} and",
        ROME[:-1],
    ],
)
def test_nothing_else_is_allowed(text: str) -> None:
    assert not allows(forced_calls(HERMES, TOOLS), text)


def test_a_named_function_is_called_once() -> None:
    format = forced_calls(HERMES, TOOLS, "get_weather")
    assert [allows(format, text) for text in (ROME, OTHER, f"{ROME}\n{ROME}")] == [True, False, False]


def test_calls_may_be_limited_to_one() -> None:
    format = forced_calls(HERMES, TOOLS, parallel=False)
    assert [allows(format, text) for text in (ROME, OTHER, f"{ROME}\n{ROME}")] == [True, True, False]


def test_parameters_are_an_object_whatever_their_schema_says() -> None:
    format = forced_calls(HERMES, [{"type": "function", "function": {"name": "f", "parameters": {"title": "x"}}}])
    assert [allows(format, call("f", text)) for text in ('{"a": 1}', "1")] == [True, False]


@pytest.mark.parametrize(
    ("format", "tools", "name", "message"),
    [
        ("llama3", TOOLS, None, "in the format hermes, and this one writes llama3; use tool_choice auto"),
        ("hermes", TOOLS, "g", "tool_choice asks for 'g'; tools has get_weather, "),
        ("hermes", [], None, "tool_choice asks for a function; tools has none"),
    ],
)
def test_what_cannot_be_forced_is_refused(format: str, tools: Any, name: str | None, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        forced_calls(FORMATS[format], tools, name)
