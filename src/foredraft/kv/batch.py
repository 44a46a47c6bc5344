"""Collects the rows of one pass: prefill chunks, last tokens and drafts of many sequences, all alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foredraft.core import IntArray
from foredraft.kv.cache import SequenceKV
from foredraft.ops.base import Batch


class BatchBuilder:
    """Add each sequence's rows once, then `build`. Slots must be reserved before."""

    def __init__(self) -> None:
        self._sequences: list[SequenceKV] = []
        self._parts: dict[str, list[IntArray]] = {name: [] for name in _ROW_FIELDS}
        self._num_ancestors: list[IntArray] = []
        self._wanted: list[IntArray] = []
        self.num_rows = 0

    def add(
        self,
        sequence: SequenceKV,
        tokens: Sequence[int],
        wanted: Sequence[int] = (),
        parents: Sequence[int] | None = None,
        num_fed: int = 0,
    ) -> None:
        """Rows that follow a sequence's committed tokens.

        parents[i] is the row (counted from this sequence's first) before row i, -1 for the committed tokens; None
        means a chain. `wanted` are the rows, counted likewise and ascending, whose logits are wanted. A chain may go on
        after `num_fed` provisional rows of earlier passes.
        """
        count, start = len(tokens), sequence.length + num_fed
        rows = np.arange(count, dtype=np.int32)
        if parents is None:
            depths, prefixes = rows, start + rows
            ancestors, num_ancestors = start + rows, np.ones(count, np.int32)
        else:
            paths = _paths(parents)
            depths = np.array([len(path) - 1 for path in paths], np.int32)
            prefixes = np.full(count, start, np.int32)
            ancestors = start + np.array([row for path in paths for row in path], np.int32)
            num_ancestors = depths + np.int32(1)
        self._parts["tokens"].append(np.array(tokens, np.int32))
        self._parts["positions"].append(start + depths)
        self._parts["sequences"].append(np.full(count, len(self._sequences), np.int32))
        self._parts["slots"].append(start + rows)
        self._parts["prefixes"].append(prefixes)
        self._parts["ancestors"].append(ancestors)
        self._num_ancestors.append(num_ancestors)
        self._wanted.append(np.array(wanted, np.int32) + np.int32(self.num_rows))
        self._sequences.append(sequence)
        self.num_rows += count

    def build(self) -> Batch:
        tables = np.zeros((len(self._sequences), max(len(s.pages) for s in self._sequences)), np.int32)
        for table, sequence in zip(tables, self._sequences, strict=True):
            table[: len(sequence.pages)] = sequence.pages
        offsets = np.zeros(self.num_rows + 1, np.int32)
        np.cumsum(np.concatenate(self._num_ancestors), out=offsets[1:])
        columns = {name: np.concatenate(parts, dtype=np.int32) for name, parts in self._parts.items()}
        return Batch(
            **columns, ancestor_offsets=offsets, page_tables=tables, wanted=np.concatenate(self._wanted, dtype=np.int32)
        )


_ROW_FIELDS = ("tokens", "positions", "sequences", "slots", "prefixes", "ancestors")


def _paths(parents: Sequence[int]) -> list[list[int]]:
    """For each row the rows from the first below the committed tokens down to itself."""
    paths: list[list[int]] = []
    for row, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), row])
    return paths
