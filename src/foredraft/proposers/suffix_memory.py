"""Past outputs that suffix decoding drafts from: a store for each tenant and pool, all within one bound of memory.

A store has at most two generations of texts. New texts go to the young one; when that has grown to half of all memory
it becomes the old one, whose place it takes. Where memory is short, the generation of any store that was used least
recently goes. Text that is still being written again is thereby added again to the young generation, so what goes is
what nobody writes any more, and nothing ever has to be taken out of an index.

Nothing passes from one store to another: who drafts from a store can learn what is in it.
"""

from __future__ import annotations

import logging
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

from foredraft.errors import ConfigError, StoreError
from foredraft.proposers.suffix_file import FILE, Text, read, write
from foredraft.proposers.suffix_index import SuffixIndex

log = logging.getLogger("foredraft")
DEFAULT_BYTES = 64 << 20
LEAST_BYTES = 1 << 20

_GENERATION_BYTES, _TEXT_BYTES = 4096, 256  # of what is around an index, and around a text
_LONGEST = 2048  # bytes of memory for each token of a text, of which longer ones are cut
_REPEATS = 2  # how often a text is indexed again that was written so often or more before a restart
_SAVE_S = 60.0  # seconds between two saves while texts are added


class Key(NamedTuple):
    """Whose texts, of which pool."""

    scope: str
    pool: str


@dataclass(eq=False)
class Generation:
    """Texts by their tokens' bytes, with how often each was added. `used` tells when, in uses of the memory."""

    key: Key
    number: int
    index: SuffixIndex = field(default_factory=SuffixIndex)
    texts: dict[bytes, int] = field(default_factory=dict)
    num_text_bytes: int = 0
    used: int = 0

    @property
    def num_bytes(self) -> int:
        return _GENERATION_BYTES + self.index.num_bytes + self.num_text_bytes


@dataclass(eq=False)
class Store:
    """One tenant's texts of one pool, the young generation last. num_hits: drafts out of it of which a token or more
    was accepted; num_accepted: those tokens."""

    generations: list[Generation] = field(default_factory=list)
    num_hits: int = 0
    num_accepted: int = 0


@dataclass(frozen=True)
class StoreReport:
    """How a store stands; see Store. Texts that both generations have count twice."""

    key: Key
    num_texts: int
    num_bytes: int
    num_hits: int
    num_accepted: int

    @property
    def scope(self) -> str:
        return self.key.scope

    @property
    def pool(self) -> str:
        return self.key.pool


class SuffixMemory:
    """All stores of a server. Used by the engine's thread alone, but for its figures.

    max_bytes: of all stores together, never exceeded.

    Raises:
        ConfigError: max_bytes is too small.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        if max_bytes < LEAST_BYTES:
            raise ConfigError(f"suffix_memory is {max_bytes} bytes; allowed is {LEAST_BYTES} (1 MiB) or more")
        self.max_bytes, self.num_bytes = max_bytes, 0
        self.stores: dict[Key, Store] = {}
        self.num_hits: Counter[str] = Counter()  # by pool, of all stores that ever were
        self.num_accepted: Counter[str] = Counter()
        self._numbers, self._uses = count(), count(1)
        self._path: Path | None = None
        self._fingerprint, self._clock = "", clock
        self._saved_at, self._has_news = clock(), False
        self._saver: threading.Thread | None = None

    def keep(self, directory: Path, fingerprint: str) -> None:
        """Take in the texts of a directory's file, and keep all texts there from now on.

        fingerprint: of the tokenizer whose tokens these are. A file that cannot be read, or that is another
        tokenizer's, is left alone: nothing is kept then, and a warning says so.
        """
        path = directory / FILE
        try:
            for text in read(path, fingerprint):
                for _ in range(min(text.repeats, _REPEATS)):
                    self._add(Key(text.scope, text.pool), array("i", text.tokens))
        except StoreError as error:
            log.warning("past outputs are neither used nor kept: %s", error)
            return
        self._path, self._fingerprint = path, fingerprint

    def report(self) -> list[StoreReport]:
        """Of all stores. From any thread."""
        return [
            StoreReport(
                key,
                sum(len(generation.texts) for generation in list(store.generations)),
                sum(generation.num_bytes for generation in list(store.generations)),
                store.num_hits,
                store.num_accepted,
            )
            for key, store in list(self.stores.items())
        ]

    def generations(self, key: Key) -> Sequence[Generation]:
        """What may be drafted from; not to be changed."""
        store = self.stores.get(key)
        return store.generations if store else ()

    def hit(self, key: Key, number: int, num_accepted: int) -> None:
        """Of a draft out of a generation this many tokens were accepted, one or more."""
        store = self.stores.get(key)
        if store is None:
            return
        store.num_hits += 1
        store.num_accepted += num_accepted
        self.num_hits[key.pool] += 1
        self.num_accepted[key.pool] += num_accepted
        for generation in store.generations:
            if generation.number == number:
                generation.used = next(self._uses)

    def add(self, key: Key, tokens: Sequence[int]) -> None:
        """Remember a text."""
        self._add(key, array("i", tokens))
        self._has_news = True
        if self._path and self._clock() - self._saved_at >= _SAVE_S:
            self._join()
            self._has_news, self._saved_at = False, self._clock()
            self._saver = threading.Thread(target=self._save, args=(self._path, self._texts()), name="suffixes")
            self._saver.start()

    def clear(self, keys: Sequence[Key]) -> None:
        """Forget the texts of these stores, in the file as well.

        Raises:
            StoreError: the file cannot be written, and still holds them.
        """
        for key in keys:
            if key in self.stores:
                for generation in self.stores[key].generations[:]:
                    self._drop(generation)
        self._join()
        if self._path:
            write(self._path, self._fingerprint, self._texts())

    def close(self) -> None:
        """Save what came since the last save."""
        self._join()
        if self._path and self._has_news:
            self._has_news = False
            self._save(self._path, self._texts())

    def _add(self, key: Key, text: array[int]) -> None:
        text = text[: self.max_bytes // _LONGEST]
        content = text.tobytes()
        young = self._begin(key) if key not in self.stores else self.stores[key].generations[-1]
        young.index.begin()
        for token in text:
            young = self._with_room(young, _TEXT_BYTES + len(content))
            before = young.num_bytes
            young.index.append(token)
            self.num_bytes += young.num_bytes - before
        if content not in young.texts:
            young.num_text_bytes += _TEXT_BYTES + len(content)
            self.num_bytes += _TEXT_BYTES + len(content)
        young.texts[content] = young.texts.get(content, 0) + 1
        young.used = next(self._uses)

    def _begin(self, key: Key) -> Generation:
        """A store gets a new young generation."""
        young = Generation(key, next(self._numbers), used=next(self._uses))
        self.stores.setdefault(key, Store()).generations.append(young)
        self.num_bytes += young.num_bytes
        return young

    def _with_room(self, young: Generation, num_bytes: int) -> Generation:
        """A generation that may grow by so many bytes and another token: this one, or the next of its store."""
        num_bytes += young.index.most_growth
        if young.num_bytes + num_bytes > self.max_bytes // 2:
            for old in self.generations(young.key)[:-1]:
                self._drop(old)
            young = self._begin(young.key)
        if self.num_bytes + num_bytes > self.max_bytes:
            others = (each for each in self._by_use() if each is not young)
            while self.num_bytes + num_bytes > self.max_bytes:
                self._drop(next(others))
        return young

    def _drop(self, generation: Generation) -> None:
        store = self.stores[generation.key]
        store.generations.remove(generation)
        self.num_bytes -= generation.num_bytes
        if not store.generations:
            del self.stores[generation.key]

    def _by_use(self) -> list[Generation]:
        """All generations, the one used least recently first."""
        generations = (each for store in self.stores.values() for each in store.generations)
        return sorted(generations, key=lambda each: each.used)

    def _texts(self) -> list[Text]:
        """All texts, those used least recently first."""
        return [Text(*g.key, tokens, repeats) for g in self._by_use() for tokens, repeats in g.texts.items()]

    def _save(self, path: Path, texts: Sequence[Text]) -> None:
        try:
            write(path, self._fingerprint, texts)
        except StoreError as error:
            log.warning("past outputs are not kept: %s", error)

    def _join(self) -> None:
        if self._saver:
            self._saver.join()
            self._saver = None
