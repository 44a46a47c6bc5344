"""A training run from data to files: a head as one GGUF file, its record, and its card."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from foredraft.provenance import identity, provenance
from foredraft.train.card import CARD, RECORD, card
from foredraft.train.export import write_gguf
from foredraft.train.head import Head
from foredraft.train.loop import CHECKPOINT, Point, Schedule, Trainer, read_checkpoint
from foredraft.train.reader import Reader
from foredraft.train.shards import write_atomically
from foredraft.train.target import TargetWeights

START_BATCHES = 60  # that a head is begun from
Maker = Callable[[TargetWeights, Reader], Head]


@dataclass(frozen=True)
class Estimate:
    """What a run will take, from a short measurement of this machine's speed."""

    operations: float
    seconds: float
    answer_tokens: int


def train_head(
    make: Maker,
    target: str,
    data: Path,
    folder: Path,
    schedule: Schedule,
    announce: Callable[[Estimate], None],
    tell: Callable[[Point], None],
) -> dict[str, Any]:
    """Train what `make` makes, or go on with the run in `folder`; returns its record, which is written there too.

    Raises:
        ConfigError: the data is another target's, or the folder holds another run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = TargetWeights.read(target)
    is_resumed = (folder / CHECKPOINT).exists()
    reader = Reader(
        data, schedule.batch_tokens, schedule.seed, read_checkpoint(folder)["shards"] if is_resumed else None
    )
    weights.check(reader.meta, data)
    head = make(weights, reader)
    if not is_resumed:
        head.start(islice(reader.epoch(0), START_BATCHES))
    trainer = Trainer(head, reader, schedule, folder)
    announce(_estimate(head, reader, schedule))
    training = trainer.run(tell)
    record = {
        "kind": head.kind,
        "target": identity(weights.path),
        "data": {
            **asdict(reader.size),
            "held_out": len(reader.held_out),
            "origins": dict(reader.origins.most_common()),
        },
        "sampling": reader.meta.sampling,
        "schedule": asdict(schedule),
        "head": head.config(),
        "num_parameters": sum(parameter.numel() for parameter in head.parameters()),
        "points": [asdict(point) for point in training.points],
        "best": asdict(training.best),
        "provenance": provenance({"target": weights.path}, {}),
    }
    _save(folder, weights, head, record)
    return record


def _save(folder: Path, weights: TargetWeights, head: Head, record: Mapping[str, Any]) -> None:
    name = f"{weights.path.stem}-{head.kind}"
    about = {"general.name": name, "general.description": f"{head.kind} drafter for {weights.path.name}"}
    write_gguf(folder / f"{name}.gguf", head.kind, head.config(), head.tensors(), about)
    write_atomically(folder / RECORD, (json.dumps(record, indent=1) + "\n").encode())
    write_atomically(folder / CARD, card(record, None).encode())


def _estimate(head: Head, reader: Reader, schedule: Schedule) -> Estimate:
    operations = head.num_operations(reader.size) * schedule.epochs
    a = torch.randn(512, 1024)
    start = time.perf_counter()
    for _ in range(8):
        torch.mm(a.T, a)
    speed = 8 * 2 * 512 * 1024**2 / (time.perf_counter() - start)
    return Estimate(operations, operations / speed, round(reader.size.num_answer_tokens * schedule.epochs))
