"""Stop strings in text that arrives piece by piece."""

from __future__ import annotations

from collections.abc import Sequence


class _Automaton:
    """How much of one stop string the text so far ends with (Knuth, Morris and Pratt 1977): O(1) per character."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._fallback = [0] * (len(stop) + 1)  # longest proper border of each prefix
        border = 0
        for length in range(2, len(stop) + 1):
            border = self._longest(border, stop[length - 1])
            self._fallback[length] = border

    def step(self, char: str) -> bool:
        """Whether the text ends with the whole stop string after `char`."""
        self.matched = self._longest(self.matched, char)
        return self.matched == len(self.stop)

    def _longest(self, matched: int, char: str) -> int:
        while matched and self.stop[matched] != char:
            matched = self._fallback[matched]
        return matched + (self.stop[matched] == char)


class StopMatcher:
    """Finds the first stop string and says which text can be shown meanwhile. One per sequence.

    The match that ends first wins; of two that end together, the longer one. So the result depends on the text alone,
    not on how it was cut into pieces. The text up to the match, without it, is what `push` and `flush` return in all.

    found: the stop string that was found, or None.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        # Longest first, so that the first of several that end together is the longest.
        self._automata = [_Automaton(stop) for stop in sorted(set(stops), key=len, reverse=True)]
        self._held = ""
        self.found: str | None = None

    def push(self, piece: str) -> str:
        """Take in more text; return what is now certain not to belong to a stop string. Nothing once one is found."""
        if self.found is not None:
            return ""
        for index, char in enumerate(piece):
            # A list, not a generator: every automaton has to see every character.
            complete = [automaton.stop for automaton in self._automata if automaton.step(char)]
            if complete:
                self.found = complete[0]
                text = self._held + piece[: index + 1]
                self._held = ""
                return text[: -len(self.found)]
        text = self._held + piece
        keep = max((automaton.matched for automaton in self._automata), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """At the end of a sequence: the text that was held back for a stop string that did not come."""
        text, self._held = self._held, ""
        return text
