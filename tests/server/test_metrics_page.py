"""`/metrics` of a running server against what its clients saw."""

from collections import Counter
from collections.abc import Iterator

import pytest

from foredraft.engine.llm import LLM
from prometheus_page import read
from serving import Served, serving

WHERE = ("default", "default")  # pool and route


@pytest.fixture
def fresh(tiny_llm: LLM) -> Iterator[Served]:
    with serving(tiny_llm, max_queue=4) as server:
        yield server


def counts(served: Served) -> Counter[tuple[str, ...]]:
    response = served.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Counter(read(response.text))


def ends(served: Served) -> dict[str, float]:
    """How requests ended, by outcome, without those that did not come up."""
    found = counts(served)
    return {key[1]: n for key, n in found.items() if key[0] == "requests_total" and n}


def test_what_answers_say_is_what_is_counted(fresh):
    how = {"max_tokens": 30, "ignore_eos": True, "temperature": 0, "speculation": {"mode": "on", "k": 3}}
    answers = [fresh.complete(prompt, **how).json() for prompt in ("the the the", "hello")]
    found = counts(fresh)
    for key, part in (
        ("spec_decode_num_drafts_total", "num_drafts"),
        ("spec_decode_num_draft_tokens_total", "num_draft_tokens"),
        ("spec_decode_num_accepted_tokens_total", "num_accepted"),
    ):
        assert found[key, "default", "suffix", "default"] == sum(answer["speculation"][part] for answer in answers)
    assert found["spec_decode_num_accepted_tokens_total", "default", "suffix", "default"] > 0
    assert found["generation_tokens_total", *WHERE] == 60
    assert found["prompt_tokens_total", *WHERE] == sum(answer["usage"]["prompt_tokens"] for answer in answers)
    assert found["time_to_first_token_seconds_count", *WHERE] == 2
    assert (found["num_sequences_running", *WHERE], found["num_sequences_waiting", *WHERE]) == (0, 0)


def test_every_request_ends_once(fresh):
    assert fresh.complete(max_tokens=2, ignore_eos=True).status_code == 200
    assert fresh.complete(max_tokens=0).status_code == 400
    assert fresh.complete(n=9, max_tokens=1).status_code == 400
    assert fresh.http.get("/v1/models").status_code == 200  # not counted: it asks for no answer
    assert ends(fresh) == {"length": 1, "invalid": 2}


def test_requests_have_ids(fresh):
    names = {fresh.complete(max_tokens=1).headers["x-request-id"] for _ in range(2)}
    assert len(names) == 2
