"""The training loop: any head, interruptible at any point, until the held-out acceptance no longer rises.

Everything that decides what comes next is in the checkpoint, which is replaced as a whole. A run that is killed goes on
from the last one and ends with the weights that it would have had.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foredraft.errors import ConfigError
from foredraft.train.head import Head
from foredraft.train.reader import Reader
from foredraft.train.shards import write_atomically

CHECKPOINT = "checkpoint.pt"
WARM_UP, LAST_RATE = 0.06, 0.05  # of all tokens; of the learning rate, at the end
GRADIENT_NORM = 1.0


@dataclass(frozen=True)
class Schedule:
    """How a head is trained.

    epochs: passes over the data. learning_rate: the highest, of weights of size 1; it rises over the first steps
    and falls along a cosine.
    interval: steps between evaluations, each of which writes a checkpoint. patience: evaluations in a row without a
    gain after which training ends. validation_tokens: held-out answer tokens that an evaluation looks at.
    """

    epochs: float = 2.0
    learning_rate: float = 1.5e-3
    batch_tokens: int = 512
    interval: int = 50
    patience: int = 5
    validation_tokens: int = 3000
    seed: int = 0


@dataclass(frozen=True)
class Point:
    """What an evaluation found. tokens: answer tokens trained on so far, each time they were seen.

    acceptance: share of drafts that are right up to each position. alpha: chance that a token is right given that all
    before it are. loss: mean over the steps since the last evaluation, None at the start.
    """

    step: int
    tokens: int
    seconds: float
    loss: float | None
    acceptance: tuple[float, ...]
    alpha: float

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a pass of the target would give, the bonus token included."""
        return 1 + sum(self.acceptance)


@dataclass
class Training:
    """Where a run stands; all of it is in the checkpoint."""

    epoch: int = 0
    batch: int = 0  # of the epoch: the next one
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    points: list[Point] = field(default_factory=list)

    @property
    def best(self) -> Point:
        return max(self.points, key=lambda point: point.tokens_per_step)

    def is_over(self, patience: int) -> bool:
        """Whether none of the last evaluations was better than the best before them."""
        return len(self.points) - 1 - self.points.index(self.best) >= patience


class Trainer:
    """Trains `head` on `reader`'s data; checkpoints go to `folder`.

    Raises:
        ConfigError: there is a checkpoint of another schedule or head.
    """

    def __init__(self, head: Head, reader: Reader, schedule: Schedule, folder: Path) -> None:
        self._head, self._reader, self._schedule, self._folder = head, reader, schedule, folder
        self._parameters = [parameter for parameter in head.parameters() if parameter.requires_grad]
        groups = [{"params": [parameter], "size": _size(parameter)} for parameter in self._parameters]
        self._optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)
        self.training = Training()
        self._best_state: dict[str, Any] = {}
        self._validation = reader.validation(schedule.validation_tokens)
        self._last_token = reader.size.num_answer_tokens * schedule.epochs
        self.is_resumed = (folder / CHECKPOINT).exists()
        if self.is_resumed:
            self._resume()

    def run(self, tell: Callable[[Point], None]) -> Training:
        """Train to the end of the schedule or of patience, then leave the best weights in the head.

        tell: hears of every evaluation.
        """
        training, started = self.training, time.monotonic() - self.training.seconds
        losses: list[float] = []
        if not training.points:
            self._evaluate(started, losses, tell)
        while training.tokens < self._last_token and not training.is_over(self._schedule.patience):
            for batch in islice(self._reader.epoch(training.epoch), training.batch, None):
                losses.append(self._step(self._head.loss(batch)))
                training.batch += 1
                training.tokens += batch.num_answer_tokens
                is_last = training.tokens >= self._last_token
                if is_last or training.step % self._schedule.interval == 0:
                    self._evaluate(started, losses, tell)
                if is_last or training.is_over(self._schedule.patience):
                    break
            else:
                training.epoch, training.batch = training.epoch + 1, 0
        self._head.load_state_dict(self._best_state)
        return training

    def _step(self, loss: Tensor) -> float:
        for group in self._optimizer.param_groups:
            share = self.training.tokens / self._last_token
            group["lr"] = self._schedule.learning_rate * group["size"] * _rate(share)
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._parameters, GRADIENT_NORM)
        self._optimizer.step()
        self.training.step += 1
        return loss.item()

    def _evaluate(self, started: float, losses: list[float], tell: Callable[[Point], None]) -> None:
        found = sum((self._head.hits(batch) for batch in self._validation), np.zeros(1, np.int64))
        acceptance = tuple(float(share) for share in found[1:] / max(found[0], 1))
        alpha = float(found[1:].sum() / max(found[:-1].sum(), 1))
        training = self.training
        training.seconds = time.monotonic() - started
        loss = sum(losses) / len(losses) if losses else None
        losses.clear()
        point = Point(training.step, training.tokens, training.seconds, loss, acceptance, alpha)
        training.points.append(point)
        if training.best is point:
            self._best_state = {name: value.clone() for name, value in self._head.state_dict().items()}
        self._save()
        tell(point)

    def _save(self) -> None:
        buffer = io.BytesIO()
        torch.save(
            {
                "kind": self._head.kind,
                "schedule": asdict(self._schedule),
                "shards": self._reader.paths,
                "training": {**vars(self.training), "points": [asdict(point) for point in self.training.points]},
                "head": self._head.state_dict(),
                "best": self._best_state,
                "optimizer": self._optimizer.state_dict(),
            },
            buffer,
        )
        write_atomically(self._folder / CHECKPOINT, buffer.getvalue())

    def _resume(self) -> None:
        saved = read_checkpoint(self._folder)
        if saved["kind"] != self._head.kind or saved["schedule"] != asdict(self._schedule):
            raise ConfigError(
                f"{self._folder} holds a run with other options ({saved['kind']}, {saved['schedule']}); "
                "give the same ones to go on with it, or another folder"
            )
        points = [Point(**{**point, "acceptance": tuple(point["acceptance"])}) for point in saved["training"]["points"]]
        self.training = Training(**{**saved["training"], "points": points})
        self._head.load_state_dict(saved["head"])
        self._best_state = saved["best"]
        self._optimizer.load_state_dict(saved["optimizer"])


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """What a run has left in `folder`; nothing in it is executed.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        saved: dict[str, Any] = torch.load(folder / CHECKPOINT, weights_only=True)
    except Exception as error:  # whatever the file holds
        raise ConfigError(f"{folder / CHECKPOINT} cannot be read ({error!s:.100}); remove it to begin anew") from None
    return saved


def _size(parameter: Tensor) -> float:
    """Root mean square of a tensor's weights: a step of Adam has one length for all, and would wipe out small ones that
    have been fitted to large inputs."""
    return max(parameter.detach().square().mean().sqrt().item(), 1e-4)


def _rate(share: float) -> float:
    """The learning rate when so much of the training is over, relative to the highest."""
    rising = (share + WARM_UP / 10) / WARM_UP
    falling = LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * share)) / 2
    return min(rising, 1.0) * falling
