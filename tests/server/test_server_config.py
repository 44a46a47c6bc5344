"""A server's settings: from the sections of a file to the one object that the app gets."""

from dataclasses import fields

import pytest

from foredraft.config import keys, load
from foredraft.core import Speculation
from foredraft.errors import ConfigError
from foredraft.server.config import SECTIONS, Limits, ServerConfig, assembled
from foredraft.server.logs import LogConfig


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
    assert "secret" not in repr(ServerConfig(api_keys=("secret",)))


@pytest.mark.parametrize("name", ["pools", "routes"])
def test_what_is_not_there_yet_is_refused(name, tmp_path):
    path = tmp_path / "foredraft.toml"
    path.write_text(f"[{name}.fast]\nmode = 'auto'\n")
    with pytest.raises(ConfigError, match=rf"unknown section \[{name}\]; known are model, server, "):
        load(SECTIONS, path)


def test_limits_of_a_server_are_checked_too():
    with pytest.raises(ConfigError, match="max_queue is -1; allowed is a whole number, 0 to 100000"):
        ServerConfig(max_queue=-1)


@pytest.mark.parametrize("section", SECTIONS.values())
def test_every_key_is_described(section):
    described = keys(section)
    not_for_files = {"api_keys", "speculation", "logs", "alerts", *keys(Limits)} if section is ServerConfig else set()
    assert described.keys() == {field.name for field in fields(section)} - not_for_files
    assert all(key.help.endswith(".") and key.allowed for key in described.values())
