"""The EAGLE-3 head in training computes what the same head computes when it drafts, at every depth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny
from foredraft.drafters import loading
from foredraft.drafters.eagle import Eagle3 as DraftingHead
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.models import gguf
from foredraft.models.decoder import Decoder
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops import quants
from foredraft.ops.reference import ReferenceOps
from foredraft.train.export import write_directory, write_gguf
from foredraft.train.reader import Batch, Reader
from foredraft.train.target import TargetWeights

torch = pytest.importorskip("torch")

from foredraft.train.eagle3 import Eagle3  # noqa: E402
from foredraft.train.unrolled import Rows  # noqa: E402

NUM_POSITIONS = 3


@pytest.fixture
def reader(data: Path) -> Reader:
    return Reader(data, 64, 0)


@pytest.fixture
def head(target: Path, reader: Reader) -> Eagle3:
    """With weights of no particular meaning, so that every part has a say."""
    made = Eagle3(TargetWeights.read(str(target)), reader.meta.taps, reader.most_frequent(96), NUM_POSITIONS)
    made.start(reader.epoch(0))
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        for parameter in made.parameters():
            parameter += 0.03 * torch.randn(parameter.shape, generator=generator)
    return made


def exported(head: Eagle3, target: Path, path: Path) -> tuple[DraftingHead, Decoder]:
    """The head as it is read back; the one in training takes over what quantization has left of its weights."""
    write_gguf(path, head.kind, head.config(), head.tensors(), {"general.name": "tiny"})
    file = gguf.read(path)
    with torch.no_grad():
        for name, tensor in file.tensors.items():
            own = name.removesuffix(".weight").split(".")[-1].replace(".bias", "")
            own = f"{name.split('.')[-2][0]}_bias" if name.endswith(".bias") else own
            values = quants.dequantize(tensor.type, tensor.data).reshape(tensor.shape)
            values = values * head._sizes.numpy() if own == "fc" else values
            getattr(head, own).copy_(torch.from_numpy(values))
    decoder_file = gguf.read(target)
    decoder = Decoder(decoder_file, ReferenceOps())
    drafter = loading.load(path, decoder, Tokenizer.from_metadata(decoder_file.metadata))
    assert isinstance(drafter, DraftingHead)
    return drafter, decoder


def drafted(drafter: DraftingHead, tokens: list[int], features: np.ndarray, row: int) -> list[np.ndarray]:
    """Logits of every depth of a draft from `row`: final rows first, then the head's own hidden states."""
    kv = PagedKV(*drafter.kv_shape, num_pages=8)
    sequence = kv.open([])
    assert kv.reserve(sequence, 200)
    builder = BatchBuilder()
    builder.add(sequence, tokens[1 : row + 2], [row])
    logits, hidden = drafter.forward(builder.build(), drafter.fuse(features[: row + 1]), kv)
    kv.commit(sequence, tokens[1 : row + 2])
    found = [logits[0]]
    for depth in range(1, NUM_POSITIONS):
        builder = BatchBuilder()
        builder.add(sequence, [tokens[row + 1 + depth]], [0])
        logits, hidden = drafter.forward(builder.build(), hidden, kv)
        kv.commit(sequence, [tokens[row + 1 + depth]])
        found.append(logits[0])
    return found


def test_unrolled_training_is_what_drafting_computes(
    head: Eagle3, target: Path, reader: Reader, tmp_path: Path
) -> None:
    drafter, _ = exported(head, target, tmp_path / "head.gguf")
    documents = next(reader.epoch(0)).documents
    assert len(documents) > 1
    with torch.no_grad():
        depths = list(head._depths([Rows(document) for document in documents]))
    assert drafter.taps == reader.meta.taps[:-1]
    for number, document in enumerate(documents):
        read = document.features[:, : len(drafter.taps) * 64].astype(np.float32)
        first = document.prompt_len - 1
        for row in (first, first + 3, len(document.tokens) - 1 - NUM_POSITIONS):
            for depth, logits in enumerate(drafted(drafter, document.tokens.tolist(), read, row)):
                ours = depths[depth][number][row - first].numpy()
                np.testing.assert_allclose(ours, logits, atol=0.06)  # keys and values are float16 when drafting
                assert logits.std() > 0.5


def test_the_exported_head_guesses_target_tokens(head: Eagle3, target: Path, reader: Reader, tmp_path: Path) -> None:
    drafter, decoder = exported(head, target, tmp_path / "head.gguf")
    np.testing.assert_array_equal(drafter.target_ids, reader.most_frequent(96))
    assert drafter.vocab_size == decoder.vocab_size


def test_a_directory_is_read_too(head: Eagle3, target: Path, tmp_path: Path) -> None:
    write_directory(tmp_path / "head", head.config(), head.tensors())
    file = gguf.read(target)
    drafter = loading.load(tmp_path / "head", Decoder(file, ReferenceOps()), Tokenizer.from_metadata(file.metadata))
    assert drafter.kind == "eagle3"


def test_the_target_s_distribution_is_what_is_learned(head: Eagle3, target: Path, reader: Reader) -> None:
    """Of the last hidden state: where an answer is greedy, the token written is the most likely one."""
    documents = [d for d in next(reader.epoch(0)).documents if d.temperature == 0]
    rows = [Rows(document) for document in documents]
    likely = told = 0
    for each, probs in zip(rows, head._target_probs(rows), strict=True):
        written = each.tokens(2, each.first)
        for token, row in zip(written, probs, strict=False):
            if token in head._draft_tokens:
                told += 1
                likely += int(head._draft_tokens[row.argmax()] == token)
    assert told > 50
    assert likely > 0.95 * told  # the engine multiplies numbers of 8 bits


def test_the_loss_falls_and_guesses_get_better(head: Eagle3, reader: Reader) -> None:
    batches = list(reader.epoch(0))
    before = sum(head.hits(batch) for batch in batches)
    optimizer = torch.optim.AdamW(head.parameters(), lr=2e-3)
    losses = []
    for _ in range(6):
        for batch in batches:
            optimizer.zero_grad()
            loss = head.loss(batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    after = sum(head.hits(batch) for batch in batches)
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    assert after[0] == before[0]
    assert (np.diff(after) <= 0).all()
    assert after[1:].sum() > before[1:].sum()


def test_batches_do_not_mix_documents(head: Eagle3, reader: Reader) -> None:
    first, second = next(reader.epoch(0)).documents[:2]
    alone = head.hits(Batch((first,))) + head.hits(Batch((second,)))
    np.testing.assert_array_equal(head.hits(Batch((first, second))), alone)


def test_the_linear_start_is_better_than_chance(target: Path, reader: Reader) -> None:
    made = Eagle3(TargetWeights.read(str(target)), reader.meta.taps, reader.most_frequent(96), NUM_POSITIONS)
    batches = list(reader.epoch(0))
    before = sum(made.hits(batch) for batch in batches)
    made.start(batches)
    after = sum(made.hits(batch) for batch in batches)
    assert after[1] > 3 * before[1]


@pytest.mark.parametrize("model", [tiny.LLAMA, tiny.QWEN2, tiny.QWEN3], ids=lambda model: model.architecture)
def test_the_target_s_rows_are_its_own(model: tiny.TinyModel, tmp_path: Path) -> None:
    path = tiny.write_tiny(tmp_path / "t.gguf", model)
    weights, decoder = TargetWeights.read(str(path)), Decoder(gguf.read(path), ReferenceOps())
    tokens = np.array([3, 17, 5], np.int32)
    np.testing.assert_array_equal(weights.output_rows(tokens), decoder.output.weights[tokens])
    np.testing.assert_array_equal(weights.output_norm(), decoder.output_norm)
    np.testing.assert_array_equal(weights.embeddings(tokens), quants.rows(decoder.embedding, tokens))
