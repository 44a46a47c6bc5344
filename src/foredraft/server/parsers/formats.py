"""How models write tool calls, by name, and which of these formats a chat template speaks of."""

from __future__ import annotations

import re
from dataclasses import dataclass

from foredraft.errors import TemplateError


@dataclass(frozen=True)
class ToolFormat:
    """A call is JSON, {"name": ..., "arguments": {...}} or a list of these, between two texts.

    sign: what a chat template of this format holds. Templates have line breaks as such or escaped, quotes likewise.
    closing: empty where the end of the JSON ends the call.
    """

    name: str
    sign: re.Pattern[str]
    opening: str
    closing: str


FORMATS = {
    format.name: format
    for format in (
        # Others write XML between the same tags.
        ToolFormat("hermes", re.compile(r"<tool_call>(\\n|\s)*\{+\\?[\"']"), "<tool_call>", "</tool_call>"),
        ToolFormat("llama3", re.compile(r"<\|start_header_id\|>ipython<\|end_header_id\|>"), "<|python_tag|>", ""),
        # Later ones write [TOOL_CALLS]name[ARGS]{...}.
        ToolFormat("mistral", re.compile(r"(?s)^(?!.*\[ARGS\]).*\[TOOL_CALLS\]"), "[TOOL_CALLS]", ""),
    )
}


def tool_format(template: str) -> ToolFormat:
    """The format that a chat template asks for.

    Raises:
        TemplateError: none of those that are known.
    """
    for format in FORMATS.values():
        if format.sign.search(template):
            return format
    raise TemplateError(
        f"this model's chat template uses none of the known formats of tool calls ({', '.join(FORMATS)}); "
        "leave out tools, or use another model"
    )
