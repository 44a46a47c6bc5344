"""Which route a request takes: the first in the order of the configuration whose conditions it meets all. Pure.

Conditions and what is known of a request are facts of one form, so that to match is to be a subset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from foredraft.config import check, option
from foredraft.errors import ConfigError
from foredraft.governor.pools import DEFAULT

GENERATION = ("/v1/chat/completions", "/v1/completions")  # the paths whose requests have routes
Fact = tuple[str, str]  # what it is about, and what it says

_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([!-~][ -~]*?)[ \t]*")
_SECRET = ("authorization", "proxy-authorization", "cookie")


@dataclass(frozen=True)
class RouteConfig:
    """A kind of traffic: a section [routes.NAME]. All conditions that are set have to be met."""

    pool: str = option(DEFAULT, "The pool of this route's requests.")
    model: str | None = option(
        None, "Condition: the request asks for the model by this name, which thereby becomes one of its names."
    )
    path: str | None = option(None, "Condition: the request comes to this path.", choices=GENERATION)
    header: str | None = option(
        None, 'Condition: the request has this header, written "Name: value". Clients choose their headers themselves.'
    )
    api_key: str | None = option(
        None, "Condition: the request's API key has this name in the keys' file or variable. Never the key itself."
    )

    def __post_init__(self) -> None:
        check(self)
        for name in ("model", "api_key"):
            if getattr(self, name) == "":
                raise ConfigError(f"{name} is empty; leave it out where it is no condition", name)
        if self.header is None:
            return
        found = _HEADER.fullmatch(self.header)
        if not found or found[1].lower() in _SECRET:
            message = f"header is {self.header!r:.80}; allowed is Name: value in ASCII, and no header that holds a key"
            raise ConfigError(message, "header")

    @property
    def conditions(self) -> frozenset[Fact]:
        facts = {(name, value) for name in ("model", "path", "api_key") if (value := getattr(self, name)) is not None}
        if self.header is not None:
            name, _, value = self.header.partition(":")
            facts.add(_header(name, value))
        return frozenset(facts)


class Router:
    """Finds a request's route.

    Raises:
        ConfigError: no request could ever take one of the routes, or the default route has conditions.
    """

    def __init__(self, routes: Mapping[str, RouteConfig]) -> None:
        self._routes = {name: route.conditions for name, route in routes.items() if name != DEFAULT}
        if DEFAULT in routes and routes[DEFAULT].conditions:
            raise ConfigError(
                f"[routes.{DEFAULT}] is for requests that no other route takes; leave out its conditions, or choose "
                "another name"
            )
        earlier: dict[str, frozenset[Fact]] = {}
        for name, conditions in self._routes.items():
            if not conditions:
                raise ConfigError(
                    f"[routes.{name}] has no condition; set model, path, header or api_key, or call it {DEFAULT} to "
                    "have it take what no other route takes"
                )
            if first := next((each for each, its in earlier.items() if its <= conditions), None):
                raise ConfigError(
                    f"[routes.{name}] is never reached: [routes.{first}] comes first and takes every request with its "
                    "conditions; change one of them, or their order"
                )
            earlier[name] = conditions

    def route(self, facts: frozenset[Fact]) -> str:
        """The name of the route of a request of which these facts are known."""
        return next((name for name, conditions in self._routes.items() if conditions <= facts), DEFAULT)


def facts(model: str | None, path: str, headers: Iterable[tuple[bytes, bytes]], api_key: str | None) -> frozenset[Fact]:
    """What is known of a request. headers: as ASGI has them; api_key: the name of the key that it came with."""
    known = {_header(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers}
    named = {"model": model, "path": path, "api_key": api_key}
    return frozenset(known | {(name, value) for name, value in named.items() if value is not None})


def _header(name: str, value: str) -> Fact:
    return "header", f"{name.strip().lower()}: {value.strip()}"
