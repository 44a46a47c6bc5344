"""Tiny models of every kind against transformers: golden logits, made by make_tiny_golden.py.

The golden run keeps keys and values at half precision as foredraft does, and weights are stored as they are, so what
is left is the order of float32 sums (measured: up to 1e-4, where a value rounds to the other half) and, for F16
weights, their rounding.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import parity_run
import parity_tiny as tiny
import pytest

from foredraft import ops
from foredraft.models import gguf
from foredraft.models.decoder import Decoder
from foredraft.ops.base import TensorType

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "parity_tiny.npz")
SUMS, HALF_WEIGHTS = 2e-4, 5e-3


@pytest.mark.parametrize("op_set", ops.OPS)
@pytest.mark.parametrize("name", tiny.CASES)
def test_logits_equal_those_of_transformers(tmp_path: Path, name: str, op_set: str) -> None:
    assert error(tiny.write(name, tmp_path / "tiny.gguf"), name, op_set) < SUMS


@pytest.mark.parametrize("op_set", ops.OPS)
@pytest.mark.parametrize("name", ["llama_untied", "qwen2_tied", "qwen3_untied", "gemma3"])
def test_half_precision_weights_change_little(tmp_path: Path, name: str, op_set: str) -> None:
    difference = error(tiny.write(name, tmp_path / "tiny.gguf", TensorType.F16), name, op_set)
    assert SUMS / 10 < difference < HALF_WEIGHTS


def error(path: Path, name: str, op_set: str) -> float:
    decoder = Decoder(gguf.read(path), ops.create(op_set))
    # Small pages, so that the prompt and Gemma's window lie across their borders.
    got = parity_run.logits(decoder, tiny.prompt(name), range(0, tiny.PROMPT_LEN, tiny.ROW_STEP), page_size=16)
    return parity_run.distance(got, GOLDEN[name]).error
