"""Who may use the server: API keys, compared in constant time. Clients and administrators have keys of their own."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from foredraft.errors import ConfigError
from foredraft.server.errors import ApiError

VARIABLE = "FOREDRAFT_API_KEYS"
ADMIN_VARIABLE = "FOREDRAFT_ADMIN_KEYS"
ADMIN_PATH = "/admin"
_SCOPE, _KEY = "foredraft.cache_scope", "foredraft.key"
_OPEN_PATHS = {"/health", "/version", "/openapi.json"}  # they say nothing about anybody's requests
_KEY_NAME = re.compile("[A-Za-z0-9_.@-]{1,64}")


@dataclass(frozen=True)
class ApiKey:
    """A key, and what configuration and logs call it; several keys may have one name."""

    secret: str = field(repr=False)
    name: str | None = None

    @property
    def shown(self) -> str:
        """Its name, or else the beginning of its scope."""
        return self.name or shown(self.scope)

    @cached_property
    def scope(self) -> str:
        """What its requests share keys, values and past outputs under: a fingerprint, the same after a restart."""
        return f"sha256:{hashlib.sha256(self.secret.encode()).hexdigest()[:32]}"


def shown(scope: str) -> str:
    """The beginning of a scope, for people."""
    return scope[: len("sha256:") + 8]


def cache_scope(request: Request) -> str:
    """What a request may share the prefix cache with: requests that came with the same key."""
    scope: str = request.scope.get(_SCOPE, "")
    return scope


def key_of(request: Request) -> ApiKey | None:
    """The key that a request came with, where one is asked for."""
    key: ApiKey | None = request.scope.get(_KEY)
    return key


class ApiKeys:
    """Middleware that lets a request in if it comes with one of the keys (Authorization: Bearer KEY).

    Below ADMIN_PATH these are the admins' and nowhere else; without any client's, all clients are let in, without an
    admin's nobody is. It answers before anything of the body is read.
    """

    def __init__(self, app: ASGIApp, clients: Sequence[ApiKey], admins: Sequence[ApiKey]) -> None:
        self._app, self._clients, self._admins = app, clients, admins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        is_admin = scope["path"] == ADMIN_PATH or scope["path"].startswith(f"{ADMIN_PATH}/")
        keys = self._admins if is_admin else self._clients
        if not keys:
            await (_off().response() if is_admin else self._app)(scope, receive, send)
            return
        which = _which(scope, keys)
        if which is not None:
            await self._app({**scope, _SCOPE: keys[which].scope, _KEY: keys[which]}, receive, send)
            return
        kind = "admin" if is_admin else "API"
        error = ApiError(
            401,
            f"a valid {kind} key is needed: Authorization: Bearer KEY",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error.response()(scope, receive, send)


def _off() -> ApiError:
    return ApiError(404, f"there is no admin API here: the server was started without {ADMIN_VARIABLE}")


def _which(scope: Scope, keys: Sequence[ApiKey]) -> int | None:
    """The place in the list of the key that a request came with."""
    kind, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
    # All are compared, so that the time does not tell which one came close.
    matches = [hmac.compare_digest(given.strip(), key.secret.encode()) for key in keys]
    return matches.index(True) if kind.lower() == b"bearer" and any(matches) else None


def read_keys(file: Path | None, variable: str = VARIABLE) -> tuple[ApiKey, ...]:
    """Keys from the environment (separated by commas) and from a file (one a line, # comments).

    Each is `KEY`, or `NAME KEY` with the name that routes and logs know it by.

    Raises:
        ConfigError: the variable is set but holds no key, the file cannot be read or holds none, a key has characters
            that no header can carry, or one key has two names.
    """
    given = os.environ.get(variable)
    entries = [entry.strip() for entry in (given or "").split(",")]
    if given is not None and not any(entries):  # a secret that did not arrive must not open the server
        raise ConfigError(f"{variable} is set but holds no API key; unset it if there is to be none")
    if file is not None:
        try:
            lines = [line.partition("#")[0].strip() for line in file.read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"the API keys in {file} cannot be read ({exc})") from exc
        if not any(lines):
            raise ConfigError(f"{file} holds no API key; write one a line")
        entries += lines
    keys = tuple(dict.fromkeys(_parsed(entry) for entry in entries if entry))
    if len({key.secret for key in keys}) < len(keys):
        raise ConfigError("one API key is given twice, with different names; give each key one name")
    return keys


def _parsed(entry: str) -> ApiKey:
    """What an entry says. Errors do not repeat it: it may be a secret."""
    *names, secret = entry.split()
    if not secret.isascii() or not secret.isprintable():
        raise ConfigError("an API key has a character other than printable ASCII without spaces; choose another")
    if len(names) > 1 or not all(_KEY_NAME.fullmatch(name) for name in names):
        raise ConfigError(
            "an API key is not written as KEY or NAME KEY; a name has up to 64 letters, digits and any of _ . @ -"
        )
    return ApiKey(secret, *names)
