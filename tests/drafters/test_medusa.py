"""Medusa heads compute what the paper says, compared with plain numpy, whatever their tensors are called."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import tiny
import tiny_drafters
from checkpoint_writer import write_directory
from foredraft.drafters import loading
from foredraft.drafters.medusa import MedusaHeads
from foredraft.errors import ModelError
from foredraft.models import gguf
from foredraft.models.decoder import Decoder
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops import quantizers, quants
from foredraft.ops.base import TensorType
from foredraft.ops.native import NativeOps
from foredraft.ops.reference import ReferenceOps
from quantizers import make_tensor

RNG = np.random.default_rng(11)
HIDDEN = RNG.standard_normal((5, 64)).astype(np.float32)
OPS = {"reference": ReferenceOps, "native": NativeOps}
# Of logits with a spread of about 10: natively activations have 8 bits.
TOLERANCE = {"reference": 1e-3, "native": 0.8}


def target_of(tmp_path: Path, ops: str = "native", **changes) -> tuple[Decoder, Tokenizer]:
    file = gguf.read(tiny.write_tiny(tmp_path / "target.gguf", **changes))
    return Decoder(file, OPS[ops]()), Tokenizer.from_metadata(file.metadata)


def loaded(values: np.ndarray) -> np.ndarray:
    """As it is once loaded: a matrix of 8-bit numbers."""
    if values.ndim == 1:
        return values.astype(np.float64)
    tensor = quantizers.quantized(make_tensor("w", TensorType.F32, values))
    return quants.dequantize(tensor.type, tensor.data).reshape(values.shape).astype(np.float64)


def expected(target: Decoder, weights: dict, head: int, num_layers: int) -> np.ndarray:
    """A head's logits, after section 2.1.1 of 2401.10774, and the code: what it reads has passed the output norm."""
    x = HIDDEN.astype(np.float64)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + target.arch.norm_eps) * target.output_norm
    for depth in range(num_layers):
        name = f"blocks.{head}.layers.{depth}"
        y = x @ loaded(weights[f"{name}.weight"]).T + weights[f"{name}.bias"]
        x = x + y / (1 + np.exp(-y))
    output = weights.get(f"lm_heads.{head}.weight", weights.get("lm_head.weight"))
    if output is None:
        return target.ops.project(x.astype(np.float32), None, 0, (target.output,))[0]
    return x @ loaded(output).T


def close(got: np.ndarray, want: np.ndarray, ops: str) -> None:
    np.testing.assert_allclose(got, want, atol=TOLERANCE[ops] * max(want.std() / 10, 1))


@pytest.mark.parametrize("ops", OPS)
@pytest.mark.parametrize(("num_layers", "draft_vocab"), [(1, None), (2, None), (1, 96), (3, 96)])
def test_heads_are_the_reference(tmp_path, ops, num_layers, draft_vocab):
    target, tokenizer = target_of(tmp_path, ops, sharpness=1.0)
    config, weights = tiny_drafters.medusa(num_layers=num_layers, draft_vocab=draft_vocab)
    heads = loading.load(write_directory(tmp_path / "heads", config, weights), target, tokenizer)
    assert isinstance(heads, MedusaHeads)
    assert (heads.num_heads, heads.taps, heads.vocab_size) == (3, (2,), 288)
    for head, logits in enumerate(heads.logits(HIDDEN, 3)):
        close(logits, expected(target, weights, head, num_layers), ops)
    np.testing.assert_allclose(heads.logits(HIDDEN, 2), heads.logits(HIDDEN, 3)[:2], atol=1e-4)
    if draft_vocab is None:
        assert heads.target_ids is None
    else:
        np.testing.assert_array_equal(heads.target_ids, weights["token_map"])


def authors(weights: dict, num_layers: int = 1) -> dict:
    """The names in the authors' files."""
    renamed = {}
    for name, values in weights.items():
        name = re.sub(r"blocks\.(\d+)\.layers\.(\d+)\.", r"\1.\2.linear.", name)
        renamed[re.sub(r"lm_heads\.(\d+)\.", rf"\1.{num_layers}.", name)] = values
    return renamed


@pytest.mark.parametrize(
    "rename",
    [
        authors,
        lambda weights: {f"medusa_head.{name}": values for name, values in authors(weights).items()},
        lambda weights: {f"medusa_heads.{name}": values for name, values in weights.items()},
    ],
)
def test_the_same_by_other_names(tmp_path, rename):
    target, tokenizer = target_of(tmp_path)
    config, weights = tiny_drafters.medusa()
    ours = loading.load(write_directory(tmp_path / "ours", config, weights), target, tokenizer)
    # Published configurations of five heads say two.
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1}
    theirs = loading.load(write_directory(tmp_path / "theirs", config, rename(weights)), target, tokenizer)
    np.testing.assert_array_equal(ours.logits(HIDDEN, 3), theirs.logits(HIDDEN, 3))


def test_a_pickled_file_of_the_authors(tmp_path):
    torch = pytest.importorskip("torch")
    target, tokenizer = target_of(tmp_path)
    config, weights = tiny_drafters.medusa()
    ours = loading.load(write_directory(tmp_path / "ours", config, weights), target, tokenizer)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "config.json").write_text(json.dumps({"medusa_num_heads": 3}))
    tensors = {name: torch.tensor(values) for name, values in authors(weights).items()}
    torch.save(tensors, theirs / "medusa_lm_head.pt")
    np.testing.assert_array_equal(ours.logits(HIDDEN, 3), loading.load(theirs, target, tokenizer).logits(HIDDEN, 3))


def test_a_single_file_computes_the_same(tmp_path):
    target, tokenizer = target_of(tmp_path)
    config, weights = tiny_drafters.medusa(draft_vocab=96)
    directory = loading.load(write_directory(tmp_path / "heads", config, weights), target, tokenizer)
    path = tiny_drafters.write_file(tmp_path / "heads.gguf", "medusa", config, weights)
    file = loading.load(path, target, tokenizer)
    close(file.logits(HIDDEN, 3), directory.logits(HIDDEN, 3), "native")
    np.testing.assert_array_equal(file.target_ids, directory.target_ids)


def test_output_matrices_that_are_shared(tmp_path):
    target, tokenizer = target_of(tmp_path)
    config, weights = tiny_drafters.medusa()
    own = weights.pop("lm_heads.1.weight"), weights.pop("lm_heads.2.weight")
    one = loading.load(
        write_directory(tmp_path / "one", {**config, "original_lm_head": True}, weights), target, tokenizer
    )
    close(
        one.logits(HIDDEN, 3)[2],
        expected(target, {**weights, "lm_heads.2.weight": weights["lm_heads.0.weight"]}, 2, 1),
        "native",
    )
    assert not np.array_equal(weights["lm_heads.0.weight"], own[0])
    # Heads without any use the target's.
    del weights["lm_heads.0.weight"]
    none = loading.load(write_directory(tmp_path / "none", config, weights), target, tokenizer)
    close(none.logits(HIDDEN, 3)[1], expected(target, weights, 1, 1), "native")


def test_whole_output_matrices_are_cut_to_the_map(tmp_path):
    target, tokenizer = target_of(tmp_path)
    config, weights = tiny_drafters.medusa()
    whole = loading.load(write_directory(tmp_path / "whole", config, weights), target, tokenizer)
    weights["token_map"] = np.array([250, 3, 17, 4])
    cut = loading.load(write_directory(tmp_path / "cut", config, weights), target, tokenizer)
    np.testing.assert_array_equal(cut.logits(HIDDEN, 3), whole.logits(HIDDEN, 3)[:, :, [250, 3, 17, 4]])


def without(name):
    return lambda weights: weights.pop(name)


def put(name, values):
    return lambda weights: weights.update({name: values})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("blocks.1.layers.0.weight"), r"blocks\.1\.layers\.0\.weight is missing"),
        (without("lm_head.weight"), r"no output matrix lm_head\.weight"),
        (
            put("blocks.0.layers.0.weight", np.ones((128, 128), np.float32)),
            "states of 128 numbers, the target's have 64",
        ),
        (put("blocks.1.layers.0.weight", np.ones((64, 32), np.float32)), r"has shape \(64, 32\)"),
        (put("lm_head.weight", np.ones((90, 64), np.float32)), "guess among 90 tokens, expected are 96"),
        (without("token_map"), "guess among 96 tokens, expected are 288"),
        (put("token_map", np.arange(96) * 4), "does not name different tokens of the target, of which there are 288"),
        (put("token_map", np.zeros(96, np.int64)), "does not name different tokens"),
        (put("d2t", np.zeros(96, np.int64)), "not supported: tensor d2t"),
        (put("lm_heads.0.weight", np.ones((96, 64), np.float32)), r"not supported: tensor lm_heads\.0\.weight"),
        (put("fc.weight", np.ones((64, 64), np.float32)), r"not supported: tensor fc\.weight"),
    ],
)
def test_what_is_not_for_this_target_is_refused(tmp_path, change, message):
    target, tokenizer = target_of(tmp_path)
    config, weights = tiny_drafters.medusa(draft_vocab=96)
    change(weights)
    with pytest.raises(ModelError, match=message):
        loading.load(write_directory(tmp_path / "heads", config, weights), target, tokenizer)


def test_a_file_without_heads(tmp_path):
    target, tokenizer = target_of(tmp_path)
    path = tiny_drafters.write_file(tmp_path / "heads.gguf", "medusa", {}, {"fc.weight": np.ones((64, 64), np.float32)})
    with pytest.raises(ModelError, match="has no Medusa heads"):
        loading.load(path, target, tokenizer)
