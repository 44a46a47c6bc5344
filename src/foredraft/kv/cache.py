"""The paged KV cache: pages, prefix sharing, provisional rows, commit and rollback.

A sequence owns a list of pages; slot s of a sequence lies on page `pages[s // page_size]`. Slots below `length` are
committed and final. Rows of a pass write provisional slots from `length` on; `commit` keeps some of them, and what is
not kept is simply written over by the next pass: there is nothing to roll back.

        committed           provisional (this pass)
    [ 0 1 2 ... length-1 ][ last token | draft 0 | draft 1 | ... ]

Full committed pages are shared between sequences whose tokens agree from the start. A shared page is named by the page
before it and its own tokens, compared as they are (no hash stands in for them), so a hit is never wrong. What comes
before the first page is the sequence's scope: pages are never shared between scopes, so nobody can learn from a hit
what is in another's prompts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from foredraft.ops.base import LayerKV

PAGE_SIZE = 32  # slots; part of the numbers, since attention sums page by page

# The name of a page, or before the first page the scope.
Name = int | str


@dataclass(eq=False)
class SequenceKV:
    """One sequence's part of the cache. Owned by the cache; read by the batch builder.

    `tokens` are the committed tokens, one a slot. `parent` names the last full page's content: at first the scope.
    """

    parent: Name = ""
    pages: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.tokens)


class PagedKV:
    """Keys and values of every layer, float16, on `num_pages` pages of `page_size` slots, allocated once.

    Not thread-safe: used by the engine's thread alone.
    """

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        num_pages: int,
        page_size: int = PAGE_SIZE,
        share_prefixes: bool = True,
    ) -> None:
        self.page_size = page_size
        self.num_pages = num_pages
        self.layers = [
            LayerKV(
                keys=np.zeros((num_pages, num_kv_heads, head_dim, page_size), np.float16),
                values=np.zeros((num_pages, num_kv_heads, page_size, head_dim), np.float16),
            )
            for _ in range(num_layers)
        ]
        self._share_prefixes = share_prefixes
        self._free = list(range(num_pages - 1, -1, -1))
        self._users = [0] * num_pages
        self._names: dict[tuple[Name, tuple[int, ...]], tuple[int, int]] = {}  # (parent, tokens): (name, page)
        self._keys: dict[int, tuple[Name, tuple[int, ...]]] = {}  # page: its key in _names
        self._idle: OrderedDict[int, None] = OrderedDict()  # named pages without users, longest idle first
        self._next_name = 0

    @staticmethod
    def page_bytes(num_layers: int, num_kv_heads: int, head_dim: int, page_size: int = PAGE_SIZE) -> int:
        """Bytes of one page over all layers: keys and values, two bytes each."""
        return num_layers * 2 * num_kv_heads * head_dim * page_size * 2

    @property
    def num_available_pages(self) -> int:
        """Pages that nobody is using; idle prefixes count, for they are given up when needed."""
        return len(self._free) + len(self._idle)

    def open(self, tokens: Sequence[int], scope: str = "") -> SequenceKV:
        """A new sequence that starts with the longest prefix of `tokens` shared in this scope, whole pages only.

        At least one of `tokens` is left out, so that a pass over the rest yields logits.
        """
        sequence = SequenceKV(scope)
        if not self._share_prefixes:
            return sequence
        size = self.page_size
        for start in range(0, len(tokens) - size, size):
            page_tokens = tuple(tokens[start : start + size])
            named = self._names.get((sequence.parent, page_tokens))
            if named is None:
                break
            sequence.parent, page = named
            sequence.pages.append(self._use_named(page))
            sequence.tokens += page_tokens
        return sequence

    def reserve(self, sequence: SequenceKV, num_rows: int) -> bool:
        """Make room for `num_rows` provisional rows; False, and nothing changed, where pages are short."""
        missing = -(-(sequence.length + num_rows) // self.page_size) - len(sequence.pages)
        if missing > self.num_available_pages:
            return False
        for _ in range(missing):
            sequence.pages.append(self._take_page())
        return True

    def commit(self, sequence: SequenceKV, tokens: Sequence[int], rows: Sequence[int] | None = None) -> None:
        """Keep provisional rows, in this order, as the next committed slots; drop the others.

        `rows[i]` is the row (counted from `length`) that holds `tokens[i]`, ascending; None means 0, 1, 2, ...
        Rows of a chain stay where they are; rows of a tree's path are moved together.
        """
        start = sequence.length
        for i, row in enumerate(rows or ()):
            if row != i:
                self._copy_slot(sequence, start + row, start + i)
        sequence.tokens += tokens
        if self._share_prefixes:
            for page_index in range(start // self.page_size, sequence.length // self.page_size):
                self._name_page(sequence, page_index)

    def trim(self, sequence: SequenceKV, num_rows: int) -> None:
        """Give back pages that `num_rows` provisional rows do not need."""
        self._give_back(sequence, -(-(sequence.length + num_rows) // self.page_size))

    def close(self, sequence: SequenceKV) -> None:
        """Give back every page; the sequence is used no more. Shared prefixes stay until their memory is needed."""
        self._give_back(sequence, 0)
        sequence.tokens.clear()

    def _take_page(self) -> int:
        if not self._free:
            page, _ = self._idle.popitem(last=False)
            del self._names[self._keys.pop(page)]
            self._free.append(page)
        page = self._free.pop()
        self._users[page] = 1
        return page

    def _give_back(self, sequence: SequenceKV, keep: int) -> None:
        # From the end, so that a prefix outlives what follows it: a page is only ever found through the one before.
        while len(sequence.pages) > keep:
            page = sequence.pages.pop()
            self._users[page] -= 1
            if self._users[page] == 0:
                if page in self._keys:
                    self._idle[page] = None
                else:
                    self._free.append(page)

    def _name_page(self, sequence: SequenceKV, page_index: int) -> None:
        """Name a page that became full, or share the page of the same content that another sequence filled before."""
        start, own = page_index * self.page_size, sequence.pages[page_index]
        key = (sequence.parent, tuple(sequence.tokens[start : start + self.page_size]))
        if key not in self._names:
            self._names[key] = (self._next_name, own)
            self._keys[own] = key
            self._next_name += 1
        else:
            sequence.pages[page_index] = self._use_named(self._names[key][1])
            self._users[own] = 0
            self._free.append(own)
        sequence.parent = self._names[key][0]

    def _use_named(self, page: int) -> int:
        self._users[page] += 1
        self._idle.pop(page, None)
        return page

    def _copy_slot(self, sequence: SequenceKV, source: int, target: int) -> None:
        size = self.page_size
        source_page, source_offset = sequence.pages[source // size], source % size
        target_page, target_offset = sequence.pages[target // size], target % size
        for layer in self.layers:
            layer.keys[target_page, :, :, target_offset] = layer.keys[source_page, :, :, source_offset]
            layer.values[target_page, :, target_offset] = layer.values[source_page, :, source_offset]
