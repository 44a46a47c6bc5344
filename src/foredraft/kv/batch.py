"""Collects the rows of one pass: prefill chunks, last tokens and drafts of many sequences, all alike."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from foredraft.kv.cache import SequenceKV
from foredraft.ops.base import Batch


class BatchBuilder:
    """Add each sequence's rows once, then `build`. Slots must be reserved before.

    Plain lists until the end: most passes have few rows, and an array costs more than a list of ten.
    """

    def __init__(self) -> None:
        self._sequences: list[SequenceKV] = []
        self._columns: dict[str, list[int]] = {name: [] for name in _COLUMNS}
        self._num_ancestors: list[int] = []
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
        slots: Sequence[int] = range(start, start + count)
        positions = prefixes = ancestors = slots
        lengths = [1] * count
        if parents is not None:
            paths = _paths(parents)
            lengths = [len(path) for path in paths]
            positions = [start + length - 1 for length in lengths]
            prefixes = [start] * count
            ancestors = [start + row for path in paths for row in path]
        columns = self._columns
        columns["tokens"].extend(tokens)
        columns["positions"].extend(positions)
        columns["sequences"].extend([len(self._sequences)] * count)
        columns["slots"].extend(slots)
        columns["prefixes"].extend(prefixes)
        columns["ancestors"].extend(ancestors)
        columns["wanted"].extend(self.num_rows + row for row in wanted)
        self._num_ancestors.extend(lengths)
        self._sequences.append(sequence)
        self.num_rows += count

    def build(self) -> Batch:
        tables = np.zeros((len(self._sequences), max(len(s.pages) for s in self._sequences)), np.int32)
        for table, sequence in zip(tables, self._sequences, strict=True):
            table[: len(sequence.pages)] = sequence.pages
        offsets = np.array([0, *accumulate(self._num_ancestors)], np.int32)
        columns = {name: np.array(values, np.int32) for name, values in self._columns.items()}
        return Batch(**columns, ancestor_offsets=offsets, page_tables=tables)


_COLUMNS = ("tokens", "positions", "sequences", "slots", "prefixes", "ancestors", "wanted")


def _paths(parents: Sequence[int]) -> list[list[int]]:
    """For each row the rows from the first below the committed tokens down to itself."""
    paths: list[list[int]] = []
    for row, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), row])
    return paths
