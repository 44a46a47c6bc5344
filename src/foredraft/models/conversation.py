"""Messages and tools as the OpenAI API writes them, checked, and brought into the form that chat templates read.

Templates want a string as content, and the arguments of a tool call as an object, which they write out themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from foredraft.errors import TemplateError

# A role is written into the prompt as it is, often right between the brackets of a control token.
ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_DEPTH = 100  # of JSON in JSON

Message = Mapping[str, Any]
Tool = Mapping[str, Any]


def checked_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages with content as a string (its text parts joined by newlines) and arguments of tool calls as objects.

    Keys without a value are left out: templates ask whether a key is there.

    Raises:
        TemplateError: a message is malformed, or a part of it is not text; the message says which and what is allowed.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise TemplateError('messages has to be a list of at least one {"role": ..., "content": ...}')
    return [_message(f"message {index}", message) for index, message in enumerate(messages)]


def checked_tools(tools: Sequence[Tool]) -> list[Tool]:
    """The tools as they are.

    Raises:
        TemplateError: one is not {"type": "function", "function": {"name": ..., "parameters": {...}}}.
    """
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping) or tool.get("type") != "function" or not _is_named(tool.get("function")):
            raise TemplateError(
                f'tool {index} is {tool!r:.80}; it has to be {{"type": "function", "function": {{"name": ...}}}}'
            )
        if not isinstance(tool["function"].get("parameters") or {}, Mapping):
            raise TemplateError(f"tool {index} has parameters that are not a JSON schema; give an object")
        _check_depth(f"tool {index}", tool)
    return list(tools)


def strings(value: Any) -> Iterator[str]:
    """Every string inside a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


def _message(where: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TemplateError(f'{where} is {message!r:.60}; it has to be {{"role": ..., "content": ...}}')
    role, calls = message.get("role"), message.get("tool_calls")
    if role not in ROLES:
        raise TemplateError(f"{where} has the role {role!r}; allowed are {', '.join(ROLES)}")
    _check_depth(where, message)
    found = {key: value for key, value in message.items() if value is not None}
    found["content"] = _content(where, message.get("content"), may_be_missing=bool(calls))
    found.pop("tool_calls", None)
    if calls:
        if role != "assistant" or not isinstance(calls, list | tuple):
            raise TemplateError(f"{where} has tool_calls; only an assistant's message may, as a list of calls")
        found["tool_calls"] = [_call(f"{where}, tool call {index}", call) for index, call in enumerate(calls)]
    return found


def _content(where: str, content: Any, may_be_missing: bool) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return "\n".join(_text(where, part) for part in content)
    if content is None and may_be_missing:
        return ""
    raise TemplateError(
        f"{where} has a content of type {type(content).__name__}; it has to be a string or a list of text parts"
    )


def _text(where: str, part: Any) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = f"of type {part.get('type')!r}" if isinstance(part, Mapping) else f"{part!r:.60}"
    raise TemplateError(f'{where} has a part {kind}; a content is made of text parts, {{"type": "text", "text": ...}}')


def _call(where: str, call: Any) -> dict[str, Any]:
    if not isinstance(call, Mapping) or not _is_named(call.get("function")):
        raise TemplateError(f'{where} is {call!r:.80}; it has to be {{"function": {{"name": ..., "arguments": ...}}}}')
    function = call["function"]
    return {**call, "function": {**function, "arguments": _arguments(where, function.get("arguments"))}}


def _arguments(where: str, arguments: Any) -> Mapping[str, Any]:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    try:
        found = json.loads(arguments, parse_constant=refuse) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, Mapping):
        raise TemplateError(f"{where} has the arguments {arguments!r:.60}; they have to be a JSON object")
    _check_depth(where, found)
    return found


def _is_named(function: Any) -> bool:
    return isinstance(function, Mapping) and isinstance(function.get("name"), str) and bool(function["name"])


def _check_depth(where: str, value: Any, left: int = MAX_DEPTH) -> None:
    if not left:
        raise TemplateError(f"{where} is nested too deeply; allowed are {MAX_DEPTH} levels")
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for child in children:
        _check_depth(where, child, left - 1)
