"""Configuration files: strict to read, clear about what is wrong, and printed so that they read back equal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.config import Named, check, dump, load, option
from foredraft.core import Speculation
from foredraft.errors import ConfigError


@dataclass(frozen=True)
class Web:
    host: str = option("127.0.0.1", "Address to listen on.")
    port: int = option(8000, "Port to listen on; 0 takes a free one.", minimum=0, maximum=65535)
    deadline_s: float = option(600.0, "Longest time for a request.", minimum=0.1)
    verbose: bool = option(False, "Say more.")
    key_file: Path | None = option(None, "Where the API keys are.")
    origins: tuple[str, ...] = option((), "Who may call from a browser.")
    offset: int = option(0, "How far to move.", maximum=10)
    weights: tuple[int, ...] = option((1, 2), "Numbers.", minimum=0, maximum=9)
    color: str = option("red", "A color.", choices=("red", "green"))

    secrets: tuple[str, ...] = ()  # no `option`: not for files

    def __post_init__(self) -> None:
        check(self)
        if self.host == "nowhere":
            raise ConfigError('host is "nowhere"; allowed is an address of this machine')


SECTIONS = {"web": Web, "speculation": Speculation}


def read(tmp_path: Path, text: str, **overrides: dict[str, object]) -> dict[str, object]:
    path = tmp_path / "foredraft.toml"
    path.write_text(text)
    return load(SECTIONS, path, overrides)


def test_without_anything_it_is_the_defaults():
    assert load(SECTIONS) == {"web": Web(), "speculation": Speculation()}


def test_the_command_line_wins_over_the_file_and_the_file_over_the_defaults(tmp_path):
    text = '[web]\nport = 1\nhost = "::1"\n[speculation]\nproposers = ["lookup"]\n'
    config = read(tmp_path, text, web={"port": 2}, speculation={"k": 7})
    assert config["web"] == Web(host="::1", port=2)
    assert config["speculation"] == Speculation(k=7, proposers=("lookup",))


def test_values_have_the_types_of_their_fields(tmp_path):
    web = read(tmp_path, '[web]\nkey_file = "keys"\ndeadline_s = 3\norigins = ["a", "b"]\nweights = []\n')["web"]
    assert (web.key_file, web.origins, web.weights) == (Path("keys"), ("a", "b"), ())
    assert isinstance(web.deadline_s, float)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[web]\nprot = 1\n", "[web] unknown key prot; did you mean port?"),
        ("[web]\nk = 1\n", "[web] unknown key k; it belongs to [speculation]"),
        ('[web]\nsecrets = ["x"]\n', "[web] unknown key secrets; "),
        ("[speculation]\nzebra = 1\n", "[speculation] unknown key zebra; known are mode, k, proposers, rule"),
        ("[wep]\n", "unknown section [wep]; did you mean web?"),
        ("[pools.fast]\n", "unknown section [pools]; known are web, speculation"),
        ("port = 80\n", "key port is outside of any section; it belongs to [web]"),
        ("zebra = 80\n", "key zebra is outside of any section; known are web, speculation"),
        ("web = 3\n", "key web is outside of any section; it belongs to [web]"),
        ("[web]\nport = 65536\n", "[web] port is 65536; allowed is a whole number, 0 to 65535"),
        ("[web]\nport = -1\n", "[web] port is -1; allowed is a whole number, 0 to 65535"),
        ('[web]\nport = "80"\n', '[web] port is "80"; allowed is a whole number, 0 to 65535'),
        ("[web]\nport = true\n", "[web] port is true; allowed is a whole number, 0 to 65535"),
        ("[web]\nport = 80.0\n", "[web] port is 80.0; allowed is a whole number, 0 to 65535"),
        ("[web]\ndeadline_s = 0\n", "[web] deadline_s is 0; allowed is a number, 0.1 or more"),
        ("[web]\ndeadline_s = inf\n", "[web] deadline_s is Infinity; allowed is a number, 0.1 or more"),
        ("[web]\ndeadline_s = nan\n", "[web] deadline_s is NaN; allowed is a number, 0.1 or more"),
        (f"[web]\ndeadline_s = 1{'0' * 400}\n", f"[web] deadline_s is 1{'0' * 76}...; allowed is a number"),
        ("[web]\nverbose = 1\n", "[web] verbose is 1; allowed is true or false"),
        ("[web]\nhost = []\n", "[web] host is []; allowed is text"),
        ('[web]\nkey_file = ""\n', '[web] key_file is ""; allowed is a path'),
        ('[web]\norigins = "a"\n', '[web] origins is "a"; allowed is a list, each text'),
        ("[web]\norigins = [1]\n", "[web] origins is [1]; allowed is a list, each text"),
        ("[web]\nweights = [10]\n", "[web] weights is [10]; allowed is a list, each a whole number, 0 to 9"),
        ("[web]\noffset = 11\n", "[web] offset is 11; allowed is a whole number, up to 10"),
        ('[web]\ncolor = "blue"\n', '[web] color is "blue"; allowed is red, green'),
        ("[web]\nport = 1979-05-27\n", '[web] port is "1979-05-27"; allowed is a whole number, 0 to 65535'),
        ("[[web]]\nport = 1\n", "key web is outside of any section"),
        ('[web]\nhost = "nowhere"\n', '[web] host is "nowhere"; allowed is an address of this machine'),
        ('[speculation]\nmode = "maybe"\n', '[speculation] mode is "maybe"; allowed is off, auto, on'),
        ("[web\n", "the file is not TOML: "),
        ("[web]\nport = 1\nport = 2\n", "the file is not TOML: "),
        (f"a = {'[' * 5000}", "the file is not TOML: "),
    ],
)
def test_a_mistake_is_named_with_its_file_and_what_is_allowed(text, message, tmp_path):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'foredraft.toml'}: {message}")


def test_a_mistake_on_the_command_line_does_not_name_the_file(tmp_path):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "[web]\nport = 1\n", web={"port": 99999})
    assert str(caught.value) == "[web] port is 99999; allowed is a whole number, 0 to 65535"


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.toml: the file cannot be read: No such file"):
        load(SECTIONS, tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match="the file cannot be read: Is a directory"):
        load(SECTIONS, tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    with pytest.raises(ConfigError, match="the file is not UTF-8 text"):
        load(SECTIONS, tmp_path / "latin.toml")


def test_a_section_is_checked_wherever_it_is_made():
    with pytest.raises(ConfigError, match="port is -1; allowed is a whole number, 0 to 65535"):
        Web(port=-1)
    with pytest.raises(ConfigError, match="host is null; allowed is text"):
        Web(host=None)
    assert Web(key_file=None).key_file is None


WEBS = st.builds(
    Web,
    host=st.text(),
    port=st.integers(0, 65535),
    deadline_s=st.floats(0.1, allow_infinity=False),
    verbose=st.booleans(),
    key_file=st.none() | st.text(min_size=1).map(Path),
    origins=st.lists(st.text()).map(tuple),
    weights=st.lists(st.integers(0, 9)).map(tuple),
    color=st.sampled_from(["red", "green"]),
)


@given(
    web=WEBS,
    speculation=st.builds(Speculation, mode=st.sampled_from(["off", "on"]), k=st.integers(0, 64)),
    sites=st.dictionaries(st.from_regex("[A-Za-z0-9_-]{1,64}", fullmatch=True), WEBS, max_size=3),
)
def test_what_is_dumped_loads_back_equal(web, speculation, sites, tmp_path_factory):
    config = {"web": web, "speculation": speculation, "sites": sites}
    path = tmp_path_factory.mktemp("dump") / "foredraft.toml"
    path.write_text(dump(config), encoding="utf-8")
    found = load({**SECTIONS, "sites": Named(Web)}, path)
    assert found == config
    assert list(found["sites"]) == list(sites)


def test_a_dump_explains_itself():
    text = dump(load({"web": Web}))
    assert "# Port to listen on; 0 takes a free one.\nport = 8000\n" in text
    assert "# Where the API keys are.\n# key_file is not set\n" in text
