"""Text to standard output, byte for byte, with drafts marked where that is asked for."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, BinaryIO

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

# origin: (ANSI color, mark before, mark after). Marks take the place of colors where there are none.
_STYLES = {
    "accepted": ("green", "⟦", "⟧"),
    "corrected": ("yellow", "⟨", "⟩"),
}


def can_color() -> bool:
    """Whether standard output shows colors: a terminal, unless NO_COLOR says otherwise; FORCE_COLOR wins."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


class Writer:
    """Writes generated text as it comes.

    Plain, the bytes written are the text's own and nothing else. With `show_drafts`, each run of accepted or of
    corrected tokens is colored, or marked with brackets where colors cannot be shown.
    """

    def __init__(self, show_drafts: bool = False, is_colored: bool | None = None) -> None:
        self.show_drafts = show_drafts
        self.is_colored = can_color() if is_colored is None else is_colored
        self._stream: BinaryIO = sys.stdout.buffer
        self._origin = "plain"
        self._last = ""

    def write(self, text: str, origin: str = "plain") -> None:
        if not text:
            return
        if self.show_drafts and origin != self._origin:
            self._emit(self._edge(self._origin, 2) + self._edge(origin, 1))
            self._origin = origin
        self._emit(text)
        self._last = text

    def close(self) -> None:
        """End the last mark, and on a terminal the last line, so that the shell's prompt starts on its own."""
        self._emit(self._edge(self._origin, 2))
        self._origin = "plain"
        if sys.stdout.isatty() and not self._last.endswith("\n"):
            self._emit("\n")

    def _edge(self, origin: str, side: int) -> str:
        if origin not in _STYLES:
            return ""
        if not self.is_colored:
            return _STYLES[origin][side]
        return click.style("", fg=_STYLES[origin][0], reset=False) if side == 1 else click.style("", reset=True)

    def _emit(self, text: str) -> None:
        self._stream.write(text.encode())
        self._stream.flush()


def legend(is_colored: bool) -> str:
    """One line that explains how drafts are shown."""
    meanings = {
        "accepted": "drafted and accepted",
        "corrected": "refused, and the model's own token in its place",
    }
    parts = []
    for origin, meaning in meanings.items():
        color, before, after = _STYLES[origin]
        parts.append(click.style(meaning, fg=color) if is_colored else f"{before}{meaning}{after}")
    return f"drafts: {', '.join(parts)}; the rest was not drafted"


def console() -> Console:
    """A rich console on standard output; wide enough for every table where that is not a terminal."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def progress(*columns: ProgressColumn) -> Progress:
    """A progress bar on standard error that is gone when it is done; nothing where that is not a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
