"""A damaged model file ends in one clear sentence or in some text, never in a crash or a traceback of ours."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import tiny
from foredraft import LLM, ForedraftError, SamplingParams

NUM_FILES = 200


@pytest.mark.parametrize("architecture", sorted(tiny.MODELS))
def test_damaged_headers(tmp_path, architecture):
    good = tiny.write_tiny(tmp_path / "good.gguf", tiny.MODELS[architecture]).read_bytes()
    table = good.find(b"blk.0")  # the first tensor's name: before it metadata, around it the tensor table
    rng = random.Random(architecture)
    outcomes = Counter(
        _run(tmp_path / "bad.gguf", _damaged(good, rng, rng.choice([(0, 1200), (table - 200, table + 3000)])))
        for _ in range(NUM_FILES)
    )
    assert outcomes["refused"] > NUM_FILES // 3
    assert outcomes["refused"] + outcomes["ran"] == NUM_FILES
    assert outcomes["ran"] > 0


def _damaged(good: bytes, rng: random.Random, region: tuple[int, int]) -> bytes:
    data = bytearray(good)
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(*region)] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
    return bytes(data)


def _run(path, data):
    path.write_bytes(data)
    try:
        with LLM(path, max_sequences=1) as llm:
            llm.generate("hello", SamplingParams(max_tokens=2))
    except ForedraftError as error:
        return "refused" if str(error) else "refused without a word"
    return "ran"
