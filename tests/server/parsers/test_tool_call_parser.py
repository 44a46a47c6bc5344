"""Tool calls: found in every split of the text, never lost, never invented."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.server.parsers.events import Content, Event, ToolCallArguments, ToolCallStart
from foredraft.server.parsers.formats import FORMATS
from foredraft.server.parsers.tool_calls import ToolCallParser
from splits import check_every_split, found, splits

NAMES = ("f", "get_weather")
F = '{"name": "f", "arguments": {}}'
ROME = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
HERMES = f"<tool_call>\n{F}\n</tool_call>"


def parser(format: str = "hermes", max_calls: int | None = None) -> ToolCallParser:
    return ToolCallParser(FORMATS[format], NAMES, max_calls)


def expected(*parts: str | tuple[str, str]) -> list[Event]:
    """Events of content (a string) and calls (name and arguments)."""
    events: list[Event] = []
    index = 0
    for part in parts:
        if isinstance(part, str):
            events.append(Content(part))
        else:
            name, arguments = part
            events += [ToolCallStart(index, "", name), ToolCallArguments(index, arguments)]
            index += 1
    return events


CALL_F, CALL_ROME = ("f", "{}"), ("get_weather", '{"city": "Rome"}')
CALLS = {
    "one": ("hermes", HERMES, [CALL_F]),
    "content before": ("hermes", f"I look.\n\n{HERMES}", ["I look.", CALL_F]),
    "content after": ("hermes", f"{HERMES}\nDone. ", [CALL_F, "\nDone. "]),
    "two": ("hermes", f"{HERMES}\n<tool_call>{ROME}</tool_call>\n", [CALL_F, CALL_ROME]),
    "content between": ("hermes", f"{HERMES} and {HERMES}", [CALL_F, " and", CALL_F]),
    "tags in a string": (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>\\"<tool_call>"}}</tool_call>',
        [("f", '{"a": "</tool_call>\\"<tool_call>"}')],
    ),
    "arguments as text": (
        "hermes",
        '<tool_call>{"name":"f","arguments":"{\\"a\\": 1}"}</tool_call>',
        [("f", '{"a": 1}')],
    ),
    "closing missing": ("hermes", f"<tool_call>\n{F}\n</tool", [CALL_F]),
    "bare": ("hermes", f"{F}\n{ROME}\n", [CALL_F, CALL_ROME]),
    "code block": ("hermes", f"```json\n{ROME}\n```", [CALL_ROME]),
    "after what is no call": ("hermes", f"<tool_call>{{oh\n{HERMES}", ["<tool_call>{oh", CALL_F]),
    "in an unfinished one": ("hermes", f'<tool_call>{{"a": [1, {HERMES}', ['<tool_call>{"a": [1,', CALL_F]),
    "llama": ("llama3", '{"name": "f", "parameters": {"a": [1.5, -2e3]}}', [("f", '{"a": [1.5, -2000.0]}')]),
    "llama, python tag": ("llama3", f"<|python_tag|>{F}; {ROME}", [CALL_F, CALL_ROME]),
    "mistral": ("mistral", f"[TOOL_CALLS] [{F}, {ROME}]", [CALL_F, CALL_ROME]),
    "mistral, content before": ("mistral", f"So [TOOL] [TOOL_CALLS][{F}]", ["So [TOOL]", CALL_F]),
}
NO_CALLS = {
    "plain": "Just text. ",
    "nothing": "",
    "white space": " \n",
    "an unknown function": '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
    "one of two unknown": f'<tool_call>[{F}, {{"name": "g", "arguments": {{}}}}]</tool_call>',
    "no arguments": '<tool_call>{"name": "f"}</tool_call>',
    "arguments of another kind": '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
    "arguments that are no JSON": '<tool_call>{"name": "f", "arguments": "{"}</tool_call>',
    "no name": '<tool_call>{"arguments": {}}</tool_call>',
    "a name of another kind": '<tool_call>{"name": ["f"], "arguments": {}}</tool_call>',
    "no object": "<tool_call>[1, 2]</tool_call> x",
    "an empty list": "<tool_call>[]</tool_call>",
    "broken JSON": '<tool_call>{"name": "f", "arguments": {]}</tool_call>',
    "not a number": '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>',
    "half a surrogate pair": r'<tool_call>{"name": "f", "arguments": {"a": "\ud800"}}</tool_call>',
    "a line break in a string": '<tool_call>{"name": "f", "arguments": {"a": "\n"}}</tool_call>',
    "cut short": '  <tool_call>\n{"name": "f", "argum',
    "something before the closing": f"<tool_call>{F}.</tool_call>",
    "an opening alone": "a <tool_call>",
    "half an opening": "a <tool",
    "a tag of XML": "<tool>f</tool>",
    "bare, later": f"Here: {F}",
    "a code block, later": f"Here:\n```json\n{F}\n```",
    "a code block of another language": '```js\n{"a": 1}\n```',
    "other JSON": '{"name": "Ann", "arguments": {}}',
    "a list": "[1, 2, 3]",
}


@pytest.mark.parametrize("case", CALLS)
def test_calls_are_found_in_every_split(case: str) -> None:
    format, text, parts = CALLS[case]
    assert check_every_split(lambda: parser(format), text) == expected(*parts)


@pytest.mark.parametrize("case", NO_CALLS)
def test_what_is_no_call_is_content_to_the_last_character(case: str) -> None:
    text = NO_CALLS[case]
    assert check_every_split(parser, text) == ([Content(text)] if text else [])


def test_all_splits_of_a_short_text_agree() -> None:
    text = "a <tool_{;[ "
    assert {len(found(parser(), pieces)) for pieces in splits(text)} == {1}
    assert all(found(parser("mistral"), pieces) == [Content("[[TOOL_CAL")] for pieces in splits("[[TOOL_CAL"))


_PIECES = (
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "```json",
    "```",
    F,
    ROME,
    "{",
    '"',
    "]",
    "\\",
)
_texts = st.lists(st.sampled_from((*_PIECES, "\n", " ", ";", "x", "<tool", "[")), max_size=7).map("".join)


@settings(max_examples=30, deadline=None)
@given(_texts, st.sampled_from(sorted(FORMATS)))
def test_no_split_of_any_text_changes_what_is_found(text: str, format: str) -> None:
    events = check_every_split(lambda: parser(format), text)
    calls = sum(isinstance(event, ToolCallStart) for event in events)
    content = "".join(event.text for event in events if isinstance(event, Content))
    if not calls:
        assert content == text
    arguments = [event.text for event in events if isinstance(event, ToolCallArguments)]
    assert len(arguments) == calls
    assert set(arguments) <= {"{}", '{"city": "Rome"}'}


def test_content_is_told_as_soon_as_it_is_certain() -> None:
    reader = parser()
    pieces = ["Hel", "lo <", "b> <tool_", "call", "er>", f"\n<tool_call>{F}</tool_call", ">", " ", "x"]
    told = [[getattr(event, "text", "") for event in reader.push(piece)] for piece in pieces]
    assert told == [["Hel"], ["lo"], [" <b>"], [], [" <tool_caller>"], [], ["", "{}"], [], [" x"]]
    assert reader.num_calls == 1


def test_ids_differ_and_fit_every_template() -> None:
    starts = [event for event in parser().push(HERMES * 20) if isinstance(event, ToolCallStart)]
    assert len({start.id for start in starts}) == 20
    assert all(len(start.id) == 9 and start.id.isalnum() for start in starts)


def test_deep_nesting_is_content() -> None:
    text = "<tool_call>" + '{"a":' * 50_000
    assert found(parser(), [text]) == [Content(text)]
    text = '<tool_call>{"name": "f", "arguments": {"a": ' + "[" * 50_000 + "]" * 50_000 + "}}</tool_call>"
    assert found(parser(), [text]) == [Content(text)]


@pytest.mark.parametrize("name", ["two", "content after", "content between", "tags in a string", "bare", "mistral"])
def test_with_one_call_allowed_the_rest_is_left_out(name: str) -> None:
    format, text, parts = CALLS[name]
    first = next(i for i, part in enumerate(parts) if not isinstance(part, str))
    assert check_every_split(lambda: parser(format, max_calls=1), text) == expected(*parts[: first + 1])
