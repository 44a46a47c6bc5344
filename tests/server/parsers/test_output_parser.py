"""The whole parser: reasoning, content and calls of one text; stop strings before it."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.engine.stops import StopMatcher
from foredraft.errors import TemplateError
from foredraft.server.parsers.events import Content, Event, ToolCall
from foredraft.server.parsers.output import OutputParser
from splits import check_every_split, found

HERMES = r"""<tool_call>\n{"name": """
THINKING = HERMES + "<think></think>"
F = '{"name": "f", "arguments": {"a": 1}}'
CALL = f"<tool_call>{F}</tool_call>"


def test_an_answer_with_everything() -> None:
    def make() -> OutputParser:
        return OutputParser(THINKING, names={"f"})

    text = f"<think>\nf? {CALL}</think>\n\nI call.\n{CALL}\n"
    assert len(check_every_split(make, text)) == 4
    answer = make().parse(text)
    assert (answer.reasoning, answer.content) == (f"f? {CALL}", "I call.")
    (call,) = answer.tool_calls
    assert call == ToolCall(call.id, "f", '{"a": 1}')


def test_the_prompt_may_have_opened_the_reasoning() -> None:
    assert OutputParser(THINKING, "<|assistant|><think>\n").parse("why</think>so").reasoning == "why"
    assert OutputParser(THINKING, "<think>\n\n</think>\n\n").parse("why</think>so").content == "why</think>so"


def test_what_is_not_asked_for_is_not_looked_for() -> None:
    text = f"<think>a</think>{CALL}"
    assert OutputParser(HERMES).parse(text).content == text
    without_tools = OutputParser(THINKING)
    assert without_tools.parse(text).content == CALL
    assert without_tools.num_calls == 0


def test_calls_are_counted() -> None:
    parser = OutputParser(HERMES, names=["f"])
    parser.parse(CALL * 2)
    assert parser.num_calls == 2


def test_a_format_that_is_not_known_matters_only_with_tools() -> None:
    assert OutputParser("{{ tools }}").parse("x").content == "x"
    with pytest.raises(TemplateError, match="known formats"):
        OutputParser("{{ tools }}", names=["f"])


class Stopped:
    """A stop string, then the parser: the way of an answer's text."""

    def __init__(self, stop: str) -> None:
        self.stops, self.parser = StopMatcher([stop]), OutputParser(THINKING, names={"f"})

    def push(self, piece: str) -> list[Event]:
        return self.parser.push(self.stops.push(piece))

    def flush(self) -> list[Event]:
        return self.parser.push(self.stops.flush()) + self.parser.flush()


_PARTS = ("<think>", "</think>", CALL, "<tool_call>", F, "END", "E", "N", "D", " ", "\n", "x")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(_PARTS), max_size=8), st.lists(st.integers(0, 400), max_size=12))
def test_no_split_changes_what_is_found_before_a_stop_string(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    whole = found(Stopped("END"), [text])
    assert found(Stopped("END"), pieces) == found(Stopped("END"), list(text)) == whole
    assert whole == found(OutputParser(THINKING, names={"f"}), [text.partition("END")[0]])


def test_a_stop_string_in_every_split_in_three() -> None:
    text = f"a {CALL} EN b END c"
    whole = found(Stopped("END"), [text])
    assert (whole[0], whole[-1]) == (Content("a"), Content(" EN b "))
    for first, second in combinations(range(len(text) + 1), 2):
        assert found(Stopped("END"), [text[:first], text[first:second], text[second:]]) == whole
