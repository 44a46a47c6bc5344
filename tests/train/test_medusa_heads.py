"""Medusa heads in training compute what the same heads compute when they draft."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foredraft.drafters import loading
from foredraft.drafters.medusa import MedusaHeads
from foredraft.models import gguf
from foredraft.models.decoder import Decoder
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops.reference import ReferenceOps
from foredraft.train.export import write_directory
from foredraft.train.reader import Batch, Reader
from foredraft.train.target import TargetWeights

torch = pytest.importorskip("torch")

from foredraft.train.medusa import Medusa  # noqa: E402


@pytest.fixture
def reader(data: Path) -> Reader:
    return Reader(data, 64, 0)


@pytest.fixture
def head(target: Path, reader: Reader) -> Medusa:
    made = Medusa(TargetWeights.read(str(target)), reader.most_frequent(96), 3)
    made.start(reader.epoch(0))
    return made


def scrambled(head: Medusa) -> Medusa:
    """Weights of no particular meaning, so that every part has a say."""
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        for parameter in head.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return head


def drafting(head: Medusa, target: Path, path: Path) -> MedusaHeads:
    write_directory(path, head.config(), head.tensors())
    file = gguf.read(target)
    made = loading.load(path, Decoder(file, ReferenceOps()), Tokenizer.from_metadata(file.metadata))
    assert isinstance(made, MedusaHeads)
    return made


def test_heads_in_training_are_those_that_draft(head: Medusa, target: Path, reader: Reader, tmp_path: Path) -> None:
    heads = drafting(scrambled(head), target, tmp_path / "heads")
    np.testing.assert_array_equal(heads.target_ids, reader.most_frequent(96))
    document = next(reader.epoch(0)).documents[0]
    with torch.no_grad():
        x = head._hidden(document)
        ours = np.stack([head._logits(x, number).numpy() for number in range(3)])
    hidden = document.features[:, -x.shape[1] :].astype(np.float32)
    theirs = heads.logits(hidden, 3)
    assert theirs.std() > 0.5
    np.testing.assert_allclose(ours, theirs, atol=0.05 * theirs.std())  # matrices have 8 bits when drafting


def test_hits_are_those_of_drafts(head: Medusa, target: Path, reader: Reader, tmp_path: Path) -> None:
    heads = drafting(head, target, tmp_path / "heads")
    found = np.zeros(4, np.int64)
    documents = reader.held_out
    for document in documents:
        tokens = document.tokens
        guesses = heads.target_ids[heads.logits(document.features[:, -64:].astype(np.float32), 3).argmax(2)]
        for row in range(document.prompt_len - 1, len(tokens) - 4):
            found[0] += 1
            for depth in range(3):
                if guesses[depth, row] != tokens[row + 2 + depth]:
                    break
                found[depth + 1] += 1
    hits = head.hits(Batch(tuple(documents)))
    assert hits[0] == found[0] > 20
    assert abs(hits - found).max() <= 1 + found[0] // 50  # matrices have 8 bits when drafting


def test_training_lowers_the_loss(head: Medusa, reader: Reader) -> None:
    batches = list(reader.epoch(0))

    def mean() -> float:
        with torch.no_grad():
            return sum(head.loss(batch).item() for batch in batches) / len(batches)

    before, optimizer = mean(), torch.optim.AdamW(head.parameters(), lr=3e-3)
    for _ in range(3):
        for batch in batches:
            optimizer.zero_grad()
            head.loss(batch).backward()
            optimizer.step()
    assert mean() < before - 0.2
