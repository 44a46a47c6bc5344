"""Where models come from: the two functions that touch the network, one per source."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from foredraft.errors import DownloadError

CONNECT_SECONDS = 5
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

# (repository, file, empty folder) -> the file, somewhere in the folder. Raises DownloadError with a reason.
FetchFile = Callable[[str, str, Path], Path]
# (requirement, empty folder) -> the wheel, in the folder. Raises DownloadError with a reason.
FetchWheel = Callable[[str, Path], Path]


def hub_file(repository: str, file_name: str, folder: Path) -> Path:
    """Download one public file from Hugging Face into `folder`."""
    import huggingface_hub
    from huggingface_hub.utils.tqdm import disable_progress_bars

    try:
        # The library retries for half a minute without a connection; this asks once.
        url = huggingface_hub.hf_hub_url(repository, file_name)
        huggingface_hub.get_session().head(url, timeout=CONNECT_SECONDS)
    except Exception as error:  # of whichever HTTP library it uses
        raise DownloadError(f"no connection ({_one_line(str(error))})") from error
    disable_progress_bars()
    try:
        return Path(huggingface_hub.hf_hub_download(repository, file_name, local_dir=folder, token=False))
    except Exception as error:  # likewise
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise
        raise DownloadError(_one_line(str(error))) from error


def pip_wheel(requirement: str, folder: Path) -> Path:
    """Download one wheel with pip into `folder`, past pip's cache, which would keep a second copy."""
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(f"this Python has no pip; run {sys.executable} -m ensurepip (or uv pip install pip) first")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--timeout=15", "--retries=2"]
    # pip's own temporary files go to the same disk, where progress is watched and space was checked.
    environment = {**os.environ, "TMPDIR": str(folder)}
    result = subprocess.run(
        [*command, "-d", str(folder), requirement], env=environment, stdin=subprocess.DEVNULL, capture_output=True
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        raise DownloadError(_pip_reason(result.stderr.decode(errors="replace"), requirement))
    return wheels[0]


def _pip_reason(stderr: str, requirement: str) -> str:
    """One line of what pip had to say."""
    if "connection broken by" in stderr:
        return f"no connection to the package index for {requirement}"
    errors = re.findall(r"^ERROR: (.+)$", stderr, re.MULTILINE) or stderr.split("\n")
    return _one_line(next((line for line in reversed(errors) if line.strip()), f"pip failed on {requirement}"))


def _one_line(text: str) -> str:
    return (text.strip().split("\n")[0] or "no reason given")[:200].rstrip(". ")
