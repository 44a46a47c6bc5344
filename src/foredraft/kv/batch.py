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
        """Rows that follow a sequence's committed tokens and `num_fed` provisional rows of earlier passes.

        parents: for each provisional row, those of earlier passes first, the provisional row before it, -1 for the
        committed tokens; None means that all of them are one chain. `wanted` are the rows whose logits are wanted,
        counted from the first of these, ascending.
        """
        count, start = len(tokens), sequence.length + num_fed
        slots: Sequence[int] = range(start, start + count)
        positions = prefixes = ancestors = slots
        lengths = [1] * count
        if parents is not None:
            seen = _seen(sequence.length, parents)[num_fed:]
            lengths = [len(path) for _, path in seen]
            positions = [prefix + len(path) - 1 for prefix, path in seen]
            prefixes = [prefix for prefix, _ in seen]
            ancestors = [slot for _, path in seen for slot in path]
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


def _seen(length: int, parents: Sequence[int]) -> list[tuple[int, list[int]]]:
    """What each provisional row sees: slots below a prefix, and then those of its own path, with itself as the last.

    As long as slots follow each other the prefix takes them in, so that only rows behind a branch have a path to list:
    a tree behind a long chunk of a prompt costs no more than behind a short one.
    """
    seen: list[tuple[int, list[int]]] = []
    for row, parent in enumerate(parents):
        prefix, path = seen[parent] if parent >= 0 else (length, [])
        if path == [prefix]:
            prefix, path = prefix + 1, []
        seen.append((prefix, [*path, length + row]))
    return seen
