"""Tools over HTTP: the model is told of them, calls are found, forced where that is asked for, and sent back."""

import json

import jsonschema
import openai
import pytest

import tiny
from foredraft.engine.llm import LLM
from serving import events, serving

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "unit": {"enum": ["c", "f"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": CITY}},
    {"type": "function", "function": {"name": "get_time", "parameters": CITY}},
]
PARAMETERS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
GET_TIME = {"type": "function", "function": {"name": "get_time"}}
TEMPLATE = (
    "{% if tools %}Call with <tool_call>\\n{{ '{' }}\"name\": ...</tool_call>: {{ tools | tojson }}\\n{% endif %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call | tojson }}{% endfor %}\\n{% endfor %}assistant:"
).replace("{{ '{' }}", "{")


@pytest.fixture(scope="module")
def served_tools(tmp_path_factory):
    """A tiny model whose template knows tools. What it says is noise, but for what it is forced to."""
    llm = LLM(tiny.write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf", context_length=2048), threads=1)
    llm.chat_template = TEMPLATE
    with serving(llm) as server:
        yield server


def check_calls(calls, allowed):
    assert calls
    for call in calls:
        assert call["type"] == "function"
        assert call["function"]["name"] in allowed
        jsonschema.validate(json.loads(call["function"]["arguments"]), PARAMETERS[call["function"]["name"]])
    assert len({call["id"] for call in calls}) == len(calls)


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("choice", ["required", GET_TIME])
def test_forced_calls(served_tools, choice, mode):
    fields = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 250, "seed": 6}
    fields |= {"speculation": mode, "temperature": 1}
    response = served_tools.chat(**fields)
    assert response.status_code == 200, response.text
    (answered,) = response.json()["choices"]
    assert answered["finish_reason"] == "tool_calls"
    assert answered["message"]["content"] is None
    calls = answered["message"]["tool_calls"]
    check_calls(calls, {"get_time"} if choice is GET_TIME else PARAMETERS)
    assert len(calls) == 1

    body = {"messages": [{"role": "user", "content": "hello"}], **fields, "stream": True}
    with served_tools.http.stream("POST", "/v1/chat/completions", json=body) as stream:
        pieces = [piece["choices"][0] for piece in events(stream)]
    told = [call for piece in pieces for call in piece["delta"].get("tool_calls", [])]
    assert [call["function"] for call in told] == [call["function"] for call in calls]
    assert [call["index"] for call in told] == [0]
    assert not any(piece["delta"].get("content") for piece in pieces)
    assert [piece["finish_reason"] for piece in pieces if piece["finish_reason"]] == ["tool_calls"]


def test_without_a_choice_the_model_is_free(served_tools):
    answers = [
        served_tools.chat(max_tokens=20, temperature=0, **fields).json()
        for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": TOOLS})
    ]
    bare, none, auto = answers
    assert none["choices"] == bare["choices"]
    assert none["usage"]["prompt_tokens"] == bare["usage"]["prompt_tokens"] < auto["usage"]["prompt_tokens"]
    assert auto["choices"][0]["finish_reason"] in ("stop", "length")


def test_calls_and_their_results_can_be_sent_back(served_tools):
    asked = [{"role": "user", "content": "hello"}]
    first = served_tools.chat(tools=TOOLS, tool_choice=GET_TIME, max_tokens=250).json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": [{"type": "text", "text": "12"}]}
    response = served_tools.http.post(
        "/v1/chat/completions", json={"messages": [*asked, first, result], "tools": TOOLS, "max_tokens": 3}
    )
    assert response.status_code == 200, response.text
    bare = served_tools.chat(tools=TOOLS, max_tokens=3).json()
    assert response.json()["usage"]["prompt_tokens"] > bare["usage"]["prompt_tokens"] + 20


@pytest.mark.parametrize(
    ("fields", "param", "sentence"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "fly"}}}, "tool_choice", "tools has get_weather"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]},
            "tools.0.function.strict",
            "where a call is forced",
        ),
        (
            {
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"minProperties": "x"}}}],
                "tool_choice": "required",
            },
            "tools",
            "cannot be forced",
        ),
        ({"tool_choice": "required", "min_tokens": 2}, "min_tokens", "when it is complete"),
    ],
)
def test_what_cannot_be_done_is_refused(served_tools, fields, param, sentence):
    response = served_tools.chat(**{"tools": TOOLS, **fields})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param
    assert sentence in error["message"]


def test_a_template_without_tools_refuses_them(served_smollm2):
    client = served_smollm2.openai()
    with pytest.raises(openai.BadRequestError, match="none of the known formats of tool calls") as refused:
        client.chat.completions.create(
            model=served_smollm2.llm.model_name, messages=[{"role": "user", "content": "x"}], tools=TOOLS
        )
    assert refused.value.param == "tools"


@pytest.mark.models
def test_qwen_calls_functions(qwen_small):
    llm = LLM(qwen_small, context_length=2048)
    asked = [{"role": "user", "content": "What is the weather in Rome, in celsius?"}]
    with serving(llm) as served:
        client = served.openai()

        def ask(messages=asked, **fields):
            return client.chat.completions.create(
                model=llm.model_name, messages=messages, temperature=0, max_tokens=100, **fields
            )

        free = [ask(tools=TOOLS, extra_body={"speculation": mode}).choices[0] for mode in ("on", "off")]
        for choice in free:
            assert choice.finish_reason == "tool_calls"
            (call,) = choice.message.tool_calls
            assert (call.function.name, json.loads(call.function.arguments)["city"]) == ("get_weather", "Rome")
        for tool_choice, name in (("required", "get_weather"), (GET_TIME, "get_time")):
            choice = ask(tools=TOOLS, tool_choice=tool_choice, parallel_tool_calls=False).choices[0]
            assert choice.finish_reason == "tool_calls"
            assert [call.function.name for call in choice.message.tool_calls] == [name]
            check_calls([call.model_dump() for call in choice.message.tool_calls], PARAMETERS)
        deltas = [piece.choices[0].delta for piece in ask(tools=TOOLS, stream=True)]
        (streamed,) = [call for delta in deltas for call in delta.tool_calls or []]
        assert streamed.function.model_dump() == free[0].message.tool_calls[0].function.model_dump()
        message = free[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "21 degrees"}
        last = ask([*asked, message.model_dump(), result], tools=TOOLS, tool_choice="none").choices[0]
        assert "21" in last.message.content
