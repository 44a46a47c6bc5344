"""What the commands of `foredraft train` share: the way to run a training, and how progress is shown."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from foredraft.cli.output import progress
from foredraft.errors import UnavailableError

if TYPE_CHECKING:
    from foredraft.train.collect import Progress
    from foredraft.train.loop import Point
    from foredraft.train.run import Estimate, Maker

LINE_S = 60.0  # between lines where there is no terminal


class Meter:
    """Shows how data comes in: tokens, tokens a second and the time that is left."""

    def __init__(self, limit: int | None) -> None:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

        self._bar = progress(
            BarColumn(), TextColumn("{task.completed:,.0f} tokens, {task.fields[speed]:.0f}/s"), TimeRemainingColumn()
        )
        self._task = self._bar.add_task("data", total=limit, speed=0.0)
        self._start = self._last = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, state: Progress) -> None:
        now = time.monotonic()
        speed = state.num_new_tokens / max(now - self._start, 1e-3)
        self._bar.update(self._task, completed=state.num_tokens, speed=speed)
        if not sys.stderr.isatty() and now - self._last >= LINE_S:
            self._last = now
            click.echo(f"{state.num_documents} answers, {state.num_tokens} tokens, {speed:.0f} tokens/s", err=True)


def check_can_train() -> None:
    """Raises UnavailableError where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError("training needs PyTorch, which is not installed; run pip install 'foredraft[train]'")


def run_training(
    make: Maker, target: str, data: Path, out: Path, threads: int | None, schedule: Mapping[str, Any]
) -> None:
    """Train, say how it goes and what came of it. make: the head, of the target's weights and the data."""
    import torch

    from foredraft.train.loop import Schedule
    from foredraft.train.run import train_head

    if threads:
        torch.set_num_threads(threads)
    record = train_head(make, target, data, out, Schedule(**schedule), _announce, _tell)
    best = record["best"]
    click.echo(f"best after {best['step']} steps: {_shares(best['acceptance'])}; the head is in {out}")


def _announce(estimate: Estimate) -> None:
    click.echo(
        f"{estimate.answer_tokens:,} answer tokens, {estimate.operations / 1e12:.1f} TFLOP: "
        f"about {estimate.seconds / 60:.0f} minutes as fast as this machine computes now"
    )


def _tell(point: Point) -> None:
    loss = "" if point.loss is None else f"loss {point.loss:.3f}, "
    click.echo(
        f"step {point.step}, {point.tokens:,} tokens, {point.seconds:.0f} s: {loss}"
        f"accepted {_shares(point.acceptance)}, alpha {point.alpha:.3f}"
    )


def _shares(acceptance: Sequence[float]) -> str:
    return " ".join(f"{share:.1%}" for share in acceptance)
