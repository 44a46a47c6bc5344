"""All that ever followed what, in texts that grow token by token: a suffix automaton with counts.

A state stands for strings of tokens that end at the same places of the texts; its link leads to the longest of their
suffixes that ends at more. A token adds at most two states, and all tokens together at most three edges each, so that
neither adding a token nor following one looks back at the texts (Blumer et al., "The smallest automaton recognizing the
subwords of a text", 1985). What counts adds to it is a walk over the links of a token's state: the lengths of context
that are told apart there, few in any text that is not one short loop.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

ROOT = 0  # the empty string
STATE_BYTES, EDGE_BYTES = 256, 80  # at most, of this Python's dictionaries and arrays
_MOST_LINKS = 32  # longer walks are those of loops, of which counts tell nothing more


@dataclass
class Match:
    """The longest suffix of a sequence that occurs in an index: its state there, and how many tokens it has."""

    state: int = ROOT
    length: int = 0


class SuffixIndex:
    """Strings of the texts, how often each occurs, and which token followed it most, the latest of equally frequent."""

    def __init__(self) -> None:
        self._edges: list[dict[int, int]] = [{}]
        self._links, self._lengths = array("i", [-1]), array("i", [0])
        self._counts, self._followed = array("i", [0]), array("i", [0])  # occurrences: all, and those that went on
        self._top, self._top_counts = array("i", [-1]), array("i", [0])  # the likeliest token, and how often it came
        self._last = ROOT  # the state of the whole text so far
        self.num_edges = 0

    @property
    def num_states(self) -> int:
        return len(self._edges)

    @property
    def num_bytes(self) -> int:
        """Memory, rather too much than too little."""
        return self.num_states * STATE_BYTES + self.num_edges * EDGE_BYTES

    @property
    def most_growth(self) -> int:
        """Bytes that the next token adds at most: a state that is led to from all of its text's suffixes, and another
        that is a copy and has no more edges than the root."""
        num_edges = self._lengths[self._last] + 1 + len(self._edges[ROOT])
        return 2 * STATE_BYTES + num_edges * EDGE_BYTES

    def begin(self) -> None:
        """The next token is the first of another text."""
        self._last = ROOT

    def append(self, token: int) -> None:
        """The text goes on with a token."""
        edges, before = self._edges, self._last
        if token in edges[before]:
            self._last = self._own(before, token)
        else:
            self._last = self._new(self._lengths[before] + 1)
            at = before
            while at >= 0 and token not in edges[at]:
                edges[at][token] = self._last
                self.num_edges += 1
                at = self._links[at]
            self._links[self._last] = ROOT if at < 0 else self._own(at, token)
        self._count(before, token)

    def follow(self, match: Match, token: int) -> None:
        """Move the match of a sequence on by its next token."""
        edges, state, length = self._edges, self._settled(match), match.length
        while state != ROOT and token not in edges[state]:
            state = self._links[state]
            length = self._lengths[state]
        found = edges[state].get(token)
        match.state, match.length = (ROOT, 0) if found is None else (found, length + 1)

    def of_itself(self) -> Match:
        """The longest suffix of the text that also occurs before."""
        state = self._links[self._last]
        return Match(ROOT, 0) if state < 0 else Match(state, self._lengths[state])

    def contexts(self, match: Match) -> Iterator[tuple[int, int]]:
        """The match and its ever shorter suffixes, as far as something followed them: states and lengths."""
        state, length = self._settled(match), match.length
        while state != ROOT:
            if self._top[state] >= 0:
                yield state, length
            state = self._links[state]
            length = self._lengths[state]

    def likeliest(self, state: int) -> tuple[int, int, int]:
        """The token that followed a state's strings most, how often it did, and the state that it leads to; the token
        is -1 where none ever did."""
        token = self._top[state]
        return token, self._top_counts[state], self._edges[state].get(token, ROOT)

    def num_followed(self, state: int) -> int:
        """How often any token followed a state's strings."""
        return self._followed[state]

    def _settled(self, match: Match) -> int:
        """The match's state; shorter strings may have got one of their own since."""
        state = match.state
        while state != ROOT and match.length <= self._lengths[self._links[state]]:
            state = self._links[state]
        return state

    def _own(self, at: int, token: int) -> int:
        """The state of a state's strings followed by a token, split off from that of longer ones where need be."""
        edges, lengths, links = self._edges, self._lengths, self._links
        to = edges[at][token]
        if lengths[to] == lengths[at] + 1:
            return to
        own = self._new(lengths[at] + 1)
        edges[own] = dict(edges[to])
        self.num_edges += len(edges[own])
        for column in (self._counts, self._followed, self._top, self._top_counts, links):
            column[own] = column[to]
        links[to] = own
        while at >= 0 and edges[at].get(token) == to:
            edges[at][token] = own
            at = links[at]
        return own

    def _new(self, length: int) -> int:
        self._edges.append({})
        self._lengths.append(length)
        self._links.append(-1)
        self._top.append(-1)
        for column in (self._counts, self._followed, self._top_counts):
            column.append(0)
        return len(self._edges) - 1

    def _count(self, before: int, token: int) -> None:
        """The strings that end with a token occurred once more. before: the state of the text before it."""
        edges, links, counts, followed = self._edges, self._links, self._counts, self._followed
        top, top_counts = self._top, self._top_counts
        at, previous, count = before, -1, 0
        for _ in range(_MOST_LINKS):
            to = edges[at][token]
            if to != previous:
                count = counts[to] = counts[to] + 1
                previous = to
            followed[at] += 1
            if count >= top_counts[at]:
                top[at], top_counts[at] = token, count
            at = links[at]
            if at < 0:
                break
