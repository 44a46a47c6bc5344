"""Routes against a plain reading of what their conditions mean, and the mistakes that a configuration can have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import ConfigError
from foredraft.governor.pools import DEFAULT
from foredraft.server.routing import GENERATION, RouteConfig, Router, facts

MODELS, HEADERS, KEYS = ("fast", "large"), ("X-Team: a", "x-team: b", "X-Batch: 1"), ("ci", "anna")
one_of = lambda values: st.none() | st.sampled_from(values)  # noqa: E731
routes = st.lists(
    st.builds(
        RouteConfig,
        model=one_of(MODELS),
        path=one_of(GENERATION),
        header=one_of(HEADERS),
        api_key=one_of(KEYS),
    ),
    max_size=5,
).map(lambda all: {f"route-{i}": route for i, route in enumerate(all)})
requests = st.fixed_dictionaries(
    {
        "model": one_of((*MODELS, "other")),
        "path": st.sampled_from(GENERATION),
        "headers": st.lists(
            st.sampled_from([(b"x-team", b"a"), (b"x-team", b" b"), (b"x-batch", b"1"), (b"x-batch", b"10")])
        ),
        "api_key": one_of((*KEYS, "ben")),
    }
)


def takes(route: RouteConfig, request: dict) -> bool:
    for name in ("model", "path", "api_key"):
        wanted = getattr(route, name)
        if wanted is not None and wanted != request[name]:
            return False
    if route.header is None:
        return True
    name, value = route.header.split(": ")
    given = [(n.decode(), v.decode().strip()) for n, v in request["headers"]]
    return (name.lower(), value) in given


@given(routes, requests)
def test_the_first_route_whose_conditions_are_all_met_is_taken(routes, request):
    try:
        router = Router(routes)
    except ConfigError:
        return
    expected = next((name for name, route in routes.items() if takes(route, request)), DEFAULT)
    assert router.route(facts(**request)) == expected


@given(routes)
def test_every_route_of_a_router_can_be_reached_and_what_is_refused_could_not(routes):
    try:
        router = Router(routes)
    except ConfigError as error:
        name = str(error).split("]")[0].removeprefix("[routes.")
        earlier = list(routes.values())[: list(routes).index(name)]
        own = routes[name].conditions
        assert not own or any(route.conditions <= own for route in earlier)
    else:
        assert all(router.route(route.conditions) == name for name, route in routes.items())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": "/v1/models"}, 'path is "/v1/models"; allowed is /v1/chat/completions, /v1/completions'),
        ({"header": "X-Team"}, "header is 'X-Team'; allowed is Name: value in ASCII"),
        ({"header": "X-Team:"}, "header is 'X-Team:'"),
        ({"header": "X Team: a"}, "header is 'X Team: a'"),
        ({"header": "X-Team: a\nX-Other: b"}, "header is "),
        ({"header": "X-Team: ä"}, "header is "),
        ({"header": "Authorization: Bearer secret"}, "header is .*no header that holds a key"),
        ({"header": "cookie: a=b"}, "header is "),
        ({"model": ""}, "model is empty"),
        ({"api_key": ""}, "api_key is empty"),
        ({"pool": 1}, "pool is 1; allowed is text"),
    ],
)
def test_conditions_that_no_request_could_meet_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        RouteConfig(**fields)


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ({"a": RouteConfig(model="x"), "b": RouteConfig(model="x")}, r"\[routes.b\] is never reached: \[routes.a\]"),
        ({"a": RouteConfig(model="x"), "b": RouteConfig("p", "x", GENERATION[0])}, r"\[routes.b\] is never reached"),
        (
            {"a": RouteConfig(header="X-A:  1 "), "b": RouteConfig(header="x-a: 1")},
            r"\[routes.b\] is never reached",
        ),
        ({"a": RouteConfig("p")}, r"\[routes.a\] has no condition; .*call it default"),
        ({"default": RouteConfig(model="x")}, r"\[routes.default\] is for requests that no other route takes"),
    ],
)
def test_routes_that_contradict_each_other_are_refused(routes, message):
    with pytest.raises(ConfigError, match=message):
        Router(routes)


def test_the_more_special_route_may_come_first():
    special, general = RouteConfig(model="x", api_key="ci"), RouteConfig(model="x")
    router = Router({"special": special, "general": general, "default": RouteConfig("p")})
    assert router.route(facts("x", GENERATION[0], [], "ci")) == "special"
    assert router.route(facts("x", GENERATION[0], [], None)) == "general"
    assert router.route(facts(None, GENERATION[0], [], "ci")) == "default"


def test_a_header_in_any_bytes_is_only_compared():
    router = Router({"a": RouteConfig(header="X-Team: a")})
    assert router.route(facts(None, GENERATION[0], [(b"\xff", b"\xff\x00"), (b"X-Team", b"a")], None)) == "a"
