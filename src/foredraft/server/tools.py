"""What a request's tools and tool_choice mean for its prompt, its sampling and the reading of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foredraft.errors import ForedraftError
from foredraft.server.errors import ApiError
from foredraft.server.parsers.forced import forced_calls
from foredraft.server.parsers.formats import tool_format
from foredraft.server.requests import ChatRequest, NamedToolChoice


@dataclass(frozen=True)
class ToolUse:
    """shown: what the chat template is told of tools. response_format: under which an answer is nothing but calls;
    None where the model is free. max_calls: that an answer may have; None for any number."""

    shown: tuple[Mapping[str, Any], ...] = ()
    response_format: Mapping[str, Any] | None = None
    max_calls: int | None = None

    @property
    def names(self) -> frozenset[str]:
        """The functions that may be called."""
        return frozenset(tool["function"]["name"] for tool in self.shown)


def tool_use(body: ChatRequest, template: str | None) -> ToolUse:
    """How a request wants functions to be called. With the choice "none" the model hears nothing of them.

    template: the model's chat template.

    Raises:
        ApiError: the model cannot do it, or fields contradict each other.
    """
    if body.tools is None:
        for field in ("tool_choice", "parallel_tool_calls"):
            if getattr(body, field) is not None:
                raise ApiError(400, f"{field} is only there with tools", param=field)
        return ToolUse()
    shown = tuple(tool.model_dump(exclude_none=True) for tool in body.tools)
    choice, is_one = body.tool_choice or "auto", body.parallel_tool_calls is False
    if choice == "none":
        return ToolUse()
    if body.response_format is not None and body.response_format.type != "text":
        raise ApiError(400, "response_format leaves no room for calls; give tool_choice none", param="response_format")
    try:
        format = tool_format(template or "")
    except ForedraftError as error:
        raise ApiError(400, str(error), param="tools") from error
    if choice == "auto":
        _check_not_strict(body)
        return ToolUse(shown, max_calls=1 if is_one else None)
    name = choice.function.name if isinstance(choice, NamedToolChoice) else None
    try:
        return ToolUse(shown, forced_calls(format, shown, name, parallel=not is_one))
    except ForedraftError as error:
        raise ApiError(400, str(error), param="tool_choice") from error


def _check_not_strict(body: ChatRequest) -> None:
    for index, tool in enumerate(body.tools or ()):
        if tool.function.strict:
            raise ApiError(
                400,
                "arguments can only be held to a schema where a call is forced; leave out strict, or give tool_choice "
                "required or the function's name",
                param=f"tools.{index}.function.strict",
            )
