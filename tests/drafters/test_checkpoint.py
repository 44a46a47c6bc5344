"""Checkpoints are read as they lie, from every form they come in, and never believed."""

from __future__ import annotations

import json
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_writer import safetensors_bytes, write_directory
from foredraft.drafters import checkpoint, safetensors
from foredraft.errors import ModelError, UnavailableError
from foredraft.ops import quantizers, quants
from foredraft.ops.base import TensorType
from foredraft.ops.reference import ReferenceOps
from gguf_writer import write_gguf
from quantizers import make_tensor

RNG = np.random.default_rng(1)
WEIGHTS = {
    "midlayer.hidden_norm.weight": RNG.standard_normal(64).astype(np.float32),
    "fc.weight": RNG.standard_normal((64, 192)).astype(np.float32),
    "d2t": np.arange(5, dtype=np.int64),
    "t2d": np.array([True, False, True]),
}
CONFIG = {"hidden_size": 64, "rms_norm_eps": 1e-5, "eagle_config": {"use_aux_hidden_state": True}}


def values(tensor):
    return quants.dequantize(tensor.type, tensor.data).reshape(tensor.shape)


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16, TensorType.BF16])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_directory(tmp_path, kind, parts):
    read = checkpoint.read(write_directory(tmp_path, CONFIG, WEIGHTS, kind, parts))
    assert read.kind == "eagle3"
    assert read.size("hidden_size") == 64
    assert read.get("use_aux_hidden_state", bool, False) is True
    assert set(read.tensors) == {"midlayer.hidden_norm.weight", "fc.weight"}
    for name, tensor in read.tensors.items():
        assert (tensor.type, tensor.shape) == (kind, WEIGHTS[name].shape)
        np.testing.assert_allclose(values(tensor), WEIGHTS[name], rtol=1e-2)
    np.testing.assert_array_equal(read.arrays["d2t"], WEIGHTS["d2t"])
    np.testing.assert_array_equal(read.arrays["t2d"], WEIGHTS["t2d"])


def test_a_single_file_says_the_same(tmp_path):
    floats = [
        make_tensor(name, TensorType.Q8_0, WEIGHTS[name]) for name in ("fc.weight", "midlayer.hidden_norm.weight")
    ]
    metadata = {
        "general.architecture": "eagle3",
        "eagle3.hidden_size": 64,
        "eagle3.eagle_aux_hidden_state_layer_ids": np.array([1, 2, 3], np.int32),
        "eagle3.d2t": WEIGHTS["d2t"],
    }
    read = checkpoint.read(write_gguf(tmp_path / "head.gguf", metadata, floats))
    assert read.kind == "eagle3"
    assert dict(read.config) == {"hidden_size": 64, "eagle_aux_hidden_state_layer_ids": [1, 2, 3]}
    assert {tensor.type for tensor in read.tensors.values()} == {TensorType.Q8_0}
    np.testing.assert_array_equal(read.arrays["d2t"], WEIGHTS["d2t"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("layers.0.hidden_norm.weight", "eagle3"),
        ("layers.0.self_attn.q_proj.weight", "eagle"),
        ("0.0.linear.weight", "medusa"),
        ("blocks.2.layers.0.weight", "medusa"),
        ("model.layers.61.eh_proj.weight", "mtp"),
        ("mtp.fc.weight", "mtp"),
    ],
)
def test_the_kind_is_known_by_names(tmp_path, name, kind):
    weights = {name: np.ones((32, 32), np.float32)}
    assert checkpoint.read(write_directory(tmp_path, {}, weights)).kind == kind


def test_pickled_weights(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "config.json").write_text("{}")
    held = {"0.0.linear.weight": torch.full((2, 3), 1.5, dtype=torch.bfloat16), "token_map": torch.arange(4)}
    torch.save(held, tmp_path / "medusa_lm_head.pt")
    read = checkpoint.read(tmp_path)
    assert read.kind == "medusa"
    assert read.tensors["0.0.linear.weight"].type is TensorType.BF16
    np.testing.assert_array_equal(values(read.tensors["0.0.linear.weight"]), np.full((2, 3), 1.5))
    np.testing.assert_array_equal(read.arrays["token_map"], np.arange(4))


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("the pickle was run",))


def test_a_pickle_is_never_run(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Bomb()}))
    with pytest.raises(ModelError, match="cannot be read as PyTorch weights"):
        checkpoint.read(tmp_path)


def test_pickled_weights_without_pytorch(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UnavailableError, match=r"foredraft\[train\]"):
        checkpoint.read(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "config.json is missing"),
        ({"config.json": b"["}, "cannot be read"),
        ({"config.json": b"[]"}, "JSON object"),
        ({"config.json": b"{}"}, "no weights"),
        ({"config.json": b"{}", "model.safetensors": b""}, "is empty"),
        ({"config.json": b"{}", "model.safetensors": safetensors_bytes({"x": np.ones(1, np.float32)})}, "no drafter"),
        ({"config.json": b"{}", "model.safetensors.index.json": b"{}"}, "in which file"),
        (
            {"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {"a": "../a.safetensors"}}'},
            "not beside it",
        ),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, files, message):
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ModelError, match=message):
        checkpoint.read(tmp_path)


def test_a_part_that_lacks_its_tensor(tmp_path):
    write_directory(tmp_path, CONFIG, WEIGHTS, parts=2)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    index["weight_map"]["lm_head.weight"] = next(iter(index["weight_map"].values()))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"lm_head\.weight, which no file has"):
        checkpoint.read(tmp_path)


def test_other_files_say_what_they_are(tmp_path):
    whole = write_gguf(tmp_path / "model.gguf", {"general.architecture": "llama"}, [])
    with pytest.raises(ModelError, match="a complete model is a draft model"):
        checkpoint.read(whole)
    with pytest.raises(ModelError, match="give the directory"):
        checkpoint.read(tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="does not exist"):
        checkpoint.read(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("hidden_size", None, "does not say hidden_size"), ("hidden_size", "64", "must be of type int")]
    + [("hidden_size", value, "allowed is 1 to") for value in (0, -1, 2**25)],
)
def test_configuration_values_are_checked(tmp_path, key, value, message):
    read = checkpoint.read(write_directory(tmp_path, {**CONFIG, key: value}, WEIGHTS))
    with pytest.raises(ModelError, match=message):
        read.size(key)


def test_tensors_are_accounted_for(tmp_path):
    read = checkpoint.read(write_directory(tmp_path, CONFIG, WEIGHTS))
    weights = read.weights(ReferenceOps())
    with pytest.raises(ModelError, match=r"lm_head\.weight is missing"):
        weights.matrix("lm_head", 5, 64)
    with pytest.raises(ModelError, match=r"fc\.weight has shape"):
        weights.matrix("fc", 64, 64)
    weights.matrix("fc", 64, 192)
    with pytest.raises(ModelError, match=r"not supported: tensor midlayer\.hidden_norm\.weight"):
        weights.check_all_used()


GOOD = safetensors_bytes(WEIGHTS)
entries = st.dictionaries(
    st.sampled_from(["dtype", "shape", "data_offsets"]),
    st.one_of(
        st.sampled_from(["F32", "BOOL", "F64", None]),
        st.lists(st.one_of(st.integers(-1, 2**60), st.booleans(), st.floats()), max_size=10),
    ),
)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)).map(
            lambda at: GOOD[: at[0]] + bytes([at[1]]) + GOOD[at[0] + 1 :]
        ),
        st.integers(0, len(GOOD)).map(lambda length: GOOD[:length]),
        st.recursive(entries, lambda inner: st.dictionaries(st.text(max_size=3), inner), max_leaves=8).map(
            lambda table: struct.pack("<Q", len(json.dumps(table))) + json.dumps(table).encode() + bytes(64)
        ),
        st.integers(10, 5000).map(lambda depth: struct.pack("<Q", 2 * depth) + b"[" * depth + b"]" * depth),
    )
)
def test_whatever_the_bytes_are(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "x.safetensors"
    path.write_bytes(data)
    try:
        tensors, arrays = safetensors.read(path)
    except ModelError:
        return
    for tensor in tensors.values():
        assert values(tensor).shape == tensor.shape
    assert all(array.size for array in arrays.values())


@pytest.mark.parametrize("kind", [TensorType.F32, TensorType.F16, TensorType.BF16])
@pytest.mark.parametrize("slice_size", [64, 2**22])
def test_matrices_become_8_bit_numbers(monkeypatch, kind, slice_size):
    monkeypatch.setattr(quantizers, "_SLICE", slice_size)
    weights = RNG.standard_normal((33, 96)).astype(np.float32)
    weights[5] = 0
    floats = make_tensor("m", kind, weights)
    tensor = quantizers.quantized(floats)
    assert (tensor.type, tensor.shape) == (TensorType.Q8_0, weights.shape)
    error = values(tensor) - values(floats)
    assert np.sqrt(np.square(error).mean()) < 0.006
    assert not error[5].any()


def test_other_tensors_stay_as_they_are():
    for shape in ((64,), (4, 33)):
        tensor = make_tensor("x", TensorType.F16, np.ones(shape, np.float32))
        assert quantizers.quantized(tensor) is tensor
    tensor = make_tensor("x", TensorType.Q4_0, np.ones((2, 32), np.float32))
    assert quantizers.quantized(tensor) is tensor
