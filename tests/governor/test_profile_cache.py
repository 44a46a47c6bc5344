import json
from pathlib import Path

import pytest

from foredraft.governor import profile_cache
from foredraft.governor.profile import Point, Profile
from foredraft.governor.profile_cache import profile_path, read_profile


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF, and more")
    return path


def test_same_model_and_machine(monkeypatch, tmp_path, model):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(profile_cache, "FOLDER", Path("~/.cache/foredraft/profiles"))
    path = profile_path({"model": model}, 2, "avx2")
    assert path.parent == tmp_path / ".cache" / "foredraft" / "profiles"
    copy = tmp_path / "elsewhere" / model.name
    copy.parent.mkdir()
    copy.write_bytes(model.read_bytes())
    assert profile_path({"model": copy}, 2, "avx2") == path


def test_everything_that_a_time_depends_on_has_a_path_of_its_own(monkeypatch, tmp_path, model):
    other = tmp_path / "other.gguf"
    other.write_bytes(model.read_bytes())
    paths = [
        profile_path(models, threads, isa)
        for models, threads, isa in (
            ({"model": model}, 2, "avx2"),
            ({"model": model}, 3, "avx2"),
            ({"model": model}, 2, "portable"),
            ({"model": other}, 2, "avx2"),
            ({"model": model, "draft": other}, 2, "avx2"),
        )
    ]
    paths += [profile_path({"model": model, "draft": other}, 2, "avx2", num_kept) for num_kept in (100, 200)]
    with monkeypatch.context() as patch:
        patch.setattr(profile_cache, "__version__", "0.0.1")
        paths.append(profile_path({"model": model}, 2, "avx2"))
    with monkeypatch.context() as patch:
        patch.setattr(profile_cache, "machine", lambda: {"cpu": "another"})
        paths.append(profile_path({"model": model}, 2, "avx2"))
    for change in (b"GGUF, and MORE", b"GGUF, and more still"):
        model.write_bytes(change)
        paths.append(profile_path({"model": model}, 2, "avx2"))
    assert len(set(paths)) == len(paths) == 11


def test_reading(tmp_path):
    path = tmp_path / "profile.json"
    assert read_profile(path) is None
    made = Profile({}, 10.0, (Point(1, 64, 2.5, 7),))
    path.write_text(json.dumps(made.as_dict()))
    assert read_profile(path) == made


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"points": [{"rows": 1}], "draft": [], "provenance": {}}'])
def test_what_is_no_profile_is_none(tmp_path, text):
    path = tmp_path / "profile.json"
    path.write_text(text)
    assert read_profile(path) is None
