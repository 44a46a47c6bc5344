"""Tool calls in text that arrives piece by piece.

A call is told when it is complete, for only then is it certain to be one: JSON that names an offered function and its
arguments. Whatever turns out not to be one is content, every character of it; only white space before and between calls
is left out.

A call stands in its format's own marks anywhere in the text. Models that were shown these marks still write bare JSON
now and then, or JSON in a code block; at the beginning of an answer, and right after a call, that counts as well.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NoReturn

from foredraft.server.parsers.events import (
    Content,
    Event,
    ToolCallArguments,
    ToolCallStart,
)
from foredraft.server.parsers.formats import ToolFormat

_SPACE = " \t\r\n"
_BETWEEN_CALLS = _SPACE + ";"  # Llama puts a semicolon between two
_OUTSIDE_STRINGS = frozenset(_SPACE + '{}[]",:+-.0123456789' + "truefalsn" + "E")


@dataclass(frozen=True)
class _Marks:
    opening: str
    closing: str


_CODE_BLOCK, _BARE = _Marks("```json", "```"), _Marks("", "")


class JsonEnd:
    """Finds the end of a JSON object or array, character by character, and notices most of what is not JSON."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_string = self._is_escaped = False

    def step(self, char: str) -> bool:
        """Whether the value ends with `char`.

        Raises:
            ValueError: no JSON object or array goes on like this.
        """
        if self._is_string:
            if char < " ":
                raise ValueError("a control character in a string")
            self._is_string = self._is_escaped or char != '"'
            self._is_escaped = char == "\\" and not self._is_escaped
            return False
        if char not in _OUTSIDE_STRINGS or (self._depth == 0 and char not in _SPACE + "{["):
            raise ValueError("not JSON")
        self._is_string = char == '"'
        self._depth += (char in "{[") - (char in "}]")
        return self._depth == 0 and char in "}]"


@dataclass
class _Block:
    """What may be a call, at the front of the text that is held: white space, the opening, JSON, the closing.

    `start` is where its JSON starts, `end` where that ends (-1: not seen), `seen` how far it was looked for.
    """

    closing: str
    start: int
    seen: int
    json: JsonEnd
    end: int = -1


class ToolCallParser:
    """Cuts an answer's text into content and calls of the functions in `names`. One per choice.

    max_calls: after so many calls the rest of the text is left out; None for as many as there are. num_calls: complete
    calls so far.
    """

    def __init__(self, format: ToolFormat, names: Collection[str], max_calls: int | None = None) -> None:
        self._marks = _Marks(format.opening, format.closing)
        self._names, self._max_calls = names, max_calls
        self._held = ""  # text that is not decided yet
        self._block: _Block | None = None
        self._is_fresh = True  # nothing but white space since the beginning or the last call
        self.num_calls = 0

    @property
    def is_full(self) -> bool:
        """Whether there are as many calls as there may be."""
        return self.num_calls == self._max_calls

    def push(self, piece: str) -> list[Event]:
        """Take in more text; what is certain now."""
        events: list[Event] = []
        if self.is_full:
            return events
        self._held += piece
        while self._in_block(events) if self._block else self._outside(events):
            pass
        return events

    def flush(self) -> list[Event]:
        """At the end of the text. A call lacks nothing if only its closing mark is missing."""
        events: list[Event] = []
        if self._block and self._block.end >= 0 and self._calls(events, len(self._held)):
            return events
        while self._block:  # what was taken for a call may hide another
            self._give_up(events)
            events += self.push("")
        if not (self._is_fresh and self.num_calls and not self._held.strip(_BETWEEN_CALLS)):
            self._tell(events, len(self._held))
        return events

    def _outside(self, events: list[Event]) -> bool:
        """Look for the start of a call; False where that takes more text."""
        if self.is_full:
            self._held = ""
            return False
        return self._at_once(events) if self._is_fresh else self._anywhere(events)

    def _at_once(self, events: list[Event]) -> bool:
        text = self._held.lstrip(_BETWEEN_CALLS if self.num_calls else _SPACE)
        at = len(self._held) - len(text)
        for marks in (self._marks, _CODE_BLOCK):
            if text.startswith(marks.opening):
                self._open(at, marks)
                return True
            if marks.opening.startswith(text):
                return False
        if text.startswith(("{", "[")):
            self._open(at, _BARE)
        else:
            self._is_fresh = False
        return True

    def _anywhere(self, events: list[Event]) -> bool:
        opening = self._marks.opening
        found = self._held.find(opening)
        if found >= 0:
            self._tell(events, len(self._held[:found].rstrip(_SPACE)))
            self._open(self._held.index(opening), self._marks)
            return True
        partial = next(n for n in range(len(opening) - 1, -1, -1) if self._held.endswith(opening[:n]))
        self._tell(events, len(self._held[: len(self._held) - partial].rstrip(_SPACE)))
        return False

    def _open(self, at: int, marks: _Marks) -> None:
        start = at + len(marks.opening)
        self._block = _Block(marks.closing, start, start, JsonEnd())

    def _in_block(self, events: list[Event]) -> bool:
        """Look for the end of a call; False where that takes more text."""
        block = self._block
        assert block is not None
        try:
            while block.end < 0:
                if block.seen == len(self._held):
                    return False
                block.seen += 1
                if block.json.step(self._held[block.seen - 1]):
                    block.end = block.seen
        except ValueError:
            self._give_up(events)
            return True
        rest = self._held[block.end :].lstrip(_SPACE) if block.closing else ""
        if block.closing.startswith(rest) and rest != block.closing:
            return False
        end = len(self._held) - len(rest) + len(block.closing) if block.closing else block.end
        if not (rest.startswith(block.closing) and self._calls(events, end)):
            self._give_up(events)
        return True

    def _calls(self, events: list[Event], end: int) -> bool:
        """Tell the calls of the block, which ends at `end`, if that is what it holds."""
        block = self._block
        assert block is not None
        calls = _read(self._held[block.start : block.end], self._names)
        room = None if self._max_calls is None else self._max_calls - self.num_calls
        for name, arguments in calls[:room]:
            events += [ToolCallStart(self.num_calls, _new_id(), name), ToolCallArguments(self.num_calls, arguments)]
            self.num_calls += 1
        if calls:
            self._held, self._block, self._is_fresh = self._held[end:], None, True
        return bool(calls)

    def _give_up(self, events: list[Event]) -> None:
        """The block is no call: its opening is content, and what follows is looked at again."""
        assert self._block is not None
        start, self._block, self._is_fresh = self._block.start, None, False
        self._tell(events, start)

    def _tell(self, events: list[Event], length: int) -> None:
        if length:
            events.append(Content(self._held[:length]))
            self._held = self._held[length:]


def _read(text: str, names: Collection[str]) -> list[tuple[str, str]]:
    """Name and arguments of each call in JSON; none where it is anything but calls of known functions."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    try:
        value = json.loads(text, parse_constant=refuse)
        calls = [_call(item) for item in (value if isinstance(value, list) else [value])]
        if not all(name in names for name, _ in calls):
            raise ValueError("an unknown function")
        for _, arguments in calls:
            arguments.encode()  # half a surrogate pair is JSON, but no text
        return calls
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _call(item: Any) -> tuple[str, str]:
    arguments = item["arguments" if "arguments" in item else "parameters"]
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        raise ValueError("arguments have to be an object")
    return item["name"], json.dumps(arguments, ensure_ascii=False, allow_nan=False)


def _new_id() -> str:
    """Nine letters and digits: Mistral's templates take no other, and nobody else minds."""
    return secrets.token_hex(5)[:9]
