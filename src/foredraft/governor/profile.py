"""What a pass costs: t(rows, context), measured as verification runs it.

One sequence of the context's length, then passes over a chain of rows with every row's logits wanted. Nothing is
committed, so each pass writes over the rows of the one before. Row counts take turns, every second round backwards, so
that a slow moment of the machine hits all of them and a steady drift cancels; a point is the median over the rounds.
Only the model is measured: choosing tokens from logits is not.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from foredraft.core import IntArray
from foredraft.drafters.loading import Drafter
from foredraft.errors import ModelError
from foredraft.governor.bandwidth import read_bandwidth
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PAGE_SIZE, PagedKV
from foredraft.models.decoder import Decoder
from foredraft.models.gguf import GGUFFile
from foredraft.ops.base import Batch, Ops

ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
DRAFT_ROWS = (1, 2, 4, 8, 16, 32)  # a draft is made one token at a time, for several sequences together
CONTEXTS = (64, 1024)
ROUNDS = 5

Clock = Callable[[], float]
Report = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """A pass over `rows` rows after `context` tokens: it takes `ms` and has to read `num_bytes` (see `pass_bytes`)."""

    rows: int
    context: int
    ms: float
    num_bytes: int

    @property
    def tokens_per_s(self) -> float:
        return self.rows / self.ms * 1e3

    @property
    def gb_s(self) -> float:
        return self.num_bytes / self.ms / 1e6


@dataclass(frozen=True)
class Profile:
    """The points of the target and of the draft model (none without one), beside the machine's read bandwidth."""

    provenance: dict[str, Any]
    bandwidth_gb_s: float
    points: tuple[Point, ...]
    draft: tuple[Point, ...] = ()

    def one_row(self, context: int) -> Point | None:
        """The target's pass over a single row at this context."""
        return next((point for point in self.points if (point.rows, point.context) == (1, context)), None)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Profile:
        """The opposite of `as_dict`; KeyError or TypeError where `values` are something else."""
        points, draft = (tuple(Point(**point) for point in values[name]) for name in ("points", "draft"))
        return cls(values["provenance"], float(values["bandwidth_gb_s"]), points, draft)


def profile(
    files: Mapping[str, GGUFFile],
    ops: Ops,
    threads: int,
    provenance: dict[str, Any],
    report: Report,
    kept: IntArray | None = None,
) -> Profile:
    """Measure the files "model" and (if given) "draft", one after the other; `report` hears what is going on.

    kept: the tokens whose logits the draft model computes; None: all.

    Raises:
        ModelError: a file cannot be used.
    """
    report("read bandwidth")
    bandwidth_gb_s = read_bandwidth(threads) / 1e9
    points = _file_points(files["model"], ops, ROWS, report)
    draft = _file_points(files["draft"], ops, DRAFT_ROWS, report, kept) if "draft" in files else ()
    return Profile(provenance, bandwidth_gb_s, points, draft)


def _file_points(
    file: GGUFFile, ops: Ops, rows: Sequence[int], report: Report, kept: IntArray | None = None
) -> tuple[Point, ...]:
    """Load the model and measure it as far as its own context has room."""
    report(f"loading {file.path.name}")
    decoder = Decoder(file, ops, kept)
    limit = decoder.arch.context_length
    fitting = [count for count in rows if count < limit]
    if not fitting:
        raise ModelError(f"{file.path}: the context has {limit} token; at least 2 are needed to measure a pass")
    contexts = sorted({min(context, limit - fitting[-1]) for context in CONTEXTS})
    return tuple(measure(Network.of(decoder), fitting, contexts, ROUNDS, report))


@dataclass(frozen=True)
class Network:
    """What passes are measured of.

    forward: a pass over a batch, whatever it computes. kv_shape: layers, KV heads and their size. context_length: most
    tokens of context and pass together. num_bytes: that a pass reads from memory after so many tokens of context, where
    that is known.
    """

    forward: Callable[[Batch, PagedKV], object]
    kv_shape: tuple[int, int, int]
    vocab_size: int
    context_length: int = sys.maxsize
    num_bytes: Callable[[int], int] = lambda context: 0

    @classmethod
    def of(cls, decoder: Decoder) -> Network:
        arch, num_bytes = decoder.arch, partial(pass_bytes, decoder)
        shape = (arch.num_layers, arch.num_kv_heads, arch.head_dim)
        return cls(decoder.forward, shape, decoder.vocab_size, arch.context_length, num_bytes)

    @classmethod
    def of_drafter(cls, drafter: Drafter) -> Network:
        return cls(drafter.rehearse, drafter.kv_shape or (0, 1, 1), drafter.vocab_size)


def measure(
    network: Network,
    rows: Sequence[int],
    contexts: Sequence[int],
    rounds: int,
    report: Report = lambda what: None,
    clock: Clock = time.perf_counter,
    summary: Callable[[list[float]], float] = statistics.median,
) -> list[Point]:
    """One point for each context and number of rows, in rising order. summary: makes one time of those of the rounds.

    rows, contexts: rising, 1 or more; together they fit into the model's context. `report` hears of every round.
    """
    passes = _Passes(network, contexts[-1] + rows[-1])
    points = []
    for context in contexts:
        passes.extend(context)
        for count in rows:
            passes.run(count)  # first touches of buffers and pages, not measured
        times_s: dict[int, list[float]] = {count: [] for count in rows}
        for number in range(rounds):
            report(f"context {context}, round {number + 1} of {rounds}")
            for count in rows if number % 2 == 0 else reversed(rows):
                start_s = clock()
                passes.run(count)
                times_s[count].append(clock() - start_s)
        num_bytes = network.num_bytes(context)
        points += [Point(count, context, summary(times_s[count]) * 1e3, num_bytes) for count in rows]
    return points


def pass_bytes(decoder: Decoder, context: int) -> int:
    """Bytes that a pass reads from memory, however few its rows: packed matrices, and the context's keys and values.

    Embeddings count where they are the output matrix too; the few rows that are looked up do not.
    """
    matrices = [decoder.output]
    slots = 0
    for layer in decoder.layers:
        matrices += [layer.query, layer.key, layer.value, layer.output, layer.gate, layer.up, layer.down]
        slots += min(context, layer.attention.window or context)
    slot_bytes = PagedKV.page_bytes(1, decoder.arch.num_kv_heads, decoder.arch.head_dim, page_size=1)
    weight_bytes: int = sum(matrix.num_bytes for matrix in matrices)
    return weight_bytes + slots * slot_bytes


class _Passes:
    """One sequence of tokens, keys and values without meaning, which a pass's time does not depend on."""

    def __init__(self, network: Network, most_tokens: int) -> None:
        self._forward = network.forward
        pages = -(-most_tokens // PAGE_SIZE)
        self._kv = PagedKV(*network.kv_shape, pages, share_prefixes=False)
        for layer in self._kv.layers:  # pages that were never written would all be one page of zeros
            layer.keys.fill(0.01)
            layer.values.fill(0.01)
        self._tokens = np.random.default_rng(0).integers(network.vocab_size, size=most_tokens).tolist()
        self._sequence = self._kv.open([])

    def extend(self, context: int) -> None:
        """Take tokens as read until there are `context` of them."""
        missing = self._tokens[self._sequence.length : context]
        self._kv.reserve(self._sequence, len(missing))
        self._kv.commit(self._sequence, missing)

    def run(self, rows: int) -> None:
        """A pass over the next `rows` tokens, all logits wanted, nothing committed."""
        length = self._sequence.length
        self._kv.reserve(self._sequence, rows)
        builder = BatchBuilder()
        builder.add(self._sequence, self._tokens[length : length + rows], range(rows))
        self._forward(builder.build(), self._kv)
