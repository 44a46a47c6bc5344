"""Who may use the server: API keys, compared in constant time."""

from __future__ import annotations

import hmac
import os
from pathlib import Path

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from foredraft.errors import ConfigError
from foredraft.server.errors import ApiError

VARIABLE = "FOREDRAFT_API_KEYS"
_SCOPE = "foredraft.cache_scope"
_OPEN_PATHS = {"/health", "/version", "/openapi.json"}  # they say nothing about anybody's requests


def cache_scope(request: Request) -> str:
    """What a request may share the prefix cache with: requests that came with the same key."""
    scope: str = request.scope.get(_SCOPE, "")
    return scope


class ApiKeys:
    """Middleware that lets a request in if it comes with one of the keys (Authorization: Bearer KEY).

    It answers before anything of the body is read.
    """

    def __init__(self, app: ASGIApp, keys: tuple[str, ...]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        which = self._which(scope)
        if which is not None:
            await self._app({**scope, _SCOPE: f"key {which}"}, receive, send)
            return
        error = ApiError(
            401,
            "a valid API key is needed: Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error.response()(scope, receive, send)

    def _which(self, scope: Scope) -> int | None:
        """The place in the list of the key that a request came with."""
        kind, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        # All are compared, so that the time does not tell which one came close.
        matches = [hmac.compare_digest(given.strip(), key) for key in self._keys]
        return matches.index(True) if kind.lower() == b"bearer" and any(matches) else None


def read_keys(file: Path | None) -> tuple[str, ...]:
    """Keys from the environment (FOREDRAFT_API_KEYS, separated by commas) and from a file (one a line, # comments).

    Raises:
        ConfigError: the variable is set but holds no key, the file cannot be read or holds none, or a key has
            characters that no header can carry.
    """
    given = os.environ.get(VARIABLE)
    keys = [key.strip() for key in (given or "").split(",")]
    if given is not None and not any(keys):  # a secret that did not arrive must not open the server
        raise ConfigError(f"{VARIABLE} is set but holds no API key; unset it to let everybody in")
    if file is not None:
        try:
            lines = [line.partition("#")[0].strip() for line in file.read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"the API keys in {file} cannot be read ({exc})") from exc
        if not any(lines):
            raise ConfigError(f"{file} holds no API key; write one a line")
        keys += lines
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise ConfigError("an API key has a character other than printable ASCII without spaces; choose another")
    return tuple(dict.fromkeys(key for key in keys if key))
