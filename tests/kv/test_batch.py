"""Batches against a naive computation of every row's path."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV

PAGE_SIZE = 4


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[int], list[int] | None, list[int], int]:
    """Rows of one sequence: number committed, parents (None for a chain), wanted rows, provisional rows before."""
    count = draw(st.integers(1, 9))
    parents = draw(st.none() | st.tuples(*(st.integers(-1, row - 1) for row in range(count))).map(list))
    wanted = sorted(draw(st.sets(st.integers(0, count - 1))))
    num_fed = draw(st.integers(0, 3)) if parents is None else 0
    return draw(st.integers(0, 10)), count, parents, wanted, num_fed


@given(st.lists(parts(), min_size=1, max_size=5))
def test_rows_see_their_own_path_and_nothing_else(given_parts):
    kv = PagedKV(1, 1, 2, 64, PAGE_SIZE, share_prefixes=False)
    builder, expected, wanted_rows = BatchBuilder(), [], []
    for number, (num_committed, count, parents, wanted, num_fed) in enumerate(given_parts):
        sequence = kv.open([0])
        assert kv.reserve(sequence, num_committed)
        kv.commit(sequence, [7] * num_committed)
        assert kv.reserve(sequence, num_fed + count)
        wanted_rows += [builder.num_rows + row for row in wanted]
        builder.add(sequence, range(100, 100 + count), wanted, parents, num_fed)
        start = num_committed + num_fed
        for row in range(count):
            path, node = [], row
            while node >= 0:
                path.insert(0, start + node)
                node = node - 1 if parents is None else parents[node]
            expected.append((number, 100 + row, start + row, [*range(start), *path], sequence.pages))
    batch = builder.build()
    assert builder.num_rows == len(batch.tokens) == len(expected)
    assert batch.wanted.tolist() == wanted_rows
    for row, (number, token, slot, path, pages) in enumerate(expected):
        own = batch.ancestors[batch.ancestor_offsets[row] : batch.ancestor_offsets[row + 1]].tolist()
        assert [*range(batch.prefixes[row]), *own] == path
        assert own[-1] == slot == batch.slots[row]
        assert (batch.sequences[row], batch.tokens[row]) == (number, token)
        assert batch.positions[row] == len(path) - 1
        assert batch.page_tables[number, : len(pages)].tolist() == pages
    assert {array.dtype for array in vars(batch).values()} == {np.dtype(np.int32)}


def test_a_chain_given_by_parents_sees_what_a_chain_sees():
    kv = PagedKV(1, 1, 2, 8, PAGE_SIZE)
    sequence = kv.open([0])
    assert kv.reserve(sequence, 8)
    kv.commit(sequence, [1, 2])
    seen = []
    for parents in (None, [-1, 0, 1]):
        builder = BatchBuilder()
        builder.add(sequence, [5, 6, 7], [2], parents)
        batch = builder.build()
        offsets = batch.ancestor_offsets
        rows = range(3)
        own = [batch.ancestors[offsets[row] : offsets[row + 1]].tolist() for row in rows]
        seen.append([[*range(batch.prefixes[row]), *own[row]] for row in rows])
        assert batch.positions.tolist() == [2, 3, 4]
    assert seen[0] == seen[1] == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
