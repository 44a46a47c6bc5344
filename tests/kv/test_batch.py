"""Batches against a naive computation of every row's path."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV

PAGE_SIZE = 4


@st.composite
def parts(draw: st.DrawFn) -> tuple[int, int, int, list[int] | None, list[int]]:
    """Rows of one sequence: number committed, fed in earlier passes, and new; parents of the latter two (None for a
    chain), wanted rows. Trees begin with a chain, as behind a chunk of a prompt."""
    num_fed, count = draw(st.integers(0, 5)), draw(st.integers(1, 9))
    trunk = draw(st.integers(0, num_fed + count))
    rows = range(trunk, num_fed + count)
    parents = draw(st.none() | st.tuples(*(st.integers(-1, row - 1) for row in rows)).map(list))
    wanted = sorted(draw(st.sets(st.integers(0, count - 1))))
    whole = None if parents is None else [*range(-1, trunk - 1), *parents]
    return draw(st.integers(0, 10)), num_fed, count, whole, wanted


@given(st.lists(parts(), min_size=1, max_size=5))
def test_rows_see_their_own_path_and_nothing_else(given_parts):
    kv = PagedKV(1, 1, 2, 64, PAGE_SIZE, share_prefixes=False)
    builder, expected, wanted_rows = BatchBuilder(), [], []
    for number, (num_committed, num_fed, count, parents, wanted) in enumerate(given_parts):
        sequence = kv.open([0])
        assert kv.reserve(sequence, num_committed)
        kv.commit(sequence, [7] * num_committed)
        assert kv.reserve(sequence, num_fed + count)
        wanted_rows += [builder.num_rows + row for row in wanted]
        builder.add(sequence, range(100, 100 + count), wanted, parents, num_fed)
        for row in range(count):
            path, node = [], num_fed + row
            while node >= 0:
                path.insert(0, num_committed + node)
                node = node - 1 if parents is None else parents[node]
            slot = num_committed + num_fed + row
            expected.append((number, 100 + row, slot, [*range(num_committed), *path], sequence.pages))
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


def test_only_rows_behind_a_branch_list_their_path():
    kv = PagedKV(1, 1, 2, 40, PAGE_SIZE)
    sequence = kv.open([0])
    assert kv.reserve(sequence, 120)
    builder = BatchBuilder()
    builder.add(sequence, range(104), [], [*range(-1, 99), 99, 99, 101, 102])
    batch = builder.build()
    assert batch.prefixes.tolist() == [*range(100), 100, 100, 100, 100]
    assert np.diff(batch.ancestor_offsets).tolist() == [1] * 100 + [1, 1, 2, 3]
