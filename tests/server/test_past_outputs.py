"""Past outputs over HTTP: each key's are its own, an admin sees and clears them, and they survive a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tiny
from foredraft.engine.llm import LLM
from foredraft.errors import ConfigError
from foredraft.governor.pools import PoolConfig
from foredraft.server.auth import ApiKey
from prometheus_page import read
from serving import Served, administered, serving

KEYS = (ApiKey("secret", "anna"), ApiKey("other", "bert"), ApiKey("third"))
SHARING = {"default": PoolConfig("on", share_outputs=True)}
PROMPT = "the cat and the dog and the cat and"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny.write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf")


@contextmanager
def sharing(model: Path, pools=SHARING, **options: Any) -> Iterator[Served]:
    options = {"context_length": 512, "max_sequences": 4, "threads": 1, "proposers": ["suffix"], **options}
    with LLM(model, pools=pools, **options) as llm, administered(llm, pools=pools, api_keys=KEYS) as served:
        yield served


@pytest.fixture
def served(model) -> Iterator[Served]:
    with sharing(model) as served:
        yield served


def ask(served: Served, key: str, max_tokens: int = 40) -> str:
    asked = {"model": "tiny.gguf", "prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0}
    return served.openai(key).completions.create(**asked, extra_body={"ignore_eos": True}).choices[0].text


def outputs(served: Served) -> dict[tuple[str, str], dict[str, Any]]:
    found = served.http.get("/admin/outputs").json()
    assert found["num_bytes"] == sum(each["num_bytes"] for each in found["outputs"]) <= found["max_bytes"] == 64 << 20
    return {(each["tenant"], each["pool"]): each for each in found["outputs"]}


def test_each_key_has_its_own(served):
    assert outputs(served) == {}
    text = ask(served, "secret")
    assert [ask(served, key) for key in ("other", "third")] == [text, text]
    shown = KEYS[2].shown
    assert shown.startswith("sha256:")
    assert set(outputs(served)) == {("anna", "default"), ("bert", "default"), (shown, "default")}
    assert all(each["num_hits"] == 0 for each in outputs(served).values())
    assert ask(served, "secret") == text
    found = outputs(served)
    assert found["anna", "default"]["num_hits"] > 0
    assert found["anna", "default"]["num_accepted_tokens"] > 20
    assert found["bert", "default"]["num_hits"] == 0


def test_an_admin_clears_a_tenants(served):
    for key in ("secret", "other", "secret"):
        text = ask(served, key)
    hits = outputs(served)["anna", "default"]["num_hits"]
    answer = served.http.delete("/admin/outputs/anna?reason=they+asked")
    assert answer.status_code == 200
    assert [each["tenant"] for each in answer.json()["outputs"]] == ["bert"]
    assert ask(served, "secret") == text
    assert outputs(served)["anna", "default"]["num_hits"] == 0
    assert served.llm.suffixes.num_hits["default"] == hits
    [entry] = served.http.get("/admin/audit").json()["entries"]
    assert (entry["action"], entry["pool"], entry["reason"]) == ("clear", "default", "they asked")
    assert entry["before"] == {"tenant": "anna", "num_texts": 1}


def test_there_is_nothing_of_others_to_clear(served):
    answer = served.http.delete("/admin/outputs/nobody")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "there are no past outputs of 'nobody'"


def test_they_are_counted(served):
    def metrics() -> dict[str, float]:
        found = read(served.http.get("/metrics", headers={"Authorization": "Bearer secret"}).text)
        return {name: value for (name, *_), value in found.items() if "past_outputs" in name}

    assert list(metrics().values()) == [0, 0, 0, 0]
    for key in ("secret", "other", "secret"):
        ask(served, key)
    found = metrics()
    assert found["num_past_outputs"] == 2
    assert found["past_outputs_bytes"] == served.llm.suffixes.num_bytes
    assert found["past_outputs_accepted_tokens_total"] > found["past_outputs_hits_total"] > 0
    served.http.delete("/admin/outputs/anna")
    assert metrics()["past_outputs_hits_total"] == found["past_outputs_hits_total"]


def test_sharing_is_switched_live(model):
    with sharing(model, {"default": PoolConfig("on")}) as served:
        ask(served, "secret")
        assert outputs(served) == {}
        assert served.http.patch("/admin/pools/default", json={"share_outputs": True}).status_code == 200
        ask(served, "secret")
        assert set(outputs(served)) == {("anna", "default")}


def test_they_survive_a_restart_each_with_its_key(model, tmp_path):
    with sharing(model, suffix_directory=tmp_path) as served:
        text = ask(served, "secret")
    with sharing(model, suffix_directory=tmp_path) as served:
        assert set(outputs(served)) == {("anna", "default")}
        assert [ask(served, "other"), ask(served, "secret")] == [text, text]
        found = outputs(served)
        assert found["bert", "default"]["num_hits"] == 0 < found["anna", "default"]["num_hits"]
        served.http.delete("/admin/outputs/anna")
    with sharing(model, suffix_directory=tmp_path) as served:
        assert set(outputs(served)) == {("bert", "default")}


def test_without_keys_all_clients_are_one(model):
    llm = LLM(model, context_length=512, threads=1, proposers=["suffix"], pools=SHARING)
    with administered(llm, pools=SHARING) as served:
        ask(served, "none")
        assert set(outputs(served)) == {("everybody", "default")}
        assert served.http.delete("/admin/outputs/everybody").status_code == 200
        assert outputs(served) == {}


def test_sharing_needs_the_proposer_suffix(model):
    with LLM(model, context_length=512, threads=1, proposers=["lookup"]) as llm:
        with administered(llm, pools={}) as served:
            answer = served.http.patch("/admin/pools/default", json={"share_outputs": True})
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == "share_outputs"
        with pytest.raises(ConfigError, match=r"\[pools.default\] share_outputs"), serving(llm, pools=SHARING):
            pass
