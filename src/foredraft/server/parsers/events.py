"""What output parsers find, in the order of the text, and the answer that it adds up to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Content:
    """More of the answer's text."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True)
class ToolCallStart:
    """A call of the function `name`, the `index`-th of the answer."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class ToolCallArguments:
    """More of a call's arguments; the pieces of one call make a JSON object."""

    index: int
    text: str


Event = Content | Reasoning | ToolCallStart | ToolCallArguments


@dataclass
class ToolCall:
    """A complete call; `arguments` is a JSON object as text."""

    id: str
    name: str
    arguments: str = ""


@dataclass
class ParsedAnswer:
    """The sum of a parser's events: for an answer that is not streamed."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    def add(self, event: Event) -> None:
        match event:
            case Content(text):
                self.content += text
            case Reasoning(text):
                self.reasoning += text
            case ToolCallStart(_, id, name):
                self.tool_calls.append(ToolCall(id, name))
            case ToolCallArguments(index, text):
                self.tool_calls[index].arguments += text
