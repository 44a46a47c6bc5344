"""The parser of a choice's text: reasoning first, then content and tool calls. Streams and whole answers share it."""

from __future__ import annotations

from collections.abc import Collection

from foredraft.server.parsers import reasoning
from foredraft.server.parsers.events import Content, Event, ParsedAnswer
from foredraft.server.parsers.formats import tool_format
from foredraft.server.parsers.reasoning import ReasoningParser
from foredraft.server.parsers.tool_calls import ToolCallParser


class OutputParser:
    """Finds what a model's text means. What it finds does not depend on how the text is cut into pieces.

    template: the model's chat template, which tells how it writes. prompt: the rendered prompt's text, or its end.
    names: the functions that may be called; none means that no call is looked for. max_calls: after so many calls, the
    rest of the text is left out.

    Raises:
        TemplateError: functions are offered, and the template's format of calls is not known.
    """

    def __init__(
        self, template: str, prompt: str = "", names: Collection[str] = (), max_calls: int | None = None
    ) -> None:
        is_open = prompt.rstrip().endswith(reasoning.OPENING)
        self._reasoning = ReasoningParser(is_open) if reasoning.is_known(template) else None
        self._calls = ToolCallParser(tool_format(template), names, max_calls) if names else None

    @property
    def num_calls(self) -> int:
        """Complete tool calls so far; an answer with any has the finish reason "tool_calls"."""
        return self._calls.num_calls if self._calls else 0

    @property
    def is_full(self) -> bool:
        """Whether nothing that still comes counts."""
        return self._calls is not None and self._calls.is_full

    def push(self, piece: str) -> list[Event]:
        """Take in more text; what is certain now."""
        if self._reasoning:
            return self._with_calls(self._reasoning.push(piece))
        return self._with_calls([Content(piece)] if piece else [])

    def flush(self) -> list[Event]:
        """At the end of the text: what was held back."""
        found = self._with_calls(self._reasoning.flush() if self._reasoning else [])
        return found + (self._calls.flush() if self._calls else [])

    def parse(self, text: str) -> ParsedAnswer:
        """A whole text at once."""
        answer = ParsedAnswer()
        for event in (*self.push(text), *self.flush()):
            answer.add(event)
        return answer

    def _with_calls(self, found: list[Event]) -> list[Event]:
        if self._calls is None:
            return found
        events: list[Event] = []
        for event in found:
            events += self._calls.push(event.text) if isinstance(event, Content) else [event]
        return events
