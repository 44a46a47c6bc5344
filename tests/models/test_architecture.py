"""What is read from a file's metadata, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny
from foredraft.errors import ModelError
from foredraft.models.architecture import read
from foredraft.models.gguf import GGUFFile


def arch(model=tiny.LLAMA, factors=None, **changes):
    """The architecture of a tiny file with metadata changed; None leaves a key out."""
    metadata = tiny.metadata(model)
    for key, value in changes.items():
        key = key.replace("__", ".")
        key = key if key.startswith("general") else f"{model.architecture}.{key}"
        metadata[key] = value
        if value is None:
            del metadata[key]
    return read(GGUFFile(Path("model.gguf"), metadata, {}), factors)


def test_sizes_are_the_files():
    found = arch()
    assert (found.num_layers, found.hidden, found.num_heads, found.num_kv_heads, found.head_dim) == (2, 64, 4, 2, 32)
    assert (found.context_length, found.norm_eps, found.attention_scale) == (512, 1e-6, 32**-0.5)


def test_what_a_file_may_leave_out():
    found = arch(
        attention__head_count_kv=None,
        attention__key_length=None,
        attention__value_length=None,
        rope__freq_base=None,
        rope__dimension_count=None,
    )
    assert (found.num_kv_heads, found.head_dim) == (4, 16)
    np.testing.assert_allclose(found.rope_frequencies[0], 10_000.0 ** (-np.arange(0, 16, 2) / 16), rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "interleaved", "head_norms", "post_norms", "activation", "scale"),
    [
        (tiny.LLAMA, True, False, False, "silu", 1.0),
        (tiny.QWEN2, False, False, False, "silu", 1.0),
        (tiny.QWEN3, False, True, False, "silu", 1.0),
        (tiny.GEMMA3, False, True, True, "gelu", 8.0),
    ],
)
def test_habits(model, interleaved, head_norms, post_norms, activation, scale):
    found = arch(model)
    assert found.is_interleaved == interleaved
    assert (found.has_head_norms, found.has_post_norms) == (head_norms, post_norms)
    assert (found.activation, found.embedding_scale) == (activation, scale)


def test_every_sixth_layer_of_gemma_sees_everything():
    found = arch(tiny.GEMMA3, block_count=13)
    assert [layer for layer, window in enumerate(found.windows) if window == 0] == [5, 11]
    assert {window for window in found.windows if window} == {16}
    # Local layers rotate by a base of their own and are not scaled.
    np.testing.assert_allclose(found.rope_frequencies[0][1], 10_000.0 ** (-2 / 32), rtol=1e-6)
    np.testing.assert_allclose(found.rope_frequencies[5][1], 1e6 ** (-2 / 32), rtol=1e-6)
    scaled = arch(tiny.GEMMA3, rope__scaling__type="linear", rope__scaling__factor=8.0)
    np.testing.assert_allclose(scaled.rope_frequencies[5], found.rope_frequencies[5] / 8, rtol=1e-6)
    np.testing.assert_allclose(scaled.rope_frequencies[0], found.rope_frequencies[0])


def test_gemmas_pattern_and_local_base_may_be_the_files_own():
    found = arch(tiny.GEMMA3, attention__sliding_window_pattern=3, rope__freq_base_swa=500.0)
    assert [layer for layer, window in enumerate(found.windows) if window == 0] == [2, 5]
    np.testing.assert_allclose(found.rope_frequencies[0][1], 500.0 ** (-2 / 32), rtol=1e-6)


def test_gemmas_largest_scales_queries_by_hidden_size_per_head():
    assert arch(tiny.GEMMA3, block_count=62).attention_scale == 16**-0.5
    assert arch(tiny.GEMMA3, block_count=26).attention_scale == 32**-0.5


def test_rope_factors_divide_frequencies():
    factors = np.linspace(1, 8, 16, dtype=np.float32)
    np.testing.assert_allclose(
        arch(factors=factors).rope_frequencies[0], arch().rope_frequencies[0] / factors, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general__architecture": "mamba"}, "'mamba' is not supported; known are llama, qwen2, qwen3, gemma3"),
        ({"general__architecture": None}, "general.architecture"),
        ({"block_count": None}, "llama.block_count"),
        ({"block_count": 0}, "llama.block_count is 0"),
        ({"block_count": 1001}, "allowed is 1 to 1000"),
        ({"embedding_length": -5}, "llama.embedding_length is -5"),
        ({"context_length": 2**40}, "llama.context_length"),
        ({"attention__head_count": "four"}, "attention.head_count"),
        ({"attention__head_count_kv": 3}, "4 heads, 3 KV heads"),
        ({"attention__key_length": 31, "attention__value_length": 31}, "do not fit together"),
        ({"attention__value_length": 16}, "do not fit together"),
        ({"rope__dimension_count": 16}, "partial rotary"),
        ({"rope__scaling__type": "yarn"}, "'yarn' is not supported; known are none and linear"),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 0.0}, "scaling factor 0.0"),
        ({"rope__freq_base": -1.0}, "rotary base -1.0"),
        ({"rope__freq_base": float("nan")}, "rotary base nan"),
        ({"attention__layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon"),
        ({"attention__layer_norm_rms_epsilon": float("nan")}, "layer_norm_rms_epsilon is nan"),
        ({"attention__layer_norm_rms_epsilon": -1.0}, "layer_norm_rms_epsilon is -1.0"),
        ({"expert_count": 8}, "mixtures of experts"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ModelError, match=message) as info:
        arch(**changes)
    assert "model.gguf" in str(info.value)


@pytest.mark.parametrize("window", [-1, 2**30])
def test_a_senseless_window_is_refused(window):
    with pytest.raises(ModelError, match=f"sliding_window is {window}"):
        arch(tiny.GEMMA3, attention__sliding_window=window)


@pytest.mark.parametrize("factors", [[1.0] * 15, [1.0], [0.0] * 16, [float("nan")] * 16, [-1.0] * 16])
def test_senseless_rope_factors_are_refused(factors):
    with pytest.raises(ModelError, match="rope_freqs"):
        arch(factors=np.array(factors, np.float32))
