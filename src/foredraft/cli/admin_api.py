"""Speaking to the admin API of a running server, with the standard library alone."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foredraft.cli.files import read_text
from foredraft.errors import ConfigError, UnavailableError

VARIABLE = "FOREDRAFT_ADMIN_KEY"
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class AdminApi:
    """The admin API of the server at `url`, with a key where it asks for one."""

    url: str
    key: str

    def __call__(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Its answer.

        Raises:
            UnavailableError: there is no answer, or none of such a server.
            ConfigError: it refuses, in its own words.
        """
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(
                f"{self.url.rstrip('/')}{path}", data, {**headers, "Content-Type": "application/json"}, method=method
            )
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise ConfigError(f"{self.url} refuses: {_reason(error)}") from None
        except (OSError, ValueError) as error:  # also an address that is none, and an answer that is not JSON
            reason = getattr(error, "reason", error)
            raise UnavailableError(
                f"{self.url} does not answer ({reason}); give the --url of a running server"
            ) from None
        if not isinstance(answer, dict):
            raise UnavailableError(f"{self.url} is another kind of server; give the --url of `foredraft serve`")
        return answer


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        message = str(json.load(error)["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        message = f"status {error.code}; give the --url of `foredraft serve`"
    return message + (f"; set {VARIABLE} or give --admin-key-file" if error.code == 401 else "")


def admin_key(file: Path | None) -> str:
    """The key in a file, or else in the environment; empty for none.

    Raises:
        ConfigError: the file cannot be read, or does not hold one key.
    """
    if file is None:
        return os.environ.get(VARIABLE, "")
    keys = [line.partition("#")[0].split() for line in read_text(file).splitlines()]
    keys = [words for words in keys if words]
    if len(keys) != 1:
        raise ConfigError(f"{file} holds {len(keys)} keys; give a file with one")
    return keys[0][-1]  # a name may stand before it, as in the server's own file
