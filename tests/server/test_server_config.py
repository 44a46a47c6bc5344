"""A server's settings: from the sections of a file to the one object that the app gets."""

import re
from dataclasses import fields

import pytest

from foredraft.config import Named, dump, keys, load
from foredraft.core import Speculation
from foredraft.errors import ConfigError
from foredraft.governor.pools import PoolConfig
from foredraft.server.auth import ApiKey
from foredraft.server.config import SECTIONS, AdminConfig, Limits, ServerConfig, assembled, with_keys
from foredraft.server.logs import LogConfig
from foredraft.server.routing import RouteConfig

OTHERS = {"speculation", "logs", "pools", "routes", "admin", "alerts"}  # sections of their own


def test_without_a_file_it_is_the_defaults():
    assert assembled(load(SECTIONS)) == ServerConfig()


def test_the_app_gets_all_sections_that_concern_it(tmp_path):
    path = tmp_path / "foredraft.toml"
    path.write_text(
        "[server]\nport = 1\n[limits]\nmax_queue = 2\nmax_body_bytes = 3000\n"
        "[speculation]\nk = 5\n[logs]\nprompts = true\n"
    )
    config = assembled(load(SECTIONS, path))
    assert config == ServerConfig(
        port=1, max_queue=2, max_body_bytes=3000, speculation=Speculation(k=5), logs=LogConfig(prompts=True)
    )


def test_keys_are_not_for_files(tmp_path):
    path = tmp_path / "foredraft.toml"
    path.write_text('[server]\napi_keys = ["secret"]\n')
    with pytest.raises(ConfigError, match="unknown key api_keys; did you mean api_keys_file"):
        load(SECTIONS, path)
    assert "secret" not in repr(ServerConfig(api_keys=(ApiKey("secret"),)))


TABLES = """
[pools.batch]
mode = "off"
proposers = ["lookup"]
[pools.chat]
itl_p95_ms = 40
[routes.nightly]
pool = "batch"
api_key = "ci"
header = "X-Batch: 1"
[routes.chat]
pool = "chat"
model = "fast"
[routes.default]
pool = "chat"
"""


def read(tmp_path, text):
    path = tmp_path / "foredraft.toml"
    path.write_text(text)
    return assembled(load(SECTIONS, path), path)


def test_pools_and_routes_are_sections_with_names_in_the_order_of_the_file(tmp_path):
    config = read(tmp_path, TABLES)
    assert list(config.pools.items()) == [
        ("batch", PoolConfig("off", proposers=("lookup",))),
        ("chat", PoolConfig(itl_p95_ms=40.0)),
    ]
    assert list(config.routes.items()) == [
        ("nightly", RouteConfig("batch", header="X-Batch: 1", api_key="ci")),
        ("chat", RouteConfig("chat", model="fast")),
        ("default", RouteConfig("chat")),
    ]
    assert config.pool_names == {"nightly": "batch", "chat": "chat", "default": "chat"}


def test_they_are_dumped_and_read_back(tmp_path):
    path = tmp_path / "foredraft.toml"
    path.write_text(TABLES)
    config = load(SECTIONS, path)
    (tmp_path / "dumped.toml").write_text(dump(config))
    again = load(SECTIONS, tmp_path / "dumped.toml")
    assert again == config
    assert list(again["routes"]) == list(config["routes"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[pools]\nmode = "on"\n',
            "[pools] key mode is in no section with a name of its own, such as [pools.some-name]",
        ),
        ('[pools."a b"]\n', '[pools] name "a b"; allowed are up to 64 letters (a to z), digits, - and _'),
        ('[pools."é"]\n', '[pools] name "é"; allowed are'),
        ('[pools.""]\n', '[pools] name ""; allowed are'),
        (f"[pools.{'a' * 65}]\n", "[pools] name "),
        ("[[pools]]\n", "key pools is outside of any section; it belongs to [pools.NAME]"),
        ("[pools.a]\nmod = 1\n", "[pools.a] unknown key mod; did you mean mode?"),
        ("[pools.a]\nport = 1\n", "[pools.a] unknown key port; it belongs to [server]"),
        ("[server]\nk_max = 1\n", "[server] unknown key k_max; it belongs to [pools.NAME]"),
        ('[pools.a]\nmode = "maybe"\n', '[pools.a] mode is "maybe"; allowed is off, auto, on'),
        ("[pools.a]\nk_max = 65\n", "[pools.a] k_max is 65; allowed is a whole number, 1 to 64"),
        ("[pools.a]\nitl_p95_ms = 9\nttft_p95_ms = 5\n", "[pools.a] itl_p95_ms is 9, more than ttft_p95_ms with 5"),
        ('[routes.a]\npool = "b"\nmodel = "m"\n', "[routes.a] pool is b; known are default"),
        ('[routes.a]\npath = "/metrics"\n', '[routes.a] path is "/metrics"; allowed is /v1/chat/completions, '),
        ('[routes.a]\nheader = "nothing"\n', "[routes.a] header is 'nothing'; allowed is Name: value"),
        ("[routes.a]\n", "[routes.a] has no condition"),
        ('[routes.a]\nmodel = "m"\n[routes.b]\nmodel = "m"\n', "[routes.b] is never reached: [routes.a] comes first"),
        ('[admin]\nkeys = ["secret"]\n', "[admin] unknown key keys; did you mean keys_file?"),
    ],
)
def test_a_mistake_in_pools_or_routes_is_named_with_file_and_section(text, message, tmp_path):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'foredraft.toml'}: {message}")


def test_keys_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("FOREDRAFT_API_KEYS", "ci one, two")
    monkeypatch.setenv("FOREDRAFT_ADMIN_KEYS", "anna three")
    config = with_keys(ServerConfig(routes={"nightly": RouteConfig(api_key="ci")}))
    assert config.api_keys == (ApiKey("one", "ci"), ApiKey("two"))
    assert config.admin.keys == (ApiKey("three", "anna"),)
    assert not {"one", "two", "three"} & set(re.findall(r"\w+", repr(config)))
    with pytest.raises(ConfigError, match=r"\[routes.a\] is for the API key named 'ben', which is not there"):
        with_keys(ServerConfig(routes={"a": RouteConfig(api_key="ben")}))
    monkeypatch.setenv("FOREDRAFT_ADMIN_KEYS", "two")
    with pytest.raises(ConfigError, match="both an API key and an admin key"):
        with_keys(ServerConfig())


def test_limits_of_a_server_are_checked_too():
    with pytest.raises(ConfigError, match="max_queue is -1; allowed is a whole number, 0 to 100000"):
        ServerConfig(max_queue=-1)


@pytest.mark.parametrize("kind", SECTIONS.values())
def test_every_key_is_described(kind):
    section = kind.section if isinstance(kind, Named) else kind
    described = keys(section)
    not_for_files = {AdminConfig: {"keys"}, ServerConfig: {"api_keys", *OTHERS, *keys(Limits)}}.get(section, set())
    assert described.keys() == {field.name for field in fields(section)} - not_for_files
    assert all(key.help.endswith(".") and key.allowed for key in described.values())
