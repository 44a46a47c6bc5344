"""A run that is killed goes on, and ends with the weights that it would have had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from foredraft.errors import ConfigError
from foredraft.train.reader import Reader, is_held_out
from foredraft.train.target import TargetWeights

torch = pytest.importorskip("torch")

from foredraft.models import gguf  # noqa: E402
from foredraft.train import loop  # noqa: E402
from foredraft.train.eagle3 import Eagle3  # noqa: E402
from foredraft.train.head import Head  # noqa: E402
from foredraft.train.loop import CHECKPOINT, Point, Schedule, Trainer, Training  # noqa: E402

SCHEDULE = Schedule(epochs=2, batch_tokens=64, interval=4, patience=100)


def make(target: Path, data: Path) -> tuple[Eagle3, Reader]:
    reader = Reader(data, SCHEDULE.batch_tokens, SCHEDULE.seed)
    head = Eagle3(TargetWeights.read(str(target)), reader.meta.taps, reader.most_frequent(64), 2)
    return head, reader


class Interrupted(Exception):
    pass


def test_a_run_that_goes_on_ends_with_the_same_weights(target: Path, data: Path, tmp_path: Path) -> None:
    head, reader = make(target, data)
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = Trainer(head, reader, SCHEDULE, tmp_path / "whole").run(lambda point: None)
    assert whole.epoch >= 1
    for stop in (4, 8, 12):

        def interrupt(point: Point, stop: int = stop) -> None:
            if point.step >= stop:
                raise Interrupted

        with pytest.raises(Interrupted):
            Trainer(*make(target, data), SCHEDULE, tmp_path / "parts").run(interrupt)
    again, reader = make(target, data)
    parts = Trainer(again, reader, SCHEDULE, tmp_path / "parts").run(lambda point: None)
    assert [point.step for point in parts.points] == [point.step for point in whole.points]
    assert [point.acceptance for point in parts.points] == [point.acceptance for point in whole.points]
    assert (parts.step, parts.tokens) == (whole.step, whole.tokens)
    for one, other in zip(head.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_killed_command_goes_on(target: Path, data: Path, tmp_path: Path) -> None:
    arguments = ["train", "eagle3", "--target", target, "--data", data, "--out", tmp_path / "run", "--epochs", "30"]
    arguments += ["--batch-tokens", "64", "--interval", "2", "--patience", "1000", "--positions", "2"]
    arguments += ["--draft-vocab", "64", "--threads", "1"]
    command = [sys.executable, "-m", "foredraft", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    path = tmp_path / "run" / CHECKPOINT
    while not path.exists() or loop.read_checkpoint(path.parent)["training"]["step"] < 6:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    step = loop.read_checkpoint(path.parent)["training"]["step"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    steps = [int(line.split()[1].strip(",")) for line in done.stdout.splitlines() if line.startswith("step ")]
    assert steps[0] == step + 2
    assert "best after" in done.stdout
    written = {file.name for file in path.parent.iterdir()}
    assert {"llama-eagle3.gguf", "training.json", "README.md", CHECKPOINT} <= written
    assert gguf.read(path.parent / "llama-eagle3.gguf").metadata["general.architecture"] == "eagle3"


def test_other_options_are_refused(target: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        Trainer(*make(target, data), SCHEDULE, tmp_path).run(_interrupt)
    with pytest.raises(ConfigError, match="other options"):
        Trainer(*make(target, data), Schedule(epochs=3), tmp_path)


def _interrupt(point: Point) -> None:
    raise Interrupted


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ConfigError, match="remove it to begin anew"):
        loop.read_checkpoint(tmp_path)


class Script(Head):
    """Guesses as well as it is told to at each evaluation."""

    kind = "script"
    num_positions = 1

    def __init__(self, rights: list[int]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.rights = iter(rights)

    def loss(self, batch):
        return (self.weight - 1).square().sum()

    def hits(self, batch):
        return np.array([100, next(self.rights)])

    def num_operations(self, size):
        return 0.0

    def config(self):
        return {}

    def tensors(self):
        return {}


def test_training_ends_when_acceptance_no_longer_rises(data: Path, tmp_path: Path, monkeypatch) -> None:
    reader = Reader(data, 64, 0)
    monkeypatch.setattr(reader, "validation", lambda most: [next(reader.epoch(0))])
    schedule = Schedule(epochs=100, batch_tokens=64, interval=1, patience=3)
    head = Script([10, 20, 30, 25, 30, 29, 99])
    training = Trainer(head, reader, schedule, tmp_path).run(lambda point: None)
    assert [point.acceptance[0] for point in training.points] == [0.1, 0.2, 0.3, 0.25, 0.3, 0.29]
    assert training.best.step == 2
    kept = head.weight.item()
    assert 0 < kept < loop.read_checkpoint(tmp_path)["head"]["weight"].item(), "the best weights are not the last ones"


def test_a_point_that_is_as_good_is_no_gain() -> None:
    def point(step: int, share: float) -> Point:
        return Point(step, 0, 0.0, None, (share,), share)

    training = Training(points=[point(0, 0.5), point(1, 0.5), point(2, 0.4)])
    assert training.best.step == 0
    assert training.is_over(2)
    assert not training.is_over(3)


def test_every_epoch_reads_every_document_once_in_its_own_order(data: Path) -> None:
    reader = Reader(data, 64, 0)
    orders = [[d.prompt for batch in reader.epoch(n) for d in batch.documents] for n in (0, 1)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    assert len(set(orders[0])) == len(orders[0]) == reader.size.num_documents
    held_out = {document.prompt for document in reader.held_out}
    assert held_out
    assert not held_out & set(orders[0])
    assert all(is_held_out(document) for document in reader.held_out)
    assert [d.prompt for batch in Reader(data, 64, 0).epoch(1) for d in batch.documents] == orders[1]


def test_validation_is_greedy(data: Path) -> None:
    reader = Reader(data, 64, 0)
    assert all(document.temperature == 0 for batch in reader.validation(10**6) for document in batch.documents)
