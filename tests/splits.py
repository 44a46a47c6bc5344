"""Every way to cut a text into pieces, and what an incremental parser finds whichever is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any, Protocol

from foredraft.server.parsers.events import Content, Event, Reasoning, ToolCallStart


class Parser(Protocol):
    def push(self, piece: str) -> list[Event]: ...
    def flush(self) -> list[Event]: ...


def splits(text: str) -> Iterator[list[str]]:
    """All 2 ** (len(text) - 1) of them."""
    for count in range(max(len(text), 1)):
        for cuts in combinations(range(1, len(text)), count):
            yield [text[start:end] for start, end in pairwise((0, *cuts, len(text)))]


def found(parser: Parser, pieces: list[str]) -> list[Event]:
    """Everything a parser tells of a text, neighboring deltas put together."""
    return merged([*(event for piece in pieces for event in parser.push(piece)), *parser.flush()])


def merged(events: list[Event]) -> list[Event]:
    """Events with neighboring deltas put together and the ids of calls, which are random, left out."""
    together: list[Event] = []
    for event in events:
        assert not isinstance(event, Content | Reasoning) or event.text
        last = together[-1] if together else None
        if isinstance(event, Content | Reasoning) and type(last) is type(event):
            together[-1] = replace(event, text=last.text + event.text)
        else:
            together.append(replace(event, id="") if isinstance(event, ToolCallStart) else event)
    return together


def check_every_split(make: Callable[[], Parser], text: str) -> list[Event]:
    """Check that no split of a text changes what is found, and return that.

    By induction: however a prefix was cut, and whatever the size of the next piece, the parser tells the same and is in
    the same state as if it had been given single characters.
    """
    parser, events = make(), list[Event]()
    points = [(_copy(parser), merged(events))]
    for char in text:
        events += parser.push(char)
        points.append((_copy(parser), merged(events)))
    for start, (before, told) in enumerate(points):
        for end in range(start, len(text) + 1):
            parser = _copy(before)
            assert merged(told + parser.push(text[start:end])) == points[end][1]
            assert _state(parser) == _state(points[end][0])
    return found(make(), [text])


def _copy(value: Any) -> Any:
    """A deep copy of plain objects; much faster than the library's."""
    if not hasattr(value, "__dict__"):
        return value
    made = object.__new__(type(value))
    made.__dict__.update({name: _copy(field) for name, field in value.__dict__.items()})
    return made


def _state(value: Any) -> Any:
    fields = getattr(value, "__dict__", None)
    return value if fields is None else {name: _state(field) for name, field in fields.items()}
