"""The reference operations against formulas written out densely, in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.errors import ModelError
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.ops.base import AttentionSpec, Tensor, TensorType
from foredraft.ops.reference import ReferenceOps, gelu, rms_norm, silu
from quantizers import make_tensor

OPS = ReferenceOps()
RNG = np.random.default_rng(0)
# Keys and values are kept in half precision: relative 2**-11, over sums of some ten terms of size 1.
HALF = {"rtol": 0, "atol": 6e-3}


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def matrix(weights: np.ndarray, bias: np.ndarray | None = None):
    return OPS.matrix(make_tensor("w", TensorType.F32, weights), bias)


def dense_rotation(x: np.ndarray, position: int, spec: AttentionSpec) -> np.ndarray:
    """One head's vector as complex numbers, each turned by its own angle."""
    half = spec.head_dim // 2
    pairs = [(2 * i, 2 * i + 1) if spec.is_interleaved else (i, i + half) for i in range(half)]
    out = x.astype(np.float64).copy()
    for (first, second), frequency in zip(pairs, spec.rope_frequencies, strict=True):
        turned = complex(x[first], x[second]) * np.exp(1j * position * float(frequency))
        out[first], out[second] = turned.real, turned.imag
    return out


def dense_attention(q, k, v, spec: AttentionSpec) -> np.ndarray:
    """The last position's attention over a whole path: q [heads, dim]; k, v [positions, kv heads, dim]."""
    group = spec.num_heads // spec.num_kv_heads
    out = []
    for head in range(spec.num_heads):

        def prepared(x: np.ndarray, norm: np.ndarray | None, position: int) -> np.ndarray:
            if norm is not None:
                x = x / np.sqrt(np.mean(x.astype(np.float64) ** 2) + spec.norm_eps) * norm
            return dense_rotation(x, position, spec)

        query = prepared(q[head], spec.q_norm, len(k) - 1)
        first = max(0, len(k) - spec.window) if spec.window else 0
        keys = [prepared(k[p, head // group], spec.k_norm, p) for p in range(first, len(k))]
        weights = np.exp([spec.scale * key @ query for key in keys])
        out.append((weights / weights.sum()) @ v[first:, head // group])
    return np.concatenate(out)


@st.composite
def specs(draw: st.DrawFn) -> AttentionSpec:
    kv_heads, dim = draw(st.sampled_from([1, 2])), draw(st.sampled_from([4, 8]))
    has_norms = draw(st.booleans())
    return AttentionSpec(
        num_heads=kv_heads * draw(st.sampled_from([1, 3])),
        num_kv_heads=kv_heads,
        head_dim=dim,
        scale=dim**-0.5,
        rope_frequencies=(100.0 ** (-np.arange(0, dim, 2) / dim)).astype(np.float32),
        is_interleaved=draw(st.booleans()),
        window=draw(st.sampled_from([0, 0, 1, 3, 50])),
        q_norm=normal(dim) if has_norms else None,
        k_norm=normal(dim) if has_norms else None,
    )


@settings(max_examples=30, deadline=None)
@given(specs(), st.data())
def test_attention_is_a_dense_softmax_over_each_rows_path(spec, data):
    """Two sequences, each with committed rows, then a tree in one pass; every row sees its own path only."""
    kv = PagedKV(1, spec.num_kv_heads, spec.head_dim, 32, 4, share_prefixes=False)
    sequences = [kv.open([0]) for _ in range(2)]
    paths: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = [[], []]

    def run(parents_of: list[list[int] | None], counts: list[int]) -> None:
        builder, places = BatchBuilder(), []
        for number, (parents, count) in enumerate(zip(parents_of, counts, strict=True)):
            assert kv.reserve(sequences[number], count)
            builder.add(sequences[number], [0] * count, parents=parents)
            places += [(number, row) for row in range(count)]
        q, k, v = (normal(len(places), heads, spec.head_dim) for heads in (spec.num_heads, *(spec.num_kv_heads,) * 2))
        flat = [x.reshape(len(places), -1).copy() for x in (q, k, v)]
        found = OPS.attend(*flat, spec, kv.layers[0], builder.build())
        for index, (number, row) in enumerate(places):
            path, node = [], row
            while node >= 0:
                path.insert(0, index - row + node)
                node = node - 1 if parents_of[number] is None else parents_of[number][node]
            rows = [*paths[number], *((q[i], k[i], v[i]) for i in path)]
            want = dense_attention(rows[-1][0], np.array([r[1] for r in rows]), np.array([r[2] for r in rows]), spec)
            np.testing.assert_allclose(found[index], want, **HALF)
        first = 0
        for number, count in enumerate(counts):
            if parents_of[number] is None:
                paths[number] += [(q[i], k[i], v[i]) for i in range(first, first + count)]
                kv.commit(sequences[number], [0] * count)
            first += count

    counts = [data.draw(st.integers(1, 6)) for _ in range(2)]
    run([None, None], counts)
    run([None, None], [1, 1])
    run([[data.draw(st.integers(-1, row - 1)) for row in range(5)], [-1, -1, 0]], [5, 3])


def test_projection_normalizes_multiplies_and_adds_biases():
    x, norm, first, second, bias = normal(3, 8), normal(8), normal(5, 8), normal(2, 8), normal(2)
    h = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + 1e-5) * norm
    before = x.copy()
    found = OPS.project(x, norm, 1e-5, [matrix(first), matrix(second, bias)])
    np.testing.assert_allclose(found[0], h @ first.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], h @ second.T + bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(OPS.project(x, None, 1e-5, [matrix(first)])[0], x @ first.T, rtol=1e-4, atol=1e-5)
    assert np.array_equal(x, before)


@pytest.mark.parametrize("has_post_norm", [False, True])
def test_results_are_added_to_the_stream(has_post_norm):
    x, y, weights, norm = normal(3, 6), normal(3, 4), normal(6, 4), normal(6) if has_post_norm else None
    product = y @ weights.T
    want = x + (product if norm is None else rms_norm(product, norm, 1e-6))
    OPS.accumulate(x, y, matrix(weights), norm, 1e-6)
    np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "function"), [("silu", silu), ("gelu", gelu)])
def test_feed_forward_is_gated(name, function):
    x, norm, post = normal(3, 6), normal(6), normal(6)
    gate, up, down = normal(7, 6), normal(7, 6), normal(6, 7)
    h = rms_norm(x, norm, 1e-6)
    want = x + rms_norm((function(h @ gate.T) * (h @ up.T)) @ down.T, post, 1e-6)
    OPS.feed_forward(x, norm, matrix(gate), matrix(up), matrix(down), name, post, 1e-6)
    np.testing.assert_allclose(x, want, rtol=1e-4, atol=1e-5)


def test_activations_by_their_formulas():
    x = np.array([-200, -3, -0.5, 0, 0.5, 3, 200], np.float32)
    wide = np.clip(x.astype(np.float64), -80, None)
    np.testing.assert_allclose(silu(x), x / (1 + np.exp(-wide)), rtol=1e-6, atol=1e-30)
    inner = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
    np.testing.assert_allclose(gelu(x), 0.5 * x * (1 + np.tanh(inner)), rtol=1e-4, atol=1e-7)
    assert silu(x).dtype == gelu(x).dtype == np.float32


def test_embeddings_are_rows_of_the_table():
    table = normal(9, 64)
    tensor = make_tensor("t", TensorType.F32, table)
    assert np.array_equal(OPS.embed(tensor, np.array([3, 0, 3], np.int32)), table[[3, 0, 3]])


def test_a_vector_is_no_matrix():
    with pytest.raises(ModelError, match="tensor w has shape"):
        OPS.matrix(Tensor("w", TensorType.F32, (4,), np.zeros(16, np.uint8)))
