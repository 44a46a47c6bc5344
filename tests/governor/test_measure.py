"""The costs that a governor starts with: measured once, kept, and never in the way."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

import tiny
import tiny_drafters
from checkpoint_writer import write_directory
from foredraft import ops as op_sets
from foredraft.drafters import loading
from foredraft.engine.loading import load_target
from foredraft.governor import measure, profile, profile_cache
from foredraft.governor.measure import curves
from foredraft.governor.profile import Network, Point, Profile
from foredraft.governor.profile_cache import profile_path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(profile_cache, "FOLDER", tmp_path / "profiles")
    return tmp_path / "profiles"


@pytest.fixture
def files(tmp_path):
    files = {role: tmp_path / f"{role}.gguf" for role in ("model", "draft")}
    for path in files.values():
        path.write_bytes(path.name.encode())
    return files


@pytest.fixture
def measured(monkeypatch):
    """What was measured: the time of a model's pass beside its rows, with rows and contexts, in order."""
    calls = []

    def fake(network, rows, contexts, *_, **__):
        ms = network.forward(None, None)
        calls.append((ms, list(rows), list(contexts)))
        return [Point(r, c, ms + r, 1) for r in rows for c in contexts]

    monkeypatch.setattr(measure, "measure", fake)
    return calls


def decoders(*roles: str, context_length: int = 4096) -> dict[str, SimpleNamespace]:
    arch = SimpleNamespace(context_length=context_length, num_layers=1, num_kv_heads=1, head_dim=2)
    return {role: model(10.0 if role == "model" else 20.0, arch=arch, kept=None) for role in roles}


def model(ms: float, **more: object) -> SimpleNamespace:
    made = SimpleNamespace(ms=ms, vocab_size=10, kv_shape=None, **more)
    made.forward = made.rehearse = lambda batch, kv: made.ms
    return made


def of(files: dict[str, Path], *roles: str) -> dict[str, Path]:
    return {role: files[role] for role in roles}


def test_a_model_is_measured_once(folder, files, measured):
    first = curves(decoders("model"), of(files, "model"), 2, "avx2")
    assert first.drafts == {}
    assert measured
    measured.clear()
    again = curves(decoders("model"), of(files, "model"), 2, "avx2")
    assert measured == []
    assert again.target.cost == first.target.cost
    assert first.target.cost(4) == pytest.approx(0.014)
    curves(decoders("model"), of(files, "model"), 1, "avx2")
    assert measured
    assert [path.suffixes for path in folder.iterdir()] == [[".quick", ".json"]] * 2  # and no half-written file


def test_a_draft_model_is_measured_beside_its_target(folder, files, measured):
    both = curves(decoders("model", "draft"), files, 2, "avx2")
    assert {ms for ms, _, _ in measured} == {10.0, 20.0}
    assert both.drafts.keys() == {"draft_model"}
    assert both.draft("draft_model").cost(4) == pytest.approx(0.024)
    measured.clear()
    again = curves(decoders("model", "draft"), files, 2, "avx2")
    assert measured == []
    assert again.draft("draft_model").cost == both.draft("draft_model").cost


def test_a_trimmed_draft_model_is_measured_anew(folder, files, measured):
    """By how many tokens it keeps: neither the kept curve nor the full profile of the whole model holds for it."""
    whole = Profile({}, 10.0, (Point(1, 0, 7.0, 1), Point(8, 0, 7.0, 1)), (Point(1, 0, 3.0, 1), Point(8, 0, 3.0, 1)))
    path = profile_path(files, 2, "avx2")
    path.parent.mkdir()
    path.write_text(json.dumps(whole.as_dict()))
    both = decoders("model", "draft")
    both["draft"].kept, both["draft"].ms = range(100), 15.0
    found = curves(both, files, 2, "avx2")
    assert 15.0 in [ms for ms, _, _ in measured]
    assert found.draft("draft_model").cost(4) == pytest.approx(0.019)
    measured.clear()
    both["draft"].kept = range(100, 200)
    assert curves(both, files, 2, "avx2").draft("draft_model").cost == found.draft("draft_model").cost
    assert measured == []
    both["draft"].kept = range(99)
    curves(both, files, 2, "avx2")
    assert measured


def test_drafters_are_measured_apart(folder, files, measured):
    """One that is added, or changed, does not have the others measured again."""
    for kind in ("eagle3", "medusa"):
        files[f"drafter {kind}"] = folder.parent / kind
        files[f"drafter {kind}"].write_text(kind)
    alone = curves(decoders("model"), files, 2, "avx2")
    measured.clear()
    drafters = {"eagle3": model(2.0)}
    found = curves(decoders("model"), files, 2, "avx2", drafters)
    assert {ms for ms, _, _ in measured} == {2.0}
    assert found.target.cost == alone.target.cost
    assert found.drafts.keys() == {"eagle3"}
    assert found.draft("eagle3").cost(4) == pytest.approx(0.006)
    measured.clear()
    drafters["medusa"] = model(3.0)
    again = curves(decoders("model", "draft"), files, 2, "avx2", drafters)
    assert {ms for ms, _, _ in measured} == {10.0, 20.0, 3.0}
    assert again.drafts.keys() == {"draft_model", "eagle3", "medusa"}
    assert again.draft("eagle3").cost == found.draft("eagle3").cost
    measured.clear()
    files["drafter eagle3"].write_text("trained for longer")
    curves(decoders("model"), files, 2, "avx2", drafters)
    assert {ms for ms, _, _ in measured} == {2.0}


def test_a_short_context_is_not_overrun(folder, files, measured):
    curves(decoders("model", context_length=20), of(files, "model"), 2, "avx2")
    assert measured
    assert all(rows[-1] + contexts[-1] <= 20 for _, rows, contexts in measured)


BROKEN = ["", "{", "[]", "{}", '{"model": [{"rows": 1}]}', '{"model": []}', '{"model": null}', '{"draft": []}', "\x00"]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_measured_anew(folder, files, measured, text):
    path = profile_path(of(files, "model"), 2, "avx2").with_suffix(".quick.json")
    path.parent.mkdir()
    path.write_text(text)
    found = curves(decoders("model"), of(files, "model"), 2, "avx2")
    assert measured
    assert found.target.cost(4) == pytest.approx(0.014)
    assert json.loads(path.read_text()).keys() == {"model"}


def test_a_full_profile_is_preferred(folder, files, measured):
    curves(decoders("model", "draft"), files, 2, "avx2")
    made = Profile({}, 10.0, tuple(Point(r, 0, 7.0, 1) for r in (1, 8)), tuple(Point(r, 0, 3.0, 1) for r in (1, 8)))
    profile_path(files, 2, "avx2").write_text(json.dumps(made.as_dict()))
    measured.clear()
    found = curves(decoders("model", "draft"), files, 2, "avx2")
    assert measured == []
    assert found.target.cost(8) == pytest.approx(0.007)
    assert found.draft("draft_model").cost(8) == pytest.approx(0.003)


def test_a_full_profile_that_is_broken_is_no_profile(folder, files, measured):
    path = profile_path(of(files, "model"), 2, "avx2")
    path.parent.mkdir()
    path.write_text(json.dumps(Profile({}, 10.0, ()).as_dict()))
    assert curves(decoders("model"), of(files, "model"), 2, "avx2").target.cost(4) == pytest.approx(0.014)


def test_a_folder_that_cannot_be_written_is_no_error(files, measured, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "foredraft")
    (tmp_path / "a file").write_text("")
    monkeypatch.setattr(profile_cache, "FOLDER", tmp_path / "a file" / "profiles")
    for _ in range(2):
        measured.clear()
        assert curves(decoders("model"), of(files, "model"), 2, "avx2").target.cost(1) == pytest.approx(0.011)
        assert measured
    assert "not kept" in caplog.text


@pytest.mark.parametrize("kind", ["eagle3", "medusa", "mtp"])
def test_a_real_drafter_is_measured(tmp_path, kind):
    """With keys and values of its own, or without any."""
    target, tokenizer, _ = load_target(tiny.write_tiny(tmp_path / "llama.gguf"), op_sets.create("reference", 1))
    path = write_directory(tmp_path / "drafter", *getattr(tiny_drafters, kind)())
    drafter = loading.load(path, target, tokenizer)
    points = profile.measure(Network.of_drafter(drafter), [1, 2], [4, 8], rounds=1)
    assert [(point.rows, point.context) for point in points] == [(1, 4), (2, 4), (1, 8), (2, 8)]
    assert all(point.ms > 0 for point in points)
