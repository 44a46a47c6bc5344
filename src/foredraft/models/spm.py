"""SentencePiece-style byte-pair encoding: of two neighbors, the pair that makes the best-scored token merges first.

The rule is that of SentencePiece's BPE model (Kudo and Richardson 2018) as llama.cpp runs it: characters first, ties go
to the left, and a character that is no token becomes its UTF-8 bytes as byte tokens.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

SPACE = "\u2581"  # stands for a space inside tokens

_CACHED_WORD_LEN = 48
_CACHED_WORDS = 1 << 16


class SpmEncoder:
    """Encodes text whose spaces are already written as `SPACE`. Immutable apart from a cache of words.

    pieces: string -> (-score, id) of the tokens that text may become. byte_ids: the token of each byte, [256].
    """

    def __init__(self, pieces: Mapping[str, tuple[float, int]], byte_ids: Sequence[int]) -> None:
        self._pieces = pieces
        self._byte_ids = byte_ids
        self._boundary = _word_boundary(pieces)
        self._cached_word = lru_cache(maxsize=_CACHED_WORDS)(self._encode_word)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`. Time grows as n log n in the longest word and linearly in the number of words."""
        ids: list[int] = []
        for word in self._boundary.split(text):
            ids += self._cached_word(word) if len(word) <= _CACHED_WORD_LEN else self._encode_word(word)
        return ids

    def _encode_word(self, word: str) -> list[int]:
        ids: list[int] = []
        for piece in self._merge(word):
            known = self._pieces.get(piece)
            if known is not None:
                ids.append(known[1])
            else:
                ids += [self._byte_ids[byte] for byte in piece.encode()]
        return ids

    def _merge(self, word: str) -> list[str]:
        """Symbols are spans [start, end) of `word`, named by their start; `end[start]` is also the next symbol."""
        num_chars = len(word)
        pieces = self._pieces
        end = list(range(1, num_chars + 1))
        previous = list(range(-1, num_chars - 1))
        heap: list[tuple[float, int, int, int]] = []  # (-score, left, right, end of right)

        def offer(left: int, right: int) -> None:
            known = pieces.get(word[left : end[right]])
            if known is not None:
                heapq.heappush(heap, (known[0], left, right, end[right]))

        for left in range(num_chars - 1):
            offer(left, left + 1)
        while heap:
            _, left, right, stop = heapq.heappop(heap)
            # An entry is stale once either symbol grew or was absorbed (absorbed symbols end before they start).
            if end[left] != right or end[right] != stop:
                continue
            end[left], end[right] = stop, -1
            if stop < num_chars:
                previous[stop] = left
                offer(left, stop)
            if previous[left] >= 0:
                offer(previous[left], left)
        symbols: list[str] = []
        start = 0
        while start < num_chars:
            symbols.append(word[start : end[start]])
            start = end[start]
        return symbols


def _word_boundary(pieces: Mapping[str, tuple[float, int]]) -> re.Pattern[str]:
    """Where no token can cross: before a space whose preceding character comes before a space in no token.

    Cutting there changes no result, because merges on the two sides never compete, and lets words be cached.
    """
    inside = {pair[0] for pair in re.findall(f"[^{SPACE}\0]{SPACE}", "\0".join(pieces))}
    crossing = "".join(re.escape(char) for char in sorted(inside | {SPACE, "\0"}))
    return re.compile(f"(?<=[^{crossing}])(?={SPACE})")
