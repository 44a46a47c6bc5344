"""Training data as batches: the same ones in the same order every time, so that a run can go on where it ended."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foredraft.core import IntArray
from foredraft.errors import ConfigError
from foredraft.train.shards import Document, read_meta, read_shard, shards

HELD_OUT = 20  # one prompt in so many is never trained on
LEAST_ANSWER = 8  # shorter answers are left out


@dataclass(frozen=True)
class Batch:
    """Documents that are worked on together."""

    documents: tuple[Document, ...]

    @property
    def num_answer_tokens(self) -> int:
        return sum(document.num_answer_tokens for document in self.documents)

    @property
    def num_tokens(self) -> int:
        return sum(len(document.tokens) for document in self.documents)


@dataclass(frozen=True)
class Size:
    """How much there is to train on, in one epoch."""

    num_documents: int
    num_tokens: int
    num_answer_tokens: int


class Reader:
    """The documents of a folder's shards; those that are added later are not seen.

    paths: which shards, to go on with a run that began with fewer. batch_tokens: answer tokens of a batch, at least.
    """

    def __init__(self, folder: Path, batch_tokens: int, seed: int, paths: list[str] | None = None) -> None:
        self.meta = read_meta(folder)
        self._paths = shards(folder) if paths is None else [folder / name for name in paths]
        self._batch_tokens, self._seed = batch_tokens, seed
        self.counts = np.zeros(self.meta.vocab_size, np.int64)  # how often each token is written, held out ones too
        self.held_out: list[Document] = []
        self.origins: Counter[str] = Counter()  # whose texts are in the prompts, and their licenses
        documents: Counter[str] = Counter()
        for path in self._paths:
            for document in _usable(path):
                self.counts += np.bincount(document.tokens[document.prompt_len :], minlength=self.meta.vocab_size)
                if is_held_out(document):
                    self.held_out.append(document)
                    continue
                self.origins[document.origin] += 1
                documents.update(documents=1, tokens=len(document.tokens), answer_tokens=document.num_answer_tokens)
        self.size = Size(documents["documents"], documents["tokens"], documents["answer_tokens"])
        if not self.size.num_documents or not self.held_out:
            raise ConfigError(f"{folder} holds too little data ({self.size.num_documents} answers); make more")

    @property
    def paths(self) -> list[str]:
        return [path.name for path in self._paths]

    def most_frequent(self, count: int) -> IntArray:
        """The tokens that are written most often, in ascending order; ties by number."""
        order = np.argsort(-self.counts, kind="stable")[:count]
        return np.sort(order).astype(np.int32)

    def epoch(self, number: int) -> Iterator[Batch]:
        """All batches of an epoch, in its own order. One shard is in memory at a time."""
        rng = random.Random(f"{self._seed} {number}")
        waiting: list[Document] = []
        for path in rng.sample(self._paths, len(self._paths)):
            documents = [document for document in _usable(path) if not is_held_out(document)]
            rng.shuffle(documents)
            for document in documents:
                waiting.append(document)
                if sum(each.num_answer_tokens for each in waiting) >= self._batch_tokens:
                    yield Batch(tuple(waiting))
                    waiting = []
        if waiting:
            yield Batch(tuple(waiting))

    def validation(self, most_tokens: int) -> list[Batch]:
        """Held-out documents that were written greedily, of up to so many answer tokens: there the token written is
        the target's most likely one."""
        chosen: list[Batch] = []
        for document in self.held_out:
            if document.temperature == 0:
                chosen.append(Batch((document,)))
                if sum(batch.num_answer_tokens for batch in chosen) >= most_tokens:
                    break
        return chosen


def is_held_out(document: Document) -> bool:
    return document.prompt % HELD_OUT == HELD_OUT // 2


def _usable(path: Path) -> Iterator[Document]:
    return (document for document in read_shard(path) if document.num_answer_tokens >= LEAST_ANSWER)
