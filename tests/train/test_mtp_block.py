"""The MTP block in training computes what the same block computes when it drafts, at every depth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny
from foredraft.drafters import loading
from foredraft.drafters.mtp import MtpBlock
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.models import gguf
from foredraft.models.decoder import Decoder
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops import quantizers, quants
from foredraft.ops.base import TensorType
from foredraft.ops.reference import ReferenceOps
from foredraft.train.collect import Collector
from foredraft.train.export import write_directory
from foredraft.train.reader import Reader
from foredraft.train.target import TargetWeights
from quantizers import make_tensor
from training import asked

torch = pytest.importorskip("torch")

from foredraft.train.mtp import Mtp  # noqa: E402
from foredraft.train.unrolled import Rows  # noqa: E402

NUM_POSITIONS = 3


@pytest.fixture(params=["llama", "qwen3"])
def target(request, tmp_path: Path) -> Path:
    """Heads of one kind or another: of several that share keys, with norms or without."""
    return tiny.write_tiny(tmp_path / "target.gguf", tiny.MODELS[request.param])


@pytest.fixture
def reader(target: Path, tmp_path: Path) -> Reader:
    Collector(str(target), tmp_path / "data", max_tokens=24, concurrency=8).run(asked(40), None, lambda progress: None)
    return Reader(tmp_path / "data", 64, 0)


@pytest.fixture
def head(target: Path, reader: Reader) -> Mtp:
    """With weights of no particular meaning, so that every part has a say, and as 8 bits leave them."""
    made = Mtp(TargetWeights.read(str(target)), np.arange(288, dtype=np.int32), NUM_POSITIONS)
    made.start(reader.epoch(0))
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        for parameter in made.parameters():
            parameter += 0.03 * torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 2:
                parameter.copy_(torch.from_numpy(in_8_bits(parameter.numpy())))
    return made


def in_8_bits(values: np.ndarray) -> np.ndarray:
    tensor = quantizers.quantized(make_tensor("w", TensorType.F32, values))
    return quants.dequantize(tensor.type, tensor.data).reshape(values.shape)


def drafting(head: Mtp, target: Path, path: Path) -> MtpBlock:
    write_directory(path, head.config(), head.tensors())
    file = gguf.read(target)
    made = loading.load(path, Decoder(file, ReferenceOps()), Tokenizer.from_metadata(file.metadata))
    assert isinstance(made, MtpBlock)
    return made


def drafted(block: MtpBlock, tokens: list[int], features: np.ndarray, row: int) -> list[np.ndarray]:
    """Logits of every depth of a draft from `row`: final rows first, then the block's own hidden states."""
    kv = PagedKV(*block.kv_shape, num_pages=8)
    sequence = kv.open([])
    assert kv.reserve(sequence, 200)
    hidden, found = block.fuse(features[: row + 1]), []
    for depth in range(NUM_POSITIONS):
        rows = tokens[1 : row + 2] if depth == 0 else [tokens[row + 1 + depth]]
        builder = BatchBuilder()
        builder.add(sequence, rows, [len(rows) - 1])
        logits, hidden = block.forward(builder.build(), hidden, kv)
        kv.commit(sequence, rows)
        found.append(logits[0])
    return found


def test_unrolled_training_is_what_drafting_computes(head: Mtp, target: Path, reader: Reader, tmp_path: Path) -> None:
    block = drafting(head, target, tmp_path / "block")
    documents = next(reader.epoch(0)).documents
    assert len(documents) > 1
    with torch.no_grad():
        depths = list(head._depths([Rows(document) for document in documents]))
    for number, document in enumerate(documents):
        read, first = document.features[:, -64:].astype(np.float32), document.prompt_len - 1
        for row in (first, first + 3, len(document.tokens) - 1 - NUM_POSITIONS):
            for depth, logits in enumerate(drafted(block, document.tokens.tolist(), read, row)):
                assert logits.std() > 0.5
                ours = depths[depth][number][row - first].numpy()
                np.testing.assert_allclose(ours, logits, atol=0.02 * logits.std())  # keys and values are float16


def test_the_start_is_better_than_chance(target: Path, reader: Reader) -> None:
    block = Mtp(TargetWeights.read(str(target)), reader.most_frequent(288), NUM_POSITIONS)
    block.start(reader.epoch(0))
    hits = sum(block.hits(batch) for batch in reader.epoch(0))
    assert hits[1] > 10 * hits[0] / 288
