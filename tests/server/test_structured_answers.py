"""`response_format` over HTTP: answers match, do not depend on drafts, and one that cannot match ends with an error."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import pytest

from foredraft.constraints.matcher import Compiler
from serving import PATIENCE_S, events, wait_for

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "legs": {"type": "integer", "minimum": 0, "maximum": 8},
        "tricks": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 2},
    },
    "required": ["name", "legs", "tricks"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA, "strict": True}}
MESSAGES = [{"role": "user", "content": "Invent a pet and describe it in JSON."}]
# Two letters, then one of so many continuations that the parser gives up.
GROWING = {"type": "grammar", "grammar": "start: " + " | ".join(f'/[vw]/ "{i}"' for i in range(2500))}


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_schema_with_the_official_client(served_smollm2, temperature):
    client = served_smollm2.openai()

    def ask(mode, **fields):
        return client.chat.completions.create(
            model=served_smollm2.llm.model_name, messages=MESSAGES, response_format=FORMAT, max_tokens=120, seed=4,
            temperature=temperature, n=2, extra_body={"speculation": mode}, **fields,
        )  # fmt: skip

    drafted, plain = ask("on"), ask("off")
    texts = [choice.message.content for choice in drafted.choices]
    assert texts == [choice.message.content for choice in plain.choices]
    for choice in drafted.choices:
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)
    assert drafted.speculation["num_accepted"] > 0
    assert drafted.speculation["tokens_per_step"] > 1 == plain.speculation["tokens_per_step"]
    streamed = ["", ""]
    for piece in ask("on", stream=True):
        streamed[piece.choices[0].index] += piece.choices[0].delta.content or ""
    assert streamed == texts


@pytest.mark.parametrize(
    ("response_format", "is_right"),
    [
        ({"type": "json_object"}, lambda text: isinstance(json.loads(text), dict)),
        ({"type": "regex", "regex": "[0-9]{3}(,[0-9]{3})?"}, lambda text: text.replace(",", "").isdigit()),
        ({"type": "grammar", "grammar": 'start: "ab" | "cd"'}, lambda text: text in ("ab", "cd")),
        ({"type": "text"}, lambda text: True),
    ],
)
def test_every_type(served, response_format, is_right):
    for ask in (served.chat, served.complete):
        response = ask(response_format=response_format, max_tokens=200, temperature=1, seed=2)
        assert response.status_code == 200, response.text
        choice = response.json()["choices"][0]
        if choice["finish_reason"] == "stop":
            assert is_right(choice["message"]["content"] if "message" in choice else choice["text"])


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cannot_match_is_an_error(served, stream):
    response = served.complete(response_format=GROWING, max_tokens=50, stream=stream)
    if stream:
        last = [line for line in response.text.splitlines() if line][-1]
        error = json.loads(last.removeprefix("data: "))["error"]
    else:
        assert response.status_code == 400
        error = response.json()["error"]
    assert (error["code"], error["param"]) == ("format_failed", "response_format")
    assert "grew too complex" in error["message"]
    served.wait_until_idle()


def test_a_prediction_is_used_and_counted(served_smollm2):
    asked = {"max_tokens": 40, "temperature": 0, "speculation": {"mode": "on", "k": 6}}
    plain = served_smollm2.chat("Name three colors.", **asked).json()
    text = plain["choices"][0]["message"]["content"]
    predicted = {"type": "content", "content": [{"type": "text", "text": text[:9]}, {"type": "text", "text": text[9:]}]}
    answer = served_smollm2.chat("Name three colors.", prediction=predicted, **asked).json()
    assert answer["choices"] == plain["choices"]
    details = answer["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] > answer["usage"]["completion_tokens"] / 2
    assert answer["speculation"]["proposer"] == "prediction"
    assert plain["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 0

    wrong = {"type": "content", "content": "Name three colors? " + text[: len(text) // 2] + " Or not at all."}
    with served_smollm2.http.stream(
        "POST",
        "/v1/chat/completions",
        json={
            "messages": [{"role": "user", "content": "Name three colors."}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "prediction": wrong,
            **asked,
        },
    ) as response:
        *pieces, last = events(response)
    assert "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces) == text
    assert last["usage"]["completion_tokens_details"]["rejected_prediction_tokens"] > 0


def test_formats_that_are_slow_to_compile_hold_up_nobody_else(served, monkeypatch):
    go, threads = threading.Event(), set()
    compile_format = Compiler.compile

    def slow(*given):
        threads.add(threading.current_thread())
        go.wait(PATIENCE_S)
        return compile_format(*given)

    monkeypatch.setattr(Compiler, "compile", slow)
    fields = {"max_tokens": 2, "response_format": {"type": "regex", "regex": "x{3}"}}
    with ThreadPoolExecutor(7) as pool:
        waiting = [pool.submit(served.chat, **fields) for _ in range(7)]
        wait_for(lambda: threads)
        plain = served.chat()
        assert not any(future.done() for future in waiting)
        go.set()
        assert [plain.status_code, *(future.result().status_code for future in waiting)] == [200] * 8
    assert len(threads) == 1
