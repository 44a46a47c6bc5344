"""A streamed chat adds up to the whole answer, however its chunks come."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import new_sequence
from foredraft.core import SamplingParams
from foredraft.engine.sequence import Chunk
from foredraft.governor.governor import Governor
from foredraft.server.chat import ChatForm
from foredraft.server.tools import ToolUse
from splits import splits

TEMPLATE = r"""<tool_call>\n{"name": <think></think>"""
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "\\u00e9<"}}\n</tool_call>'
TOOLS = ToolUse(({"type": "function", "function": {"name": "f"}},))
HEAD = {"id": "x", "created": 1, "model": "m", "seed": 1}
TEXTS = [
    "",
    "Hello, wor<ld>",
    CALL,
    f"<think>\nSo {CALL}? \n</think>\n\nYes.\n{CALL}\n{CALL}",
    f"<tool_call>{{}}</tool_call>{CALL} after",
    "<think>only",
    '<tool_call>\n{"name": "f", "arguments": {}}',
]


def form():
    tokenizer = SimpleNamespace(decode=lambda tokens: "")
    service = SimpleNamespace(llm=SimpleNamespace(tokenizer=tokenizer, chat_template=TEMPLATE, governor=Governor()))
    return ChatForm(service, HEAD, [new_sequence([1], SamplingParams())], TOOLS)


def chunks(pieces, reason):
    ends = [None] * (len(pieces) - 1) + [reason]
    return [
        Chunk(0, 0, 0, 7, piece, "plain", step, None, finish_reason=end)
        for step, (piece, end) in enumerate(zip(pieces, ends, strict=True))
    ]


def whole(pieces, reason):
    choice = form().whole([chunks(pieces, reason)]).model_dump()["choices"][0]
    message = choice["message"]
    calls = [call["function"] for call in message["tool_calls"] or []]
    return message["content"] or "", message["reasoning_content"] or "", calls, choice["finish_reason"]


def streamed(groups, reason):
    """What a client adds up that gets these groups of pieces, each in one delivery."""
    made, parts, all_chunks = form(), [], chunks([piece for group in groups for piece in group], reason)
    for group in groups:
        parts += made.pieces(0, [all_chunks.pop(0) for _ in group])
    choices = [part.model_dump(exclude_unset=True)["choices"][0] for part in parts]
    deltas = [choice["delta"] for choice in choices]
    assert [delta.get("role") for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [call["index"] for call in calls] == list(range(len(calls)))
    texts = ["".join(delta.get(name, "") for delta in deltas) for name in ("content", "reasoning_content")]
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    return *texts, [call["function"] for call in calls], choices[-1]["finish_reason"]


@pytest.mark.parametrize("reason", ["stop", "length"])
@pytest.mark.parametrize("text", TEXTS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_stream_is_the_whole_answer(text, reason, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=len(pieces), max_size=len(pieces)))
    groups, rest = [], list(pieces)
    for size in sizes:
        if rest:
            groups.append([rest.pop(0) for _ in range(min(size, len(rest)))])
    assert streamed(groups, reason) == whole([text], reason) == whole(pieces, reason)


def test_every_split_of_a_short_answer():
    text = "<think>a</th"
    for pieces in splits(text):
        assert streamed([[piece] for piece in pieces], "stop") == ("", "a</th", [], "stop")


def test_the_parts_of_an_answer_with_everything():
    content, reasoning, calls, reason = whole([TEXTS[3]], "stop")
    assert (content, reasoning, reason) == ("Yes.", f"So {CALL}?", "tool_calls")
    assert calls == [{"name": "f", "arguments": '{"a": "é<"}'}] * 2


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_where_one_call_is_allowed_the_first_ends_what_counts(monkeypatch, reason):
    monkeypatch.setitem(globals(), "TOOLS", replace(TOOLS, max_calls=1))
    text = f"<think>{CALL}</think>\n{CALL}\n{CALL} and more"
    call = {"name": "f", "arguments": '{"a": "é<"}'}
    assert whole([text], reason) == ("", CALL, [call], "tool_calls")
    assert streamed([[char] for char in text], reason) == ("", CALL, [call], "tool_calls")
