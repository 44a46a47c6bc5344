"""Who is let in."""

import pytest

from foredraft.errors import ConfigError
from foredraft.server.auth import ApiKey, read_keys
from serving import serving


@pytest.fixture(scope="module")
def locked(tiny_llm):
    with serving(tiny_llm, api_keys=(ApiKey("first"), ApiKey("second"))) as served:
        yield served


@pytest.mark.parametrize(
    "header",
    [None, "Bearer third", "Bearer", "Bearer first second", "Basic first", "first", "Bearer firs", "Bearer \xff"],
)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/tokenize", "/nowhere"])
def test_without_a_key_nothing_is_told(locked, header, path):
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    response = locked.http.request("GET" if path == "/v1/models" else "POST", path, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("key", ["first", "second"])
def test_each_key_lets_in(locked, key):
    client = locked.openai(key)
    assert client.models.list().data
    assert client.chat.completions.create(model="tiny.gguf", messages=[{"role": "user", "content": "x"}], max_tokens=1)


def test_what_a_key_has_asked_is_not_known_to_another(locked):
    def num_cached(key):
        prompt = "hello there, " * 12
        answer = locked.openai(key).completions.create(model="tiny.gguf", prompt=prompt, max_tokens=1)
        return answer.usage.prompt_tokens_details.cached_tokens

    assert [num_cached(key) for key in ("first", "second")] == [0, 0]
    assert all(num_cached(key) >= 64 for key in ("first", "second"))


def test_health_needs_no_key(locked):
    assert [locked.http.get(path).status_code for path in ("/health", "/version")] == [200, 200]


def test_the_body_is_not_read_without_a_key(locked):
    response = locked.http.post("/v1/completions", content=b"{", headers={"Content-Type": "application/json"})
    assert response.status_code == 401


def test_keys_of_environment_and_file(tmp_path, monkeypatch):
    monkeypatch.setenv("FOREDRAFT_API_KEYS", "a, b ,,a")
    file = tmp_path / "keys"
    file.write_text("# ours\nci c # the CI's\n\nb\nci  d\n")
    assert read_keys(file) == (ApiKey("a"), ApiKey("b"), ApiKey("c", "ci"), ApiKey("d", "ci"))
    assert read_keys(None) == (ApiKey("a"), ApiKey("b"))
    monkeypatch.delenv("FOREDRAFT_API_KEYS")
    assert read_keys(None) == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"# none\n", "holds no API key"),
        (b"\xff", "cannot be read"),
        ("ä\n".encode(), "ASCII"),
        (b"a b c\n", "NAME KEY"),
        (b"secret! b\n", "NAME KEY"),
        (b"a key\nb key\n", "different names"),
    ],
)
def test_bad_key_files(tmp_path, content, reason):
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        read_keys(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys(tmp_path / "nowhere")


@pytest.mark.parametrize("value", ["", " , "])
def test_a_variable_without_a_key_does_not_open_the_server(monkeypatch, value):
    monkeypatch.setenv("FOREDRAFT_API_KEYS", value)
    with pytest.raises(ConfigError, match="FOREDRAFT_API_KEYS is set but holds no API key"):
        read_keys(None)
