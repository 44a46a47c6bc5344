"""Training data is what the target writes and thinks, and a run goes on where it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tiny
from foredraft import LLM, SamplingParams, Speculation
from foredraft.errors import ConfigError
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.models import gguf
from foredraft.models.decoder import Decoder
from foredraft.ops.native import NativeOps
from foredraft.train import collect, shards
from foredraft.train.collect import Collector, default_taps
from foredraft.train.prompts import write_prompts
from foredraft.train.shards import Document, read_meta, read_shard
from training import asked


def documents(folder: Path) -> dict[int, Document]:
    found = [document for path in shards.shards(folder) for document in read_shard(path)]
    assert len({document.prompt for document in found}) == len(found), "a prompt is answered twice"
    return {document.prompt: document for document in found}


def test_answers_are_the_target_s_own(target: Path, data: Path) -> None:
    llm = LLM(target)
    found = documents(data)
    assert sorted(found) == list(range(60))
    temperatures = {document.temperature for document in found.values()}
    assert 0.0 in temperatures
    assert len(temperatures) > 5
    for number, document in list(found.items())[:20]:
        prompt = llm.chat_tokens(asked(60)[number].messages)
        params = SamplingParams(max_tokens=24, temperature=document.temperature, seed=number)
        [result] = llm.generate([prompt], params, Speculation("off"))
        written = [*prompt, *result.token_ids]
        assert document.tokens.tolist() == written[: len(document.tokens)]
        assert len(document.tokens) == len(written) - 1
        assert document.prompt_len == len(prompt)


def test_features_are_the_hidden_states(target: Path, data: Path) -> None:
    decoder = Decoder(gguf.read(target), NativeOps())
    meta = read_meta(data)
    assert meta.taps == default_taps(4) == (1, 2, 4)
    document = documents(data)[5]
    kv = PagedKV(4, decoder.arch.num_kv_heads, decoder.arch.head_dim, 8)
    sequence = kv.open([])
    assert kv.reserve(sequence, len(document.tokens))
    builder = BatchBuilder()
    builder.add(sequence, document.tokens.tolist())
    _, features = decoder.forward_tapped(builder.build(), kv, meta.taps)
    np.testing.assert_array_equal(document.features, features.astype(np.float16))


def test_a_run_goes_on_with_what_is_missing(target: Path, data: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(collect, "SHARD_BYTES", 20_000)

    def collector() -> Collector:
        return Collector(str(target), tmp_path / "d", max_tokens=24, concurrency=8)

    first = collector().run(asked(60), 300, lambda progress: None)
    assert 300 <= first.num_tokens < 600
    written = shards.shards(tmp_path / "d")
    assert len(written) > 1
    written[0].unlink()  # as if it had never been finished
    collector().run(asked(60), None, lambda progress: None)
    again, whole = documents(tmp_path / "d"), documents(data)
    assert again.keys() == whole.keys()
    for number, document in whole.items():
        np.testing.assert_array_equal(again[number].tokens, document.tokens)
        np.testing.assert_array_equal(again[number].features, document.features)


def test_a_killed_run_leaves_whole_shards(target: Path, tmp_path: Path) -> None:
    write_prompts(tmp_path / "p.jsonl", asked(400))
    code = (
        "from foredraft.train import collect; collect.SHARD_BYTES = 20_000; from foredraft.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, "train", "data", "--target", target, "--prompts", tmp_path / "p.jsonl"]
    command += ["--out", tmp_path / "d", "--max-tokens", "24", "--concurrency", "4"]
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while len(shards.shards(tmp_path / "d")) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = {number: document.tokens.tolist() for number, document in documents(tmp_path / "d").items()}
    collector = Collector(str(target), tmp_path / "d", max_tokens=24, concurrency=8)
    collector.run(asked(60), None, lambda progress: None)
    after = documents(tmp_path / "d")
    assert set(range(60)) <= after.keys()
    assert all(after[number].tokens.tolist() == tokens for number, tokens in before.items())


def test_a_folder_of_another_target_is_refused(target: Path, data: Path, tmp_path: Path) -> None:
    other = tiny.write_tiny(tmp_path / "other.gguf", seed=1, num_layers=4)
    with pytest.raises(ConfigError, match=r"made with target .*llama\.gguf.*choose another folder"):
        Collector(str(other), data, max_tokens=24)
    with pytest.raises(ConfigError, match="made with sampling"):
        Collector(str(target), data, max_tokens=25)


def test_a_damaged_shard_is_named(data: Path, tmp_path: Path) -> None:
    whole = shards.shards(data)[0].read_bytes()
    path = tmp_path / "shard-00000.npz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match="is damaged"):
        list(read_shard(path))


def test_a_folder_without_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="foredraft train data"):
        read_meta(tmp_path)
    (tmp_path / "meta.json").write_text(json.dumps({"taps": [1]}))
    with pytest.raises(ConfigError, match="not understood"):
        read_meta(tmp_path)


@pytest.mark.parametrize(
    ("layers", "taps"), [(30, (2, 15, 27, 30)), (28, (2, 14, 25, 28)), (4, (1, 2, 4)), (1, (0, 1))]
)
def test_taps(layers: int, taps: tuple[int, ...]) -> None:
    assert default_taps(layers) == taps
