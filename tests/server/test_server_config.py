"""A server's settings: from the sections of a file to the one object that the app gets."""

from dataclasses import fields

import pytest

from foredraft.config import keys, load
from foredraft.core import Speculation
from foredraft.errors import ConfigError
from foredraft.server.config import SECTIONS, Limits, ServerConfig, assembled


def test_without_a_file_it_is_the_defaults():
    assert assembled(load(SECTIONS)) == ServerConfig()


def test_the_app_gets_all_sections_that_concern_it(tmp_path):
    path = tmp_path / "foredraft.toml"
    path.write_text("[server]\nport = 1\n[limits]\nmax_queue = 2\nmax_body_kib = 3\n[speculation]\nk = 4\n")
    config = assembled(load(SECTIONS, path))
    assert (config.port, config.limits, config.speculation) == (1, Limits(2, max_body_kib=3), Speculation(k=4))
    assert config.limits.max_body_bytes == 3 * 1024


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


@pytest.mark.parametrize("section", SECTIONS.values())
def test_every_key_is_described(section):
    described = keys(section)
    assert described.keys() == {field.name for field in fields(section)} - {"api_keys", "limits", "speculation"}
    assert all(key.help.endswith(".") and key.allowed for key in described.values())
