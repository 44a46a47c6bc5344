"""The GGUF reader: equal to the gguf package on good files, one clear ModelError on every other."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foredraft.errors import ModelError
from foredraft.models.gguf import GGUFFile, read
from foredraft.ops.base import BLOCKS, Tensor, TensorType
from gguf_writer import gguf_bytes, string, write_gguf
from quantizers import make_tensor

METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "u8": np.uint8(200),
    "i8": np.int8(-3),
    "u16": np.uint16(60000),
    "i16": np.int16(-300),
    "u32": 7,
    "i32": -7,
    "f32": 0.5,
    "yes": True,
    "no": False,
    "u64": np.uint64(2**64 - 1),
    "i64": np.int64(-(2**62)),
    "f64": np.float64(0.1),
    "text": "naïve 文字",
    "empty": "",
    "tokens": ["a", "", "é", "▁the"],
    "no_tokens": [],
    "scores": np.array([0.5, -1.5], np.float32),
    "flags": np.array([True, False, True]),
    "ids": np.array([1, 2, 3], np.int64),
    "no_ids": np.array([], np.int32),
}


def tensors() -> list[Tensor]:
    rng = np.random.default_rng(0)
    made = [make_tensor(kind.name, kind, rng.standard_normal((3, 256)).astype(np.float32)) for kind in TensorType]
    return [
        *made,
        make_tensor("scalar", TensorType.F32, np.float32([1])),
        make_tensor("cube", TensorType.F16, np.ones((2, 3, 4), np.float32)),
    ]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "good.gguf", METADATA, tensors())


def compare_with_gguf_package(path: Path) -> None:
    file, oracle = read(path), gguf.GGUFReader(path)
    expected = {key: field.contents() for key, field in oracle.fields.items() if not key.startswith("GGUF.")}
    assert list(file.metadata) == list(expected)
    for key, value in file.metadata.items():
        is_array = oracle.fields[key].types[0] == gguf.GGUFValueType.ARRAY
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        assert plain == ((expected[key] or []) if is_array else expected[key]), key
    assert list(file.tensors) == [tensor.name for tensor in oracle.tensors]
    for tensor in oracle.tensors:
        ours = file.tensors[tensor.name]
        assert (ours.name, int(ours.type), ours.shape) == (
            tensor.name,
            int(tensor.tensor_type),
            tuple(tensor.shape.tolist()[::-1]),
        )
        assert ours.data.dtype == np.uint8
        assert (ours.data.size, ours.data[:64].tobytes()) == (
            tensor.n_bytes,
            tensor.data.reshape(-1).view(np.uint8)[:64].tobytes(),
        )


def test_every_type_equals_the_gguf_package(good: Path) -> None:
    compare_with_gguf_package(good)


def test_real_model_equals_the_gguf_package(smollm2: Path) -> None:
    compare_with_gguf_package(smollm2)


def test_values_come_back_as_written(good: Path) -> None:
    file = read(good)
    assert list(file.metadata) == list(METADATA)
    for key, written in METADATA.items():
        value = file.metadata[key]
        if isinstance(written, np.ndarray):
            assert value.dtype == written.dtype
            np.testing.assert_array_equal(value, written)
        else:
            assert value == written
            assert type(value) in (bool, int, float, str, list)
    for tensor in tensors():
        ours = file.tensors[tensor.name]
        assert (ours.type, ours.shape) == (tensor.type, tensor.shape)
        np.testing.assert_array_equal(ours.data, tensor.data)


def test_data_is_a_read_only_view(good: Path) -> None:
    data = read(good).tensors["Q4_K"].data
    assert data.base is not None
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 1


def test_nested_arrays_and_version_2(tmp_path: Path) -> None:
    path = tmp_path / "nested.gguf"
    nested = [["a", "b"], ["c"]]
    path.write_bytes(gguf_bytes({"nested": nested, "ints": [np.int32([1, 2])]}, [], version=2))
    assert read(path).metadata["nested"] == nested
    np.testing.assert_array_equal(read(path).metadata["ints"][0], [1, 2])


def test_alignment_of_the_file_is_obeyed(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {"general.alignment": 1024}, tensors())
    compare_with_gguf_package(path)


def test_text_that_is_not_utf8_is_replaced(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "t.gguf", {"tokens": [b"\xff", b"ok"], "text": b"\xc3"}, [])
    assert read(path).metadata == {"tokens": ["\ufffd", "ok"], "text": "\ufffd"}


class TestGet:
    FILE = GGUFFile(
        Path("m.gguf"), {"n": 3, "x": 0.5, "s": "text", "flag": True, "ids": np.zeros(9), "words": ["a"]}, {}
    )

    def test_right_kinds(self) -> None:
        assert self.FILE.get("n", int) == 3
        assert self.FILE.get("x", float) == 0.5
        assert self.FILE.get("s", str) == "text"
        assert self.FILE.get("flag", bool) is True
        assert self.FILE.get("words", list) == ["a"]
        assert self.FILE.get("ids", np.ndarray).size == 9
        widened = self.FILE.get("n", float)
        assert (widened, type(widened)) == (3.0, float)

    def test_default(self) -> None:
        assert self.FILE.get("absent", int, 5) == 5
        assert self.FILE.get("n", int, 5) == 3

    @pytest.mark.parametrize(
        ("key", "kind", "message"),
        [
            ("absent", int, "m.gguf has no metadata key absent"),
            ("s", int, "has 'text' as metadata key s; it must be an integer"),
            ("flag", int, "has True as metadata key flag; it must be an integer"),
            ("flag", float, "it must be a number"),
            ("x", int, "has 0.5 as metadata key x"),
            ("ids", int, "has an array of 9 numbers as metadata key ids"),
            ("words", str, "has an array of 1 values as metadata key words; it must be a string"),
            ("n", list, "it must be an array"),
        ],
    )
    def test_wrong_kind_names_the_key(self, key: str, kind: type[Any], message: str) -> None:
        with pytest.raises(ModelError, match=message):
            self.FILE.get(key, kind)

    def test_missing_tensor_is_named(self, good: Path) -> None:
        file = read(good)
        assert file.tensor("Q8_0") is file.tensors["Q8_0"]
        with pytest.raises(ModelError, match=r"has no tensor blk\.0\.ffn"):
            file.tensor("blk.0.ffn")


def header(keys: list[bytes], infos: list[bytes], version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, len(infos), len(keys)) + b"".join(keys) + b"".join(infos)


def info(name: str, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def key(name: str | bytes, kind: int, payload: bytes) -> bytes:
    return string(name) + struct.pack("<I", kind) + payload


U32 = struct.pack("<I", 7)
BAD_FILES = {
    "is empty": b"",
    "is a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "is a web page": b"\n<!DOCTYPE html><html>",
    "is a safetensors file": struct.pack("<Q", 20) + b'{"__metadata__": {}}',
    "is a zip archive": b"PK\x03\x04rest",
    "before GGUF": b"tjgg" + bytes(8),
    "download was not finished": bytes(1000),
    "is not a GGUF file": b"hello",
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "version 1": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "version 0": b"GGUF" + struct.pack("<IQQ", 0, 0, 0),
    "ends inside its header, at byte 4": b"GGUF",
    "ends inside": header([key("k", 9, struct.pack("<IQ", 8, 2**64 - 1))], []),
    "truncated or corrupt": header([key("k", 9, struct.pack("<IQ", 12, 2**61))], []),
    "header, at": header([key("k", 8, struct.pack("<Q", 2**63))], []),
    "key k twice": header([key("k", 4, U32)] * 2, []),
    "metadata key that is not one": header([key(b"\xff\xfe", 4, U32)], []),
    "key that is not one": header([key("k" * 70000, 4, U32)], []),
    "is not one": header([key("\x1b[2J", 4, U32)], []),
    "unknown type 13 in metadata key k": header([key("k", 13, U32)], []),
    "unknown type 99": header([key("k", 9, struct.pack("<IQ", 99, 1))], []),
    "nests arrays deeper than 4": header([key("k", 9, struct.pack("<IQ", 9, 1) * 1000)], []),
    "general.alignment 3": header([key("general.alignment", 4, struct.pack("<I", 3))], []),
    "general.alignment 0": header([key("general.alignment", 4, struct.pack("<I", 0))], []),
    "general.alignment 'x'": header([key("general.alignment", 8, string("x"))], []),
    "one of 3 parts": header([key("split.count", 2, struct.pack("<H", 3))], []),
    "tensor t twice": header([], [info("t", [1])] * 2) + bytes(64),
    "tensor t 5 dimensions": header([], [info("t", [1] * 5)]) + bytes(64),
    "in type IQ4_XS": header([], [info("t", [256], 23)]) + bytes(999),
    "in type number 77; choose a file with these types only: F32, F16": header([], [info("t", [1], 77)]) + bytes(99),
    r"shape \(33,\); rows of Q4_0 are full blocks of 32": header([], [info("t", [33], 2)]) + bytes(99),
    r"shape \(4, 0\)": header([], [info("t", [0, 4])]) + bytes(99),
    "offset 4, not a multiple of 32": header([], [info("t", [1], 0, 4)]) + bytes(99),
    "tensor t ends at byte": header([], [info("t", [99])]) + bytes(99),
    "is truncated": header([], [info("t", [2**63, 2**63, 2**63, 2**63])]) + bytes(99),
    "ends at byte 18446744073709551": header([], [info("t", [1], 0, 2**64 - 32)]) + bytes(99),
}


@pytest.mark.parametrize("message", BAD_FILES)
def test_bad_bytes_are_explained(tmp_path: Path, message: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(BAD_FILES[message])
    with pytest.raises(ModelError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path} ")


def test_bad_paths_are_explained(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in [
        (tmp_path, "is a directory"),
        (tmp_path / "absent.gguf", "does not exist"),
        (tmp_path / "pipe", "is not a regular file"),
        (tmp_path / "nul\0", "cannot be read"),
        (tmp_path / ("x" * 5000), "cannot be read"),
    ]:
        with pytest.raises(ModelError, match=message):
            read(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_explained(good: Path) -> None:
    good.chmod(0)
    with pytest.raises(ModelError, match="may not be read by this user"):
        read(good)


def outcome(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    try:
        file = read(path)
    except ModelError as error:
        return str(error)
    for tensor in file.tensors.values():
        block_len, block_bytes = BLOCKS[tensor.type]
        assert tensor.data.size == int(np.prod(tensor.shape)) // block_len * block_bytes
    return "read"


def test_mutations_give_only_model_errors(tmp_path: Path) -> None:
    content = gguf_bytes(METADATA, tensors()[:2])
    header_len = len(gguf_bytes(METADATA, [])) + 100
    rng = random.Random(0)
    outcomes = set()
    for _ in range(800):
        mutated = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            # mostly extreme values, where counts and lengths overflow
            mutated[rng.randrange(header_len)] = rng.choice((0, 1, 9, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        outcomes.add(outcome(tmp_path / "m.gguf", bytes(mutated)))
    assert "read" in outcomes
    assert len(outcomes) > 100


def test_truncations_give_only_model_errors(tmp_path: Path) -> None:
    content = gguf_bytes(METADATA, tensors()[:2])
    for length in range(0, len(content), 7):
        assert outcome(tmp_path / "t.gguf", content[:length]) != "read"


def test_false_counts_allocate_nothing_large(tmp_path: Path) -> None:
    path = tmp_path / "b.gguf"
    tracemalloc.start()
    try:
        for content in BAD_FILES.values():
            assert outcome(path, content) != "read"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_truncated_real_header_gives_only_model_errors(tmp_path: Path, smollm2: Path) -> None:
    with smollm2.open("rb") as file:
        head = file.read(2 << 20)
    for length in [*range(1, 3000, 97), *range(3000, len(head), 150_021)]:
        assert outcome(tmp_path / "t.gguf", head[:length]) != "read"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tail=st.binary(max_size=200), num_tensors=st.integers(0, 2**64 - 1), num_keys=st.integers(0, 3))
def test_any_bytes_after_the_magic(tmp_path: Path, tail: bytes, num_tensors: int, num_keys: int) -> None:
    assert outcome(tmp_path / "h.gguf", b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_keys) + tail)
