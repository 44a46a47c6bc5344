"""Dequantization against the gguf package, which is tested against ggml itself."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from foredraft.core import FloatArray
from foredraft.models.gguf import read
from foredraft.ops.base import BLOCKS, TensorType
from foredraft.ops.quants import LAYOUTS, Bytes, dequantize, gather, rows
from quantizers import make_tensor, quantize

TYPES = list(TensorType)
SIMPLE_TYPES = [kind for kind in TYPES if not kind.name.endswith("_K")]


def oracle(kind: TensorType, data: Bytes) -> FloatArray:
    blocks = data.reshape(-1, BLOCKS[kind][1])
    return np.asarray(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(int(kind)))).reshape(-1)


def random_blocks(kind: TensorType, num_blocks: int) -> Bytes:
    """Random bytes, so every packed bit is used, with finite half-precision scales."""
    rng = np.random.default_rng(int(kind))
    if kind in (TensorType.F32, TensorType.F16, TensorType.BF16):
        values = rng.standard_normal(num_blocks).astype(np.float32)
        return np.frombuffer(quantize(kind, values), np.uint8)
    data = rng.integers(0, 256, num_blocks * BLOCKS[kind][1], dtype=np.uint8)
    blocks = data.view(LAYOUTS[kind])
    for field in ("d", "m", "dmin"):
        if field in LAYOUTS[kind].fields:
            blocks[field] = rng.standard_normal(num_blocks)
    return data


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_dequantize_equals_gguf_bit_for_bit(kind: TensorType) -> None:
    data = random_blocks(kind, 100)
    values = dequantize(kind, data)
    assert values.dtype == np.float32
    assert values.shape == (100 * BLOCKS[kind][0],)
    np.testing.assert_array_equal(values.view(np.uint32), oracle(kind, data).view(np.uint32))


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_infinite_scales_give_no_warning(kind: TensorType) -> None:
    data = np.full(4 * BLOCKS[kind][1], 0xFF, np.uint8)
    assert not np.isfinite(dequantize(kind, data)).any()


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.3.attn_k.weight", "output_norm.weight"])
def test_dequantize_equals_gguf_on_real_tensors(smollm2: Path, name: str) -> None:
    tensor = read(smollm2).tensors[name]
    data = np.array(tensor.data[: 1000 * BLOCKS[tensor.type][1]])
    np.testing.assert_array_equal(dequantize(tensor.type, data), oracle(tensor.type, data))


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_rows_are_those_of_the_whole_matrix(kind: TensorType) -> None:
    values = np.random.default_rng(1).standard_normal((7, 512)).astype(np.float32)
    tensor = make_tensor("w", kind, values)
    whole = dequantize(kind, tensor.data).reshape(7, 512)
    chosen = np.array([6, 0, 3, 3], np.int32)
    np.testing.assert_array_equal(rows(tensor, chosen), whole[chosen])
    assert rows(tensor, chosen[:0]).shape == (0, 512)


@pytest.mark.parametrize("kind", SIMPLE_TYPES, ids=lambda kind: kind.name)
def test_quantizer_of_the_tests_equals_gguf(kind: TensorType) -> None:
    values = np.random.default_rng(2).standard_normal((8, 256)).astype(np.float32)
    values[3] = 0
    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType(int(kind)))
    assert quantize(kind, values) == expected.tobytes()


# Largest error as a share of the largest magnitude: half a step, plus the rounding of scales and minimums to 6 bits.
@pytest.mark.parametrize(("kind", "bound"), [(TensorType.Q4_K, 0.1), (TensorType.Q5_K, 0.07), (TensorType.Q6_K, 0.025)])
def test_k_quantizer_of_the_tests_is_close(kind: TensorType, bound: float) -> None:
    values = np.random.default_rng(3).standard_normal((16, 512)).astype(np.float32)
    values[5] = 0
    back = dequantize(kind, np.frombuffer(quantize(kind, values), np.uint8)).reshape(values.shape)
    assert np.abs(back - values).max() < bound * np.abs(values).max()
    assert np.corrcoef(back.reshape(-1), values.reshape(-1))[0, 1] > 0.99
    assert not back[5].any()


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_gathered_rows_are_the_same_bytes(kind: TensorType) -> None:
    tensor = make_tensor("m", kind, np.random.default_rng(0).standard_normal((9, 512)).astype(np.float32))
    chosen = gather(tensor, np.array([7, 0, 7, 3], np.int32))
    assert (chosen.name, chosen.type, chosen.shape) == ("m", kind, (4, 512))
    np.testing.assert_array_equal(chosen.data.reshape(4, -1), tensor.data.reshape(9, -1)[[7, 0, 7, 3]])
    assert not chosen.is_mapped  # a copy: nothing that a load could give back to the system
