"""The C++ kernels against plain numpy: the weights' arithmetic exactly, the rest by tolerances that are explained."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from foredraft import _native
from foredraft.core import FloatArray
from foredraft.errors import ConfigError, ModelError
from foredraft.ops.base import BLOCKS, AttentionSpec, LayerKV, Tensor, TensorType
from foredraft.ops.cores import available_cores
from foredraft.ops.native import NativeOps
from foredraft.ops.quants import LAYOUTS, dequantize
from foredraft.ops.reference import ReferenceOps
from quantizers import make_tensor

TYPES = list(TensorType)
FLOATS = (TensorType.F32, TensorType.F16, TensorType.BF16)
ISAS = _native.available_isas()


@pytest.fixture(params=ISAS)
def ops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> NativeOps:
    monkeypatch.setenv("FOREDRAFT_ISA", request.param)
    return NativeOps(threads=2)


def random_tensor(kind: TensorType, outputs: int, inputs: int, seed: int = 0) -> Tensor:
    """Random bytes, so that every bit of a block is used, with scales of ordinary size."""
    rng = np.random.default_rng(seed)
    if kind in FLOATS:
        return make_tensor("w", kind, rng.standard_normal((outputs, inputs)).astype(np.float32))
    length, size = BLOCKS[kind]
    data = rng.integers(0, 256, outputs * inputs // length * size, np.uint8)
    blocks = data.view(LAYOUTS[kind])
    for field in ("d", "m", "dmin"):
        if field in (LAYOUTS[kind].fields or {}):
            blocks[field] = rng.standard_normal(len(blocks)) * 0.01
    return Tensor("w", kind, (outputs, inputs), data)


def dense(tensor: Tensor) -> NDArray[np.float64]:
    return dequantize(tensor.type, tensor.data).reshape(tensor.shape).astype(np.float64)


def quantize_activations(kind: TensorType, x: FloatArray) -> NDArray[np.float64]:
    """What the kernels make of their input: int8 codes times the scale of each group of 32 or 256."""
    if kind in FLOATS:
        return x.astype(np.float64)
    group = 256 if BLOCKS[kind][0] == 256 else 32
    grouped = x.reshape(-1, group)
    largest = np.abs(grouped).max(axis=1, keepdims=True)
    factor = np.where(largest > 1e-30, np.float32(127) / np.maximum(largest, np.float32(1e-30)), np.float32(0))
    codes = np.rint(grouped * factor.astype(np.float32))
    return (codes * (largest / np.float32(127)).astype(np.float64)).reshape(x.shape)


def project(ops: NativeOps, tensor: Tensor, x: FloatArray, bias: FloatArray | None = None) -> FloatArray:
    return ops.project(x, None, 0.0, [ops.matrix(tensor, bias)])[0]


def check_product(kind: TensorType, tensor: Tensor, x: FloatArray, y: FloatArray) -> None:
    """Integer sums are exact and only group totals are rounded: far tighter than the quantization of activations."""
    weights = dense(tensor)
    exact = quantize_activations(kind, x) @ weights.T
    size = np.abs(x).astype(np.float64) @ np.abs(weights).T + np.abs(exact)
    # K-quants add up scale * code and minimum apart, each of which may be much larger than their difference.
    slack = 64 if kind.name.endswith("_K") or kind.name.endswith("_1") else 8
    np.testing.assert_array_less(np.abs(y - exact), slack * 2.0**-24 * np.sqrt(x.shape[1]) * size + 1e-30)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("blocks", [1, 3, 9])
@pytest.mark.parametrize("outputs", [1, 15, 17, 33])
def test_products_are_exact_up_to_rounding_of_sums(ops: NativeOps, kind: TensorType, outputs: int, blocks: int) -> None:
    tensor = random_tensor(kind, outputs, BLOCKS[kind][0] * blocks)
    x = np.random.default_rng(1).standard_normal((3, tensor.shape[1])).astype(np.float32)
    check_product(kind, tensor, x, project(ops, tensor, x))


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_any_number_of_rows(ops: NativeOps, kind: TensorType) -> None:
    tensor = random_tensor(kind, 19, 512)
    x = np.random.default_rng(2).standard_normal((40, 512)).astype(np.float32)
    matrix = ops.matrix(tensor)
    for rows in range(41):
        check_product(kind, tensor, x[:rows], ops.project(x[:rows], None, 0.0, [matrix])[0])


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("inputs", [1, 7, 77, 259])
def test_floats_take_any_number_of_inputs_and_rows(ops: NativeOps, kind: TensorType, inputs: int) -> None:
    tensor = random_tensor(kind, 21, inputs)
    x = np.random.default_rng(12).standard_normal((40, inputs)).astype(np.float32)
    matrix = ops.matrix(tensor)
    for rows in range(41):
        check_product(kind, tensor, x[:rows], ops.project(x[:rows], None, 0.0, [matrix])[0])


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_packed_matrices_are_hardly_larger_than_the_files(kind: TensorType) -> None:
    tensor = random_tensor(kind, 64, 1024)
    assert _native.Matrix(kind, *tensor.shape, tensor.data).num_bytes <= 1.03 * len(tensor.data)


def test_a_matrix_outlives_those_made_before_and_after(ops: NativeOps) -> None:
    tensors = [random_tensor(TensorType.Q5_K, 40, 512, seed) for seed in range(9)]
    x = np.random.default_rng(13).standard_normal((2, 512)).astype(np.float32)
    matrices = [ops.matrix(tensor) for tensor in tensors]
    wanted = ops.project(x, None, 0.0, matrices[4:5])[0]
    kept = matrices[4]
    del matrices
    for tensor in tensors:
        ops.matrix(tensor)
    np.testing.assert_array_equal(ops.project(x, None, 0.0, [kept])[0], wanted)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_embeddings_are_dequantized_rows_bit_for_bit(ops: NativeOps, kind: TensorType) -> None:
    table = random_tensor(kind, 30, 512)
    tokens = np.array([29, 0, 7, 7], np.int32)
    np.testing.assert_array_equal(ops.embed(table, tokens), ReferenceOps().embed(table, tokens))
    assert ops.embed(table, tokens[:0]).shape == (0, 512)


@pytest.mark.parametrize("token", [-1, 30])
def test_tokens_outside_the_table_are_refused(ops: NativeOps, token: int) -> None:
    with pytest.raises(ValueError, match=f"token {token} is not in the table"):
        ops.embed(random_tensor(TensorType.Q8_0, 30, 64), np.array([3, token], np.int32))


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in FLOATS], ids=lambda kind: kind.name)
def test_error_of_int8_activations_is_small(ops: NativeOps, kind: TensorType) -> None:
    """Rounding to 1/127 of the largest of a group adds noise of 1/127/sqrt(12) of it, independent per input."""
    tensor = random_tensor(kind, 64, 1024)
    x = np.random.default_rng(3).standard_normal((8, 1024)).astype(np.float32)
    weights = dense(tensor)
    noise = np.abs(x).max() / 127 / np.sqrt(12) * np.linalg.norm(weights, axis=1)
    assert (np.abs(project(ops, tensor, x) - x @ weights.T) < 5 * noise).all()


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("byte", [0x00, 0x80, 0xFF])
def test_extreme_codes_do_not_overflow(ops: NativeOps, kind: TensorType, byte: int, sign: int) -> None:
    """All codes at an end of their range, Q8_0's -128 among them, and all activations at +-127."""
    tensor = random_tensor(kind, 16, 512)
    if kind not in FLOATS:
        blocks = tensor.data.view(LAYOUTS[kind])
        for field in ("qs", "qh", "ql", "scales"):
            if field in (LAYOUTS[kind].fields or {}):
                blocks[field] = np.asarray(byte, np.uint8).view(blocks[field].dtype)
    x = np.full((5, 512), 3.0 * sign, np.float32)
    x[1, ::2] *= -1
    check_product(kind, tensor, x, project(ops, tensor, x))


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-20, 1e15])
def test_rows_of_any_size(ops: NativeOps, kind: TensorType, size: float) -> None:
    tensor = random_tensor(kind, 17, 512)
    x = (np.random.default_rng(4).standard_normal((2, 512)) * size).astype(np.float32)
    x[0] = 0
    y = project(ops, tensor, x)
    assert not y[0].any()
    check_product(kind, tensor, x, y)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_values_that_are_not_finite_poison_their_row_only(ops: NativeOps, kind: TensorType) -> None:
    tensor = random_tensor(kind, 17, 512)
    x = np.random.default_rng(5).standard_normal((4, 512)).astype(np.float32)
    clean = project(ops, tensor, x)
    x[1, 100], x[2, 300] = np.nan, np.inf
    y = project(ops, tensor, x)
    assert not np.isfinite(y[1:3]).any()
    np.testing.assert_array_equal(y[[0, 3]], clean[[0, 3]])


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_instruction_sets_agree(kind: TensorType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers are the same; floats differ by whether multiply-adds are fused."""
    tensor = random_tensor(kind, 33, 1024)
    x = np.random.default_rng(6).standard_normal((9, 1024)).astype(np.float32)
    results = []
    for isa in ISAS:
        monkeypatch.setenv("FOREDRAFT_ISA", isa)
        results.append(project(NativeOps(threads=1), tensor, x))
    size = np.abs(x).astype(np.float64) @ np.abs(dense(tensor)).T
    for result in results[1:]:
        assert (np.abs(result - results[0]) <= 1e-6 * size).all()


def test_matrices_of_mixed_types_share_an_input_with_norm_and_bias(ops: NativeOps) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((6, 256)).astype(np.float32)
    norm = rng.uniform(0.5, 1.5, 256).astype(np.float32)
    kinds = (TensorType.Q4_K, TensorType.Q5_0, TensorType.F16, TensorType.Q6_K)
    tensors = [random_tensor(kind, outputs, 256) for kind, outputs in zip(kinds, (33, 16, 1, 40), strict=True)]
    biases = [rng.standard_normal(33).astype(np.float32), None, np.ones(1, np.float32), None]
    reference = ReferenceOps()
    ours = ops.project(x, norm, 1e-6, [ops.matrix(*pair) for pair in zip(tensors, biases, strict=True)])
    theirs = reference.project(x, norm, 1e-6, [reference.matrix(*pair) for pair in zip(tensors, biases, strict=True)])
    for y, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(y, expected, atol=0.02 * np.abs(expected).max())  # int8 activations


@pytest.mark.parametrize("activation", ["silu", "gelu"])
@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 70])
def test_feed_forward_and_accumulate(ops: NativeOps, activation: str, has_norm: bool, rows: int) -> None:
    """With float weights nothing is quantized, so only the order of sums and the polynomial e^x differ."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((rows, 48)).astype(np.float32)
    norm, post = (rng.standard_normal(48).astype(np.float32) for _ in range(2))
    gate, up, down = (
        make_tensor(name, TensorType.F32, rng.standard_normal(shape).astype(np.float32))
        for name, shape in (("gate", (100, 48)), ("up", (100, 48)), ("down", (48, 100)))
    )
    y = rng.standard_normal((rows, 100)).astype(np.float32)
    results = []
    for op_set in (ops, ReferenceOps()):
        out = x.copy()
        g, u, d = (op_set.matrix(tensor) for tensor in (gate, up, down))
        op_set.feed_forward(out, norm, g, u, d, activation, post if has_norm else None, 1e-5)
        op_set.accumulate(out, y, d, post if has_norm else None, 1e-5)
        results.append(out)
    np.testing.assert_allclose(*results, rtol=2e-5, atol=2e-5 * np.abs(results[1]).max())


def test_wrong_arguments_are_refused(ops: NativeOps) -> None:
    matrix = ops.matrix(random_tensor(TensorType.Q4_0, 8, 64))
    x, norm = np.zeros((2, 64), np.float32), np.ones(64, np.float32)
    with pytest.raises(ValueError, match="x has shape"):
        ops.project(x[:, :32].copy(), None, 0.0, [matrix])
    with pytest.raises(ValueError, match="norm has 32"):
        ops.project(x, norm[:32], 0.0, [matrix])
    with pytest.raises(ValueError, match="out has shape"):
        _native.project(x, None, 0.0, [matrix], [np.empty((3, 8), np.float32)])
    for out in (np.empty((2, 8)), np.empty((8, 2), np.float32).T):
        with pytest.raises(TypeError):
            _native.project(x, None, 0.0, [matrix], [out])
    square = ops.matrix(random_tensor(TensorType.Q4_0, 64, 64))
    with pytest.raises(ValueError, match="activation 'relu'"):
        ops.feed_forward(x, norm, square, square, square, "relu", None, 0.0)
    with pytest.raises(ValueError, match="down must"):
        ops.feed_forward(x, norm, matrix, matrix, matrix, "silu", None, 0.0)


@pytest.mark.parametrize(
    ("shape", "size", "message"),
    [((4, 48), 108, "multiple of 32"), ((4, 64), 100, "144"), ((0, 64), 0, "at least 1"), ((64,), 36, "two axes")],
)
def test_impossible_matrices_are_model_errors(ops: NativeOps, shape: tuple[int, ...], size: int, message: str) -> None:
    with pytest.raises(ModelError, match=r"blk\.0.*"):
        ops.matrix(Tensor("blk.0.x", TensorType.Q4_0, shape, np.zeros(size, np.uint8)))


def test_impossible_attention_is_a_model_error(ops: NativeOps) -> None:
    spec = AttentionSpec(256, 1, 64, 1.0, np.ones(32, np.float32), False, 0, None, None)
    x = np.zeros((1, 64), np.float32)
    pages = LayerKV(np.zeros((1, 1, 64, 32), np.float16), np.zeros((1, 1, 32, 64), np.float16))
    with pytest.raises(ModelError, match="at most 128 query heads"):
        ops.attend(x, x, x, spec, pages, None)  # type: ignore[arg-type]


def test_unknown_instruction_set_lists_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREDRAFT_ISA", "mmx")
    with pytest.raises(ConfigError, match=f"mmx.*available: {', '.join(ISAS)}"):
        NativeOps()
    assert ISAS[-1] == "portable"


def test_thread_counts() -> None:
    assert NativeOps(threads=3) is not None
    assert _native.num_threads() == 3
    NativeOps()
    assert _native.num_threads() == available_cores() >= 1
    with pytest.raises(ConfigError, match="threads is 0"):
        NativeOps(threads=0)


def test_python_threads_may_call_at_once(ops: NativeOps) -> None:
    tensor = random_tensor(TensorType.Q4_K, 256, 512)
    matrix = ops.matrix(tensor)
    inputs = [np.random.default_rng(seed).standard_normal((3, 512)).astype(np.float32) for seed in range(4)]
    alone = [ops.project(x, None, 0.0, [matrix])[0] for x in inputs]
    wrong: list[int] = []

    def call(index: int) -> None:
        for _ in range(50):
            if not np.array_equal(ops.project(inputs[index], None, 0.0, [matrix])[0], alone[index]):
                wrong.append(index)

    threads = [threading.Thread(target=call, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
