import pytest

from cli_run import refused
from foredraft.models import catalog, pull


def test_list(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("FOREDRAFT_MODELS", str(tmp_path))
    model = catalog.MODELS["smollm2-135m"]
    with (tmp_path / model.file_name).open("wb") as file:
        file.truncate(model.num_bytes)
    rows = {line.split("│")[1].strip(): line for line in cli("pull", "--list").out.splitlines() if "│" in line}
    assert rows.keys() == catalog.MODELS.keys()
    assert rows["smollm2-135m"].rstrip("│ ").endswith("yes")
    assert rows["gemma3-270m"].rstrip("│ ").endswith("no")
    assert "98 MB" in rows["smollm2-135m"]
    assert "Apache-2.0" in rows["smollm2-135m"]


def test_pull_says_where_the_file_is(cli, monkeypatch, tmp_path):
    pulled = []

    def fake_pull(name, progress):
        progress(5, 10)
        pulled.append(name)
        return tmp_path / name

    monkeypatch.setattr(pull, "pull", fake_pull)
    done = cli("pull", "smollm2-135m", "gemma3-270m")
    assert done.status == 0
    assert pulled == ["smollm2-135m", "gemma3-270m"]
    assert done.out == f"smollm2-135m: {tmp_path}/smollm2-135m\ngemma3-270m: {tmp_path}/gemma3-270m\n"


def test_unknown_name_is_refused_before_anything_is_fetched(cli, monkeypatch):
    monkeypatch.setattr(pull, "pull", lambda *arguments: pytest.fail("must not fetch"))
    assert "known are smollm2-135m" in refused(cli("pull", "smollm2-135m", "smollm3"))


def test_no_name(cli):
    assert "foredraft pull --list shows" in refused(cli("pull"))
