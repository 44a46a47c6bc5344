"""What a model thinks before it answers, between <think> and </think>, in text that arrives piece by piece.

Only a block at the very beginning is reasoning; the same tags later on are content. White space around the block and at
its edges is left out.
"""

from __future__ import annotations

from foredraft.server.parsers.events import Content, Event, Reasoning

OPENING, CLOSING = "<think>", "</think>"


def is_known(template: str) -> bool:
    """Whether a chat template speaks of such blocks."""
    return CLOSING in template


class ReasoningParser:
    """Cuts an answer's text into reasoning and content. One per choice.

    is_open: the prompt ends with the opening tag, as some templates write it, so the text begins inside the block.
    """

    def __init__(self, is_open: bool) -> None:
        self._held = ""  # text that is not decided yet
        self._state = "before block" if not is_open else "at its edge"

    def push(self, piece: str) -> list[Event]:
        """Take in more text; what is certain now."""
        self._held += piece
        events: list[Event] = []
        while self._step(events):
            pass
        return events

    def flush(self) -> list[Event]:
        """At the end of the text, which may be inside the block."""
        text, self._held = self._held, ""
        if self._state == "in block":
            return [Reasoning(text)] if text else []
        return [Content(text)] if text and self._state not in ("at its edge", "after block") else []

    def _step(self, events: list[Event]) -> bool:
        """Decide more of the held text; False where that takes more of it."""
        text = self._held.lstrip()
        match self._state:
            case "before block" if text.startswith(OPENING):
                self._held, self._state = text.removeprefix(OPENING), "at its edge"
            case "before block" if OPENING.startswith(text):
                return False
            case "at its edge" | "after block" if not text:
                return False
            case "at its edge":
                self._held, self._state = text, "in block"
            case "in block":
                return self._in_block(events)
            case "before block":
                self._state = "content"
            case "after block":
                self._held, self._state = text, "content"
            case _:
                if self._held:
                    events.append(Content(self._held))
                    self._held = ""
                return False
        return True

    def _in_block(self, events: list[Event]) -> bool:
        text, is_closed, rest = self._held.partition(CLOSING)
        if not is_closed:
            partial = next(n for n in range(len(CLOSING) - 1, -1, -1) if text.endswith(CLOSING[:n]))
            rest = text[len(text[: len(text) - partial].rstrip()) :]
            text = text.removesuffix(rest)
        if text.rstrip():
            events.append(Reasoning(text.rstrip()))
        self._held = rest
        self._state = "after block" if is_closed else "in block"
        return bool(is_closed)
