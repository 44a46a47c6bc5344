"""Measuring passes: a model whose time is known, with a clock that it moves itself."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from foredraft.errors import ModelError
from foredraft.governor import profile as profiling
from foredraft.governor.profile import Network, Point, Profile, measure, pass_bytes, profile
from foredraft.models import gguf
from foredraft.ops.native import NativeOps
from tiny import write_tiny


def fake_layer(window=0):
    matrix = SimpleNamespace(num_bytes=10)
    names = ("query", "key", "value", "output", "gate", "up", "down")
    return SimpleNamespace(attention=SimpleNamespace(window=window), **dict.fromkeys(names, matrix))


class ClockedModel:
    """A pass takes `cost_s(rows, context, how often this has run before)` of its own clock."""

    vocab_size = 10

    def __init__(self, cost_s, windows=(0, 0)):
        self.arch = SimpleNamespace(num_layers=len(windows), num_kv_heads=2, head_dim=4, context_length=4096)
        self.layers = [fake_layer(window) for window in windows]
        self.output = SimpleNamespace(num_bytes=1000)
        self.cost_s = cost_s
        self.now_s = 0.0
        self.passes = []  # (rows, context)

    def forward(self, batch, kv):
        run = (len(batch.tokens), int(batch.prefixes[0]))
        assert list(batch.positions) == list(range(run[1], sum(run)))
        assert len(batch.wanted) == run[0]
        self.now_s += self.cost_s(*run, self.passes.count(run))
        self.passes.append(run)
        return np.zeros((len(batch.wanted), self.vocab_size), np.float32)

    def measured(self, rows, contexts, rounds, **more):
        return measure(Network.of(self), rows, contexts, rounds, clock=lambda: self.now_s, **more)


def test_medians_without_the_first_touch():
    # 0 is the first touch; of the rounds, 1 is slow and 2 fast.
    extra_s = (100.0, 7.0, -0.5, 0.0)
    model = ClockedModel(lambda rows, context, before: rows + context / 8 + extra_s[before])
    points = model.measured([1, 2, 5], [8, 16], rounds=3)
    assert [(point.rows, point.context, point.ms) for point in points] == [
        (1, 8, 2000), (2, 8, 3000), (5, 8, 6000), (1, 16, 3000), (2, 16, 4000), (5, 16, 7000),
    ]  # fmt: skip


def test_row_counts_take_turns():
    model = ClockedModel(lambda rows, context, before: 1.0)
    model.measured([1, 2, 5], [8], rounds=3)
    assert [rows for rows, _ in model.passes] == [1, 2, 5, 1, 2, 5, 5, 2, 1, 1, 2, 5]


def test_contexts_are_there_without_being_read():
    model = ClockedModel(lambda rows, context, before: 1.0)
    heard = []
    model.measured([1, 3], [64, 700], rounds=2, report=heard.append)
    assert {context for _, context in model.passes} == {64, 700}
    assert heard[:2] == ["context 64, round 1 of 2", "context 64, round 2 of 2"]


def test_pass_bytes():
    model = ClockedModel(lambda *run: 1.0, windows=(0, 16))
    slot = 2 * 2 * 4 * 2  # keys and values, heads, their size, two bytes
    assert pass_bytes(model, 8) == 1000 + 2 * 7 * 10 + (8 + 8) * slot
    assert pass_bytes(model, 40) == 1000 + 2 * 7 * 10 + (40 + 16) * slot


def test_figures_of_a_point():
    point = Point(rows=4, context=64, ms=20.0, num_bytes=100_000_000)
    assert point.tokens_per_s == pytest.approx(200)
    assert point.gb_s == pytest.approx(5)


def test_profile_as_json():
    made = Profile({"date": "today"}, 20.5, (Point(1, 64, 2.5, 7), Point(2, 64, 2.6, 7)), (Point(1, 64, 0.5, 3),))
    written = json.loads(json.dumps(made.as_dict()))
    assert written["points"][1] == {"rows": 2, "context": 64, "ms": 2.6, "num_bytes": 7}
    assert written.keys() == {"provenance", "bandwidth_gb_s", "points", "draft"}
    assert Profile.from_dict(written) == made
    assert made.one_row(64) == made.points[0]
    assert made.one_row(65) is None


def tiny_profile(monkeypatch, tmp_path, context_length):
    monkeypatch.setattr(profiling, "read_bandwidth", lambda threads: threads * 1e9)
    monkeypatch.setattr(profiling, "ROUNDS", 1)
    file = gguf.read(write_tiny(tmp_path / "tiny.gguf", context_length=context_length))
    return profile({"model": file, "draft": file}, NativeOps(2), 2, {}, lambda what: None)


@pytest.mark.parametrize(
    ("context_length", "rows", "contexts", "of_draft", "draft_contexts"),
    [
        (2, {1}, {1}, {1}, {1}),
        (20, {1, 2, 3, 4, 5, 6, 8, 12, 16}, {4}, {1, 2, 4, 8, 16}, {4}),
        (512, {*profiling.ROWS}, {64, 480}, {*profiling.DRAFT_ROWS}, {64, 480}),
    ],
)
def test_a_short_context_bounds_the_grid(
    monkeypatch, tmp_path, context_length, rows, contexts, of_draft, draft_contexts
):
    made = tiny_profile(monkeypatch, tmp_path, context_length)
    assert {(point.rows, point.context) for point in made.points} == {(n, c) for n in rows for c in contexts}
    assert [(point.rows, point.context) for point in made.draft] == [
        (n, c) for c in sorted(draft_contexts) for n in sorted(of_draft)
    ]
    assert all(point.ms > 0 and point.num_bytes > 0 for point in made.points + made.draft)
    assert made.bandwidth_gb_s == 2


def test_a_context_without_room(monkeypatch, tmp_path):
    with pytest.raises(ModelError, match="the context has 1 token"):
        tiny_profile(monkeypatch, tmp_path, 1)
