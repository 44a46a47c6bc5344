"""The server's main loop."""

import threading

import httpx
import pytest

import tiny
from foredraft.engine.llm import LLM
from foredraft.errors import ConfigError
from foredraft.server.config import ServerConfig
from foredraft.server.engine_thread import EngineThread
from foredraft.server.run import bind, run


def test_a_failed_engine_ends_the_server(tmp_path):
    """So that whoever supervises it starts it again."""
    llm = LLM(tiny.write_tiny(tmp_path / "tiny.gguf"), context_length=512, threads=1)
    bound = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    answers = []

    def break_it():
        answers.append(httpx.get(f"{url}/health"))
        llm.engine.step = lambda: 1 / 0
        answers.append(httpx.post(f"{url}/v1/completions", json={"prompt": "x"}))

    clients = threading.Thread(target=break_it)
    assert run(EngineThread(llm), ServerConfig(), bound, clients.start) is False
    clients.join()
    assert [answer.status_code for answer in answers] == [200, 503]


def test_an_address_is_held_but_silent_until_the_server_is_ready():
    with bind("127.0.0.1", 0) as bound, pytest.raises(httpx.ConnectError, match="refused"):
        httpx.get(f"http://127.0.0.1:{bound.getsockname()[1]}/health")


def test_an_address_that_another_server_listens_at_meanwhile(tmp_path):
    llm = LLM(tiny.write_tiny(tmp_path / "tiny.gguf"), context_length=512, threads=1)
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with bind("127.0.0.1", port) as second:
            first.listen()
            with pytest.raises(ConfigError, match=f"port {port} cannot be listened at"):
                run(EngineThread(llm), ServerConfig(port=port), second, lambda: None)
