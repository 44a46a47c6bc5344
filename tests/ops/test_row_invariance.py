"""The promise that exactness rests on: a row's bits depend on its own token path alone (ops/base.py).

Every comparison here is of bits. Attention is also compared with the reference, so that invariance is not that of a
wrong result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_native import random_tensor

from foredraft import _native
from foredraft.core import FloatArray, IntArray
from foredraft.ops.base import AttentionSpec, Batch, LayerKV, Ops, TensorType
from foredraft.ops.native import NativeOps
from foredraft.ops.reference import ReferenceOps

ISAS = _native.available_isas()
KINDS = list(TensorType)


def bits(x: FloatArray) -> IntArray:
    return x.view(np.int32)


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FOREDRAFT_ISA", request.param)
    return str(request.param)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_products_do_not_depend_on_rows_threads_or_order(kind: TensorType) -> None:
    x = np.random.default_rng(0).standard_normal((70, 768)).astype(np.float32)
    norm = np.random.default_rng(1).standard_normal(768).astype(np.float32)
    tensor = random_tensor(kind, 50, 768)
    ops = NativeOps(threads=1)
    matrix = ops.matrix(tensor)
    alone = np.concatenate([ops.project(row[None], norm, 1e-6, [matrix])[0] for row in x])
    order = np.random.default_rng(2).permutation(len(x))
    for threads in (1, 2, 3):
        ops = NativeOps(threads)
        for rows in (2, 3, 4, 5, 6, 7, 8, 9, 13, 33, 70):
            np.testing.assert_array_equal(bits(ops.project(x[:rows], norm, 1e-6, [matrix])[0]), bits(alone[:rows]))
        np.testing.assert_array_equal(bits(ops.project(x[order], norm, 1e-6, [matrix])[0]), bits(alone[order]))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("kind", [TensorType.Q4_K, TensorType.Q5_0, TensorType.BF16], ids=lambda kind: kind.name)
@pytest.mark.parametrize("has_norm", [False, True])
def test_layers_do_not_depend_on_rows_or_threads(kind: TensorType, has_norm: bool) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal((37, width)).astype(np.float32) for width in (256, 512))
    norm = rng.standard_normal(256).astype(np.float32)
    post = norm if has_norm else None

    def run(threads: int, rows: slice) -> FloatArray:
        ops = NativeOps(threads)
        gate, up, down = (ops.matrix(random_tensor(kind, *shape)) for shape in ((512, 256), (512, 256), (256, 512)))
        out = x[rows].copy()
        ops.feed_forward(out, norm, gate, up, down, "gelu", post, 1e-6)
        ops.accumulate(out, y[rows], down, post, 1e-6)
        return out

    alone = np.concatenate([run(1, slice(row, row + 1)) for row in range(len(x))])
    for threads, rows in ((1, 37), (2, 5), (3, 37)):
        np.testing.assert_array_equal(bits(run(threads, slice(0, rows))), bits(alone[:rows]))


@dataclass(frozen=True)
class Row:
    """One row of a sequence: its slot, the slots that it sees beyond the prefix, and which token (q, k, v) it is."""

    sequence: int
    slot: int
    prefix: int
    ancestors: tuple[int, ...]
    token: int

    @property
    def position(self) -> int:
        return self.prefix + len(self.ancestors) - 1


def chain(sequence: int, positions: range) -> list[Row]:
    return [Row(sequence, p, p, (p,), 1000 * sequence + p) for p in positions]


class Layer:
    """A layer's attention with a cache of its own, whose pages are laid out by `seed`. Unwritten pages hold rubbish."""

    def __init__(self, ops: Ops, spec: AttentionSpec, page_size: int, seed: int, num_pages: int = 48) -> None:
        rng = np.random.default_rng(seed)
        shape = (num_pages, spec.num_kv_heads, spec.head_dim, page_size)
        self.cache = LayerKV(
            np.full(shape, np.nan, np.float16), np.full((*shape[:2], *shape[:1:-1]), np.inf, np.float16)
        )
        self.page_tables = rng.permutation(num_pages).astype(np.int32).reshape(2, -1)
        self.ops, self.spec = ops, spec

    def attend(self, rows: Sequence[Row]) -> FloatArray:
        def ints(values: Sequence[int]) -> IntArray:
            return np.array(values, np.int32)

        batch = Batch(
            tokens=ints([0] * len(rows)),
            positions=ints([row.position for row in rows]),
            sequences=ints([row.sequence for row in rows]),
            slots=ints([row.slot for row in rows]),
            prefixes=ints([row.prefix for row in rows]),
            ancestors=ints([slot for row in rows for slot in row.ancestors]),
            ancestor_offsets=ints([0, *np.cumsum([len(row.ancestors) for row in rows])]),
            page_tables=self.page_tables,
            wanted=ints([]),
        )
        inputs = [self.inputs(row.token) for row in rows]
        q, k, v = (np.concatenate([row[i] for row in inputs]) for i in range(3))
        return self.ops.attend(q, k, v, self.spec, self.cache, batch)

    def inputs(self, token: int) -> tuple[FloatArray, ...]:
        rng = np.random.default_rng(token)
        heads = (self.spec.num_heads, self.spec.num_kv_heads, self.spec.num_kv_heads)
        return tuple(rng.standard_normal((1, count * self.spec.head_dim)).astype(np.float32) for count in heads)


def make_spec(
    heads: int, kv_heads: int, dim: int, interleaved: bool = False, window: int = 0, norms: bool = False
) -> AttentionSpec:
    norm = np.random.default_rng(9).uniform(0.5, 2, dim).astype(np.float32) if norms else None
    frequencies = (10000.0 ** (-2 * np.arange(dim // 2) / dim)).astype(np.float32)
    return AttentionSpec(heads, kv_heads, dim, dim**-0.5, frequencies, interleaved, window, norm, norm)


SPECS = [
    (make_spec(6, 2, 64), 16),
    (make_spec(9, 3, 64, interleaved=True), 32),
    (make_spec(4, 1, 32, window=20, norms=True), 16),
    (make_spec(2, 2, 24, window=7), 16),
    (make_spec(4, 2, 16), 4),
    (make_spec(3, 1, 10, interleaved=True, norms=True), 5),
]


def one_by_one(layer: Layer, rows: Sequence[Row]) -> FloatArray:
    return np.concatenate([layer.attend([row]) for row in rows])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("spec", "page_size"), SPECS)
def test_attention_equals_the_reference(spec: AttentionSpec, page_size: int) -> None:
    """Keys and values are the same halves (up to one in the last place), so only the order of sums differs."""
    rows = chain(0, range(4 * page_size + 3)) + chain(1, range(page_size))
    native, reference = (Layer(ops, spec, page_size, seed=1) for ops in (NativeOps(2), ReferenceOps()))
    np.testing.assert_allclose(native.attend(rows), reference.attend(rows), atol=1e-3)
    n = 4 * page_size + 3
    tree = [
        Row(0, n, n, (n,), 1),
        Row(0, n + 2, n, (n, n + 2), 2),
        Row(0, n + 1, n, (n, n + 1), 3),
        Row(0, n + 4, n, (n, n + 1, n + 4), 4),
    ]
    np.testing.assert_allclose(native.attend(tree), reference.attend(tree), atol=1e-3)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("spec", "page_size"), SPECS)
def test_prefill_equals_one_row_at_a_time_on_other_pages(spec: AttentionSpec, page_size: int) -> None:
    rows = chain(0, range(4 * page_size + 3))
    alone = one_by_one(Layer(NativeOps(1), spec, page_size, seed=1), rows)
    for threads in (1, 2, 3):
        whole = Layer(NativeOps(threads), spec, page_size, seed=2).attend(rows)
        np.testing.assert_array_equal(bits(whole), bits(alone))
    layer = Layer(NativeOps(2), spec, page_size, seed=3)
    parts = [layer.attend(rows[begin:end]) for begin, end in ((0, 2), (2, 9), (9, len(rows)))]
    np.testing.assert_array_equal(bits(np.concatenate(parts)), bits(alone))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("spec", "page_size"), SPECS)
def test_other_sequences_and_order_do_not_matter(spec: AttentionSpec, page_size: int) -> None:
    first, second = chain(0, range(2 * page_size + 1)), chain(1, range(page_size + 2))
    alone = one_by_one(Layer(NativeOps(1), spec, page_size, seed=1), first + second)
    order = np.random.default_rng(4).permutation(len(alone))
    mixed = Layer(NativeOps(2), spec, page_size, seed=2).attend([(first + second)[i] for i in order])
    np.testing.assert_array_equal(bits(mixed), bits(alone[order]))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("spec", "page_size"), SPECS)
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_tree_rows_equal_the_chain_of_their_path(spec: AttentionSpec, page_size: int, data: st.DataObject) -> None:
    """Any tree on any slots: each node's row has the bits of plain decoding along its path."""
    committed = data.draw(st.integers(0, 3 * page_size), "committed")
    parents = [data.draw(st.integers(-1, node - 1), "parent") for node in range(data.draw(st.integers(1, 12), "nodes"))]
    slots = data.draw(st.permutations(range(committed, committed + len(parents))), "slots")
    paths: list[tuple[int, ...]] = []
    for node, parent in enumerate(parents):
        paths.append((*paths[parent], node) if parent >= 0 else (node,))
    tree = [Row(0, slots[n], committed, tuple(slots[i] for i in path), 500 + n) for n, path in enumerate(paths)]
    prefix = chain(0, range(committed))
    layer = Layer(NativeOps(2), spec, page_size, seed=1)
    if prefix:
        layer.attend(prefix)
    drawn = data.draw(st.permutations(range(len(tree))), "order")
    together = layer.attend([tree[i] for i in drawn])
    deepest = max(range(len(tree)), key=lambda n: len(paths[n]))
    for node in (0, deepest):
        plain = Layer(NativeOps(1), spec, page_size, seed=5)
        steps = [
            Row(0, committed + depth, committed + depth, (committed + depth,), 500 + n)
            for depth, n in enumerate(paths[node])
        ]
        expected = plain.attend(prefix + steps)
        np.testing.assert_array_equal(bits(together[drawn.index(node)]), bits(expected[-1]))


@pytest.mark.usefixtures("isa")
def test_scores_of_minus_infinity_weigh_nothing() -> None:
    """Even where a whole first page has no other: the row's answer is that of the later pages."""
    spec = AttentionSpec(2, 1, 16, 0.25, np.zeros(8, np.float32), False, 0, None, None)
    rows = chain(0, range(7))
    layers = [Layer(ops, spec, 4, seed=1) for ops in (NativeOps(1), ReferenceOps())]
    for layer in layers:
        values = layer.inputs

        def inputs(token: int, values: Callable[[int], tuple[FloatArray, ...]] = values) -> tuple[FloatArray, ...]:
            q, k, v = values(token)
            return np.full_like(q, 1e38 if token == 6 else 1), np.full_like(k, -1000 if token < 4 else 0), v

        layer.inputs = inputs  # type: ignore[method-assign]
    with np.errstate(over="ignore"):
        native, reference = (layer.attend(rows) for layer in layers)
    assert np.isfinite(reference).all()
    np.testing.assert_allclose(native, reference, atol=1e-3)


@pytest.mark.usefixtures("isa")
def test_a_row_that_is_not_finite_leaves_the_others_alone() -> None:
    """A later row's infinite value lies on the same page as what earlier rows see."""
    spec, page_size = SPECS[0]
    rows = chain(0, range(20))
    clean = Layer(NativeOps(2), spec, page_size, seed=1).attend(rows)
    layer = Layer(NativeOps(2), spec, page_size, seed=1)
    plain_inputs = layer.inputs

    def inputs(token: int) -> tuple[FloatArray, ...]:
        q, k, v = plain_inputs(token)
        return (q, k, v * np.float32(1e30)) if token == 12 else (q, k, v)

    layer.inputs = inputs  # type: ignore[method-assign]
    with np.errstate(over="ignore"):
        poisoned = layer.attend(rows)
    np.testing.assert_array_equal(bits(poisoned[:12]), bits(clean[:12]))
    assert not np.isfinite(poisoned[12:]).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slots": [999]}, "slot 999 of row 0"),
        ({"slots": [-1]}, "negative"),
        ({"prefixes": [10_000_000]}, "not on a page"),
        ({"ancestors": [-5]}, "slot -5"),
        ({"sequences": [2]}, "no page table"),
        ({"ancestor_offsets": [0, 2]}, "ancestor_offsets"),
        ({"ancestor_offsets": [0]}, "ancestor_offsets"),
        ({"positions": []}, "one entry for each row"),
        ({"page_tables": [[48], [0]]}, "not on a page"),
        ({"page_tables": [[-1], [0]]}, "not on a page"),
    ],
)
def test_batches_that_reach_outside_the_cache_are_refused(change: dict[str, list[int]], message: str) -> None:
    spec, page_size = SPECS[0]
    layer = Layer(NativeOps(1), spec, page_size, seed=1)
    one = {"positions": [0], "sequences": [0], "slots": [0], "prefixes": [0], "ancestors": [0], "wanted": [0]}
    fields = {"tokens": [0], "ancestor_offsets": [0, 1], "page_tables": [[0], [1]], **one, **change}
    batch = Batch(**{name: np.array(value, np.int32) for name, value in fields.items()})
    q, k, v = layer.inputs(0)
    with pytest.raises(ValueError, match=message):
        layer.ops.attend(q, k, v, spec, layer.cache, batch)


def test_a_cache_of_another_shape_is_refused() -> None:
    spec, page_size = SPECS[0]
    other = replace(spec, num_kv_heads=3)
    layer = Layer(NativeOps(1), other, page_size, seed=1)
    layer.cache = Layer(NativeOps(1), spec, page_size, seed=1).cache
    with pytest.raises(ValueError, match="kv heads"):
        layer.attend(chain(0, range(3)))
