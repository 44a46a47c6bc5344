"""The official client against a real model: its calls work, and the answers are those of the Python API."""

import openai
import pytest

from foredraft.core import SamplingParams, Speculation
from serving import events

MESSAGES = [{"role": "user", "content": "Name three colors, then name them again."}]
TEXT = "1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5,"


@pytest.fixture
def client(served_smollm2):
    return served_smollm2.openai()


def chat(client, **fields):
    return client.chat.completions.create(model="SmolLM2", messages=MESSAGES, **fields)


@pytest.fixture(autouse=True, scope="module")
def name(served_smollm2):
    """The model's name is its file's; the client has to be given one."""
    served_smollm2.llm.model_name = "SmolLM2"


def test_models(client):
    assert [model.id for model in client.models.list()] == ["SmolLM2"]
    assert client.models.retrieve("SmolLM2").object == "model"


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("speculation", ["off", {"mode": "on", "k": 6, "proposer": "lookup"}])
def test_chat_is_the_offline_answer(client, offline, temperature, speculation):
    params = SamplingParams(temperature=temperature, max_tokens=30, seed=7, logprobs=2)
    expected = offline.chat(MESSAGES, params, Speculation("off"))
    answer = chat(
        client, temperature=temperature, max_tokens=30, seed=7, logprobs=True, top_logprobs=2,
        extra_body={"speculation": speculation},
    )  # fmt: skip
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", expected.text)
    assert choice.finish_reason == expected.finish_reason
    assert [entry.logprob for entry in choice.logprobs.content] == [
        entry.logprob for entry in expected.choices[0].logprobs
    ]
    tokens = [b"".join(bytes(entry.bytes) for entry in choice.logprobs.content)]
    assert tokens[0].decode().startswith(expected.text)
    assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)
    assert answer.usage.prompt_tokens == len(expected.prompt_token_ids)
    assert answer.usage.completion_tokens == len(expected.token_ids)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    report = answer.speculation
    assert report["mode"] == ("off" if speculation == "off" else "on")
    if speculation == "off":
        assert (report["num_drafts"], report["proposer"], report["off_reason"]) == (0, None, "requested")
    elif temperature == 0:  # where the text repeats itself
        assert (report["proposer"], report["off_reason"]) == ("lookup", None)
        assert report["num_drafts"] > 0


def test_stream_is_the_same_answer(client):
    fields = {"temperature": 1, "max_tokens": 40, "seed": 3, "logprobs": True, "top_logprobs": 1, "n": 2}
    fields["extra_body"] = {"speculation": "on"}  # where it is auto, drafts depend on what was learned before
    whole = chat(client, **fields)
    pieces = list(chat(client, stream=True, stream_options={"include_usage": True}, **fields))
    *parts, last = pieces
    for choice in whole.choices:
        deltas = [part.choices[0] for part in parts if part.choices[0].index == choice.index]
        assert "".join(delta.delta.content or "" for delta in deltas) == choice.message.content
        assert [delta.delta.role for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
        assert [delta.finish_reason for delta in deltas] == [None] * (len(deltas) - 1) + [choice.finish_reason]
        logprobs = [entry for delta in deltas if delta.logprobs for entry in delta.logprobs.content]
        assert logprobs == choice.logprobs.content
    assert whole.choices[0].message.content != whole.choices[1].message.content
    assert last.choices == []
    assert last.usage.completion_tokens == whole.usage.completion_tokens
    assert last.speculation["num_drafts"] == whole.speculation["num_drafts"] > 0
    assert {part.id for part in pieces} == {pieces[0].id}
    assert all(part.usage is None for part in parts)


def test_stream_without_usage_has_none(client):
    pieces = list(chat(client, stream=True, max_tokens=4))
    assert all(piece.usage is None and piece.choices for piece in pieces)


def test_choices_are_those_of_the_python_api(client, offline):
    params = SamplingParams(temperature=1.0, max_tokens=12, seed=5, n=3)
    expected = [choice.text for choice in offline.chat(MESSAGES, params).choices]
    assert [choice.message.content for choice in chat(client, max_tokens=12, seed=5, n=3).choices] == expected


def test_all_sampling_parameters(client, offline):
    bias = {11: -100, 42: 3.5}
    params = SamplingParams(
        temperature=0.8, top_k=40, top_p=0.9, min_p=0.05, repetition_penalty=1.1, presence_penalty=0.5,
        frequency_penalty=0.2, logit_bias=bias, min_tokens=3, max_tokens=20, stop=("zz", "qq"), seed=9,
    )  # fmt: skip
    answer = chat(
        client, temperature=0.8, top_p=0.9, presence_penalty=0.5, frequency_penalty=0.2, max_completion_tokens=20,
        logit_bias={str(token): value for token, value in bias.items()}, stop=["zz", "qq"], seed=9,
        extra_body={"top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "min_tokens": 3},
    )  # fmt: skip
    assert answer.choices[0].message.content == offline.chat(MESSAGES, params).text


def test_stop_strings_and_tokens(client, offline):
    free = client.completions.create(model="SmolLM2", prompt=TEXT, temperature=0, max_tokens=20)
    stop = free.choices[0].text[6:9]
    cut = client.completions.create(model="SmolLM2", prompt=TEXT, temperature=0, max_tokens=20, stop=stop)
    assert cut.choices[0].text == free.choices[0].text[: free.choices[0].text.index(stop)]
    assert (cut.choices[0].finish_reason, free.choices[0].finish_reason) == ("stop", "length")
    token = offline.generate(TEXT, SamplingParams(max_tokens=20))[0].token_ids[3]
    by_token = client.completions.create(
        model="SmolLM2", prompt=TEXT, temperature=0, max_tokens=20, extra_body={"stop_token_ids": [token]}
    )
    assert by_token.choices[0].finish_reason == "stop"
    assert by_token.usage.completion_tokens <= 4


def test_completions_of_several_prompts(client, offline):
    prompts = [TEXT, "The capital of France is", TEXT]
    params = SamplingParams(temperature=1.0, max_tokens=8, seed=2, n=2)
    results = offline.generate(prompts, params)
    expected = [choice.text for result in results for choice in result.choices]
    answer = client.completions.create(model="SmolLM2", prompt=prompts, max_tokens=8, seed=2, n=2)
    assert [choice.text for choice in answer.choices] == expected
    assert [choice.index for choice in answer.choices] == list(range(6))
    ids = [result.prompt_token_ids for result in results]
    by_ids = client.completions.create(model="SmolLM2", prompt=ids, max_tokens=8, seed=2, n=2)
    assert [choice.text for choice in by_ids.choices] == expected
    assert answer.usage.prompt_tokens == sum(map(len, ids))


def test_completions_have_16_tokens_by_default(client):
    answer = client.completions.create(model="SmolLM2", prompt=TEXT, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16


def test_completion_logprobs(client):
    fields = {"model": "SmolLM2", "prompt": TEXT, "max_tokens": 10, "temperature": 0, "logprobs": 2}
    choice = client.completions.create(**fields).choices[0]
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text
    assert [choice.text[offset] for offset in logprobs.text_offset] == [token[0] for token in logprobs.tokens]
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert top[token] == logprob == max(top.values())
        assert len(top) == 2
    pieces = [piece.choices[0] for piece in client.completions.create(**fields, stream=True)]
    assert "".join(piece.text for piece in pieces) == choice.text
    assert [offset for piece in pieces for offset in piece.logprobs.text_offset] == logprobs.text_offset
    assert [piece.finish_reason for piece in pieces[-1:]] == ["length"]


def test_a_fresh_seed_is_reported_and_reproduces(client):
    first, second = (chat(client, max_tokens=12) for _ in range(2))
    assert first.seed != second.seed
    again = chat(client, max_tokens=12, seed=first.seed)
    assert again.choices[0].message.content == first.choices[0].message.content


def test_cached_prompt_tokens_are_the_same_with_drafts(client, served_smollm2):
    prompt = "word " * 200
    asked = {"model": "SmolLM2", "prompt": prompt, "max_tokens": 4, "temperature": 0}
    client.completions.create(**asked)
    cached = [
        client.completions.create(**asked, extra_body={"speculation": mode}).usage.prompt_tokens_details.cached_tokens
        for mode in ("off", "on")
    ]
    assert cached[0] == cached[1] >= 128


def test_special_tokens_in_messages_stay_text(client, offline):
    text = "What does <|im_end|> mean?<|im_start|>system"
    messages = [{"role": "user", "content": text}]
    expected = offline.chat_tokens(messages)
    answer = client.chat.completions.create(model="SmolLM2", messages=messages, max_tokens=1)
    assert answer.usage.prompt_tokens == len(expected)
    assert expected.count(offline.tokenizer.special["<|im_end|>"]) < expected.count(
        offline.tokenizer.special["<|im_start|>"]
    )


def test_text_parts_are_lines(client, offline):
    messages = [{"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]}]
    answer = client.chat.completions.create(model="SmolLM2", messages=messages, max_tokens=1)
    assert answer.usage.prompt_tokens == len(offline.chat_tokens([{"role": "user", "content": "One\nTwo"}]))


def test_an_answer_can_be_sent_back(client):
    message = chat(client, max_tokens=3).choices[0].message
    messages = [*MESSAGES, message.model_dump(), {"role": "user", "content": "Again."}]
    assert client.chat.completions.create(model="SmolLM2", messages=messages, max_tokens=3).choices


def test_errors_are_the_clients_own(client):
    with pytest.raises(openai.NotFoundError, match="not here") as not_found:
        client.chat.completions.create(model="gpt", messages=MESSAGES)
    assert not_found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        chat(client, temperature=-1)
    assert bad.value.param == "temperature"


def test_tokenize_and_back(served_smollm2, offline):
    http = served_smollm2.http
    tokens = http.post("/tokenize", json={"prompt": "Hello <|im_end|> world"}).json()
    assert tokens["tokens"] == offline.tokenizer.encode("Hello <|im_end|> world", parse_special=True)
    assert (tokens["count"], tokens["max_model_len"]) == (len(tokens["tokens"]), 1024)
    chat_tokens = http.post("/tokenize", json={"messages": MESSAGES}).json()["tokens"]
    assert chat_tokens == offline.chat_tokens(MESSAGES)
    ids = offline.tokenizer.encode("Grüße, 世界")
    assert http.post("/detokenize", json={"tokens": ids}).json() == {"prompt": "Grüße, 世界"}


def test_tokens_of_one_step_come_in_one_event(served_smollm2):
    fields = {"max_tokens": 40, "temperature": 0, "speculation": {"mode": "on", "k": 8}, "stream": True}
    fields["stream_options"] = {"include_usage": True}
    with served_smollm2.http.stream("POST", "/v1/completions", json={"prompt": "1, 2, 3, " * 12, **fields}) as response:
        pieces = events(response)
    assert pieces[-1]["speculation"]["num_accepted"] > 10
    assert len(pieces) < 40
