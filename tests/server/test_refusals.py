"""What is not understood or not honored is refused with a 4xx, a sentence, and the field to blame."""

import json

import pytest
from pydantic import ValidationError

from foredraft.server.requests import ChatRequest, CompletionRequest, DetokenizeRequest

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALLING = {
    "role": "assistant",
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
TOOL_MESSAGE = {"role": "tool", "tool_call_id": "1", "content": "x"}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def refused(response, status=400):
    """The error of an answer, which has to have OpenAI's form."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == ("invalid_request_error" if status not in (401, 408, 429) else error["type"])
    assert error["message"].strip()
    return error


def json_schema(schema, **more):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}}


@pytest.mark.parametrize(
    ("fields", "param", "sentence"),
    [
        ({"magic": 1}, "magic", "magic is not supported; leave it out"),
        ({"tools": []}, "tools", "at least 1"),
        ({"tools": [{"type": "magic"}]}, "tools.0.type", "'function'"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name", "pattern"),
        ({"tools": [TOOL, {"type": "function", "function": {"name": "f", "magic": 1}}]}, "tools.1.function.magic", ""),
        ({"tools": [TOOL]}, "tools", "none of the known formats of tool calls"),
        ({"tool_choice": "auto"}, "tool_choice", "only there with tools"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice", "'none', 'auto' or 'required'"),
        ({"parallel_tool_calls": True}, "parallel_tool_calls", "only there with tools"),
        ({"tools": [TOOL], "response_format": {"type": "json_object"}}, "response_format", "no room for calls"),
        ({"functions": []}, "functions", "not supported"),
        ({"prediction": "x"}, "prediction", "dictionary or object"),
        ({"prediction": {"type": "magic", "content": "x"}}, "prediction.type", "'content'"),
        ({"prediction": {"type": "content", "content": "word " * 900}}, "prediction", "the context 512"),
        ({"response_format": {}}, "response_format.type", "'type'"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "'json_schema'"),
        ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema", "not supported"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "required"),
        (json_schema(None), "response_format.json_schema.schema", "dictionary"),
        (json_schema({"type": "magic"}), "response_format.json_schema.schema", "cannot be used"),
        (json_schema({"$ref": "http://127.0.0.1/schema"}), "response_format.json_schema.schema", "cannot be used"),
        (json_schema({}, description="x"), "response_format.json_schema.description", "not supported"),
        ({"response_format": {"type": "regex", "regex": "("}}, "response_format.regex", "cannot be used"),
        ({"response_format": {"type": "grammar", "grammar": "x" * 70_000}}, "response_format.grammar", "65536"),
        ({"response_format": {"type": "json_object"}, "min_tokens": 2}, "min_tokens", "when it is complete"),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos", "when it is complete"),
        ({"store": True}, "store", "False"),
        ({"temperature": "hot"}, "temperature", "valid number"),
        ({"temperature": True}, "temperature", "valid number"),
        ({"temperature": -1}, "temperature", "allowed is 0 to 100"),
        ({"temperature": 10**400}, "temperature", ""),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"top_k": -1}, "top_k", "0 (off) or more"),
        ({"top_k": 1.5}, "top_k", "valid integer"),
        ({"min_p": 1}, "min_p", "below 1"),
        ({"presence_penalty": 11}, "presence_penalty", "-10 to 10"),
        ({"n": 0}, "n", "1 to 128"),
        ({"n": 9}, "n", "takes at most 8"),
        ({"n": 129}, "n", "1 to 128"),
        ({"max_tokens": 0}, "max_tokens", "1 or more"),
        ({"max_tokens": 513}, "max_tokens", "allows up to 512"),
        ({"max_tokens": 4, "min_tokens": 5}, "min_tokens", "up to max_tokens"),
        ({"max_tokens": 4, "max_completion_tokens": 4}, "max_tokens", "give one"),
        ({"seed": -1}, "seed", "0 to 2**64"),
        ({"seed": 2**64}, "seed", "0 to 2**64"),
        ({"stop": ""}, "stop", "not empty"),
        ({"stop": ["x"] * 17}, "stop", "at most 16"),
        ({"stop": [1]}, "stop.0", "string"),
        ({"stop": "x" * 257}, "stop", "at most 256 characters"),
        ({"stop": ["x", "y" * 257]}, "stop.1", "at most 256 characters"),
        ({"metadata": dict.fromkeys(map(str, range(17)), "x")}, "metadata", "at most 16"),
        ({"stop_token_ids": [99999]}, "stop_token_ids", "0 to 287"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"5": 101}}, "logit_bias[5]", "-100 to 100"),
        ({"logit_bias": {"288": 1}}, "logit_bias", "0 to 287"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "0 to 20"),
        ({"top_logprobs": 2}, "top_logprobs", "logprobs: true"),
        ({"stream": "yes"}, "stream", "boolean"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "not supported"),
        ({"speculation": "maybe"}, "speculation", "off, auto, on"),
        ({"speculation": {"mode": "on", "k": 65}}, "speculation", "0 to 64"),
        ({"speculation": {"rule": "lucky"}}, "speculation", "exact, rejection, block"),
        ({"speculation": {"proposer": "oracle"}}, "speculation", "loaded are grammar, prediction, suffix, lookup"),
        ({"speculation": {"proposer": ""}}, "speculation.proposer", "give one name"),
        ({"speculation": {"proposer": "lookup,,"}}, "speculation.proposer", "give one name"),
        ({"speculation": {"depth": 2}}, "speculation.depth", "not supported"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "user"}]}, "messages.0.content", "required"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content", "string"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "messages.0.role", "'user'"),
        ({"messages": [{"content": "x"}]}, "messages.0.role", "'role'"),
        ({"messages": [{"role": "assistant"}]}, "messages.0", "content is required"),
        ({"messages": [{"role": "user", "content": "x", "name": "me"}]}, "messages.0.name", "not supported"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": []}]}, "messages.0.tool_calls", "not supported"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.tool_call_id", "required"),
        ({"messages": [TOOL_MESSAGE]}, "messages.0.tool_call_id", "names no call"),
        ({"messages": [CALLING, TOOL_MESSAGE]}, "messages", "does not know tools"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, None, "lone surrogate"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content.0.type", "'text'"),
        ({"messages": [{"role": "user", "content": "word " * 2000}]}, "messages", "the context 512"),
        ({"\ud800": 1}, None, "lone surrogate"),
        ({"Magic[1]": 1}, "Magic[1]", "not supported"),
    ],
)
def test_chat_fields(served, fields, param, sentence):
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    response = served.http.post(CHAT, content=json.dumps(body), headers={"Content-Type": "application/json"})
    error = refused(response)
    assert error["param"] == param
    assert sentence in error["message"]


@pytest.mark.parametrize(
    ("fields", "param", "sentence"),
    [
        ({}, "prompt", "required"),
        ({"prompt": []}, "prompt", "empty list"),
        ({"prompt": ""}, "prompt", "the prompt is empty"),
        ({"prompt": [[]]}, "prompt", "the prompt is empty"),
        ({"prompt": [1, "x"]}, "prompt", "valid string"),
        ({"prompt": [-1]}, "prompt", "0 to 287"),
        ({"prompt": [10**30]}, "prompt", "0 to 287"),
        ({"prompt": ["x"] * 9}, "n", "takes at most 8"),
        ({"prompt": "x" * 600, "max_tokens": 1}, "prompt", "the context 512"),
        ({"prompt": "x", "echo": True}, "echo", "False"),
        ({"prompt": "x", "best_of": 2}, "best_of", "1"),
        ({"prompt": "x", "suffix": "y"}, "suffix", "''"),
        ({"prompt": "x", "logprobs": 21}, "logprobs", "0 to 20"),
        ({"prompt": "x", "messages": []}, "messages", "not supported"),
    ],
)
def test_completion_fields(served, fields, param, sentence):
    error = refused(served.http.post(COMPLETIONS, json=fields))
    assert error["param"] is not None
    assert error["param"].startswith(param)
    assert sentence in error["message"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "JSON object"),
        (b"{", "not JSON"),
        (b"[]", "JSON object"),
        (b'"text"', "JSON object"),
        (b"null", "JSON object"),
        (b'{"model": "\xff"}', "not UTF-8"),
        (b"[" * 50_000, "nested too deeply"),
        (b'{"messages":' + b"[" * 40_000 + b"]" * 40_000 + b"}", "nested too deeply"),
        (b'{"seed": 1' + b"0" * 5000 + b"}", "too long a number"),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}', "finite"),
    ],
    ids=lambda value: str(value[:12]),
)
def test_bodies(served, body, sentence):
    error = refused(served.http.post(CHAT, content=body, headers={"Content-Type": "application/json"}))
    assert sentence in error["message"]


def test_body_of_another_kind(served):
    error = refused(served.http.post(CHAT, content=b'{"messages": []}', headers={"Content-Type": "text/plain"}))
    assert "Content-Type: application/json" in error["message"]


@pytest.mark.parametrize(
    ("request_type", "body"),
    [
        (CompletionRequest, {"prompt": [{}] * 1000}),
        (CompletionRequest, {"prompt": [[{}] * 1000] * 1000}),
        (ChatRequest, {"messages": [{}] * 1000}),
        (ChatRequest, {"messages": [{"role": "user", "content": [{}] * 1000}]}),
        (ChatRequest, {"messages": [{"role": "assistant", "tool_calls": [{}] * 1000}]}),
        (DetokenizeRequest, {"tokens": ["x"] * 1000}),
    ],
)
def test_a_long_list_is_refused_at_its_first_wrong_item(request_type, body):
    with pytest.raises(ValidationError) as caught:
        request_type.model_validate(body)
    assert caught.value.error_count() < 10


def test_huge_body(served):
    response = served.chat("x" * 200_000)
    assert "limit" in refused(response, 413)["message"]
    assert served.chat().status_code == 200


def test_huge_body_of_unknown_length(served):
    pieces = (b"x" * 10_000 for _ in range(20))
    response = served.http.post(CHAT, content=pieces, headers={"Content-Type": "application/json"})
    assert "more than 100000 bytes" in refused(response, 413)["message"]


def test_unknown_model(served):
    for response in (served.chat(model="gpt"), served.complete(model="gpt"), served.http.get("/v1/models/gpt")):
        error = refused(response, 404)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "'tiny.gguf'" in error["message"]


def test_unknown_ways(served):
    assert "/v1/embeddings" in refused(served.http.post("/v1/embeddings", json={}), 404)["message"]
    response = served.http.get(CHAT)
    assert "GET" in refused(response, 405)["message"]
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/tokenize", {}, "either prompt or messages"),
        ("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, "either prompt or messages"),
        ("/tokenize", {"prompt": "x", "model": 5}, "string"),
        ("/detokenize", {"tokens": [288]}, "ids are 0 to 287"),
        ("/detokenize", {"tokens": [-1]}, "ids are 0 to 287"),
        ("/detokenize", {"tokens": "x"}, "list"),
    ],
)
def test_tokens(served, path, body, sentence):
    assert sentence in refused(served.http.post(path, json=body))["message"]


def test_values_that_ask_for_nothing(served):
    nothing = {"n": 1, "user": "me", "metadata": {"a": "b"}, "store": False, "presence_penalty": 0, "seed": 3}
    nothing |= {"response_format": {"type": "text"}, "logprobs": False, "top_logprobs": 0, "logit_bias": {}}
    nothing |= {"speculation": {}, "stream": False, "stop": None, "temperature": None}
    response = served.chat(**nothing)
    assert response.status_code == 200, response.text
    assert served.complete(echo=False, best_of=1, suffix="").status_code == 200
