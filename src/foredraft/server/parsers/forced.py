"""Grammars that force a function call: `tool_choice` "required", or one function by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from foredraft.errors import RequestError
from foredraft.server.parsers.formats import ToolFormat

# On one line, with spaces as chat templates write JSON: what is fixed can be drafted.
_JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_NO_ARGUMENTS = {"properties": {}, "additionalProperties": False}


def forced_calls(
    format: ToolFormat, tools: Sequence[Mapping[str, Any]], name: str | None = None, parallel: bool = True
) -> dict[str, str]:
    """The response format under which an answer is nothing but calls: {"type": "grammar", "grammar": ...} in
    llguidance's Lark dialect. Arguments follow their function's schema, in which references stay local.

    tools: as in the OpenAI API. name: the one function to call, once; None leaves the choice, and with `parallel` the
    number (one or more), to the model.

    Raises:
        RequestError: the model's format of calls cannot be forced, or no function has that name.
    """
    if format.name != "hermes":
        raise RequestError(
            f"tool_choice can be forced for models that write calls in the format hermes, and this one writes "
            f"{format.name}; use tool_choice auto"
        )
    functions = [tool["function"] for tool in tools if name in (None, tool["function"]["name"])]
    if not functions:
        known = ", ".join(tool["function"]["name"] for tool in tools)
        raise RequestError(
            f"tool_choice asks for {'a function' if name is None else repr(name)}; tools has {known or 'none'}"
        )
    more = r'("\n" call)*' if name is None and parallel else ""
    rules = [f"start: call {more}", "call: " + " | ".join(f"call_{index}" for index in range(len(functions)))]
    for index, function in enumerate(functions):
        before = _quoted(f'{format.opening}\n{{"name": {_quoted(function["name"])}, "arguments": ')
        after = _quoted(f"}}\n{format.closing}")
        schema = {**(function.get("parameters") or _NO_ARGUMENTS), "type": "object", "x-guidance": _JSON_STYLE}
        rules.append(f"call_{index}: {before} arguments_{index} {after}")
        rules.append(f"arguments_{index}: %json {json.dumps(schema)}")
    return {"type": "grammar", "grammar": "\n".join(rules) + "\n"}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
