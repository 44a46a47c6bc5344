"""Reasoning blocks: found in every split of the text, at the beginning only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.server.parsers.events import Content, Event, Reasoning
from foredraft.server.parsers.reasoning import ReasoningParser, is_known
from splits import check_every_split, found, splits


def expected(reasoning: str, content: str) -> list[Event]:
    return [*([Reasoning(reasoning)] if reasoning else []), *([Content(content)] if content else [])]


@pytest.mark.parametrize(
    ("text", "is_open", "reasoning", "content"),
    [
        ("<think>why</think>so", False, "why", "so"),
        ("\n<think>\nwhy  not\n\n</think>\n\nso ", False, "why  not", "so "),
        ("<think>\n\n</think>\n\nso", False, "", "so"),
        ("<think>why", False, "why", ""),
        ("<think>why </thin", False, "why </thin", ""),
        ("<think>a </thin b</think>", False, "a </thin b", ""),
        ("why</think>so", True, "why", "so"),
        ("\nwhy", True, "why", ""),
        ("</think>so", True, "", "so"),
        ("<think>a</think><think>b</think>", False, "a", "<think>b</think>"),
        ("so <think>b</think>", False, "", "so <think>b</think>"),
        ("  so</think>", False, "", "  so</think>"),
        (" <thi", False, "", " <thi"),
        ("<thinking>", False, "", "<thinking>"),
        ("", False, "", ""),
        (" \n", False, "", " \n"),
        (" \n", True, "", ""),
    ],
)
def test_every_split(text: str, is_open: bool, reasoning: str, content: str) -> None:
    assert check_every_split(lambda: ReasoningParser(is_open), text) == expected(reasoning, content)


def test_all_splits_of_a_short_text_agree() -> None:
    for text in ("</think>a", "<think> a", "a </think", " \n </thin"):
        for is_open in (True, False):
            assert len({str(found(ReasoningParser(is_open), pieces)) for pieces in splits(text)}) == 1


@given(st.lists(st.sampled_from(["<think>", "</think>", "</", "<", ">", " ", "\n", "x"]), max_size=10), st.booleans())
def test_no_split_of_any_text_changes_what_is_found(parts: list[str], is_open: bool) -> None:
    text = "".join(parts)
    events = check_every_split(lambda: ReasoningParser(is_open), text)
    told = "".join(event.text for event in events)
    for tag in ("<think>", "</think>") if text.lstrip().startswith("<think>") or is_open else ():
        text = text.replace(tag, "", 1) if tag in text and told.count(tag) < text.count(tag) else text
    assert told.split() == text.split() or "".join(told.split()) == "".join(text.split())


def test_reasoning_is_told_as_it_comes() -> None:
    parser = ReasoningParser(is_open=False)
    told = [
        [event.text for event in parser.push(piece)]
        for piece in ("<thi", "nk>\n", "a b", " ", "c <", "/th", "e", "</think>", "\n", "d")
    ]
    assert told == [[], [], ["a b"], [], [" c"], [], [" </the"], [], [], ["d"]]


def test_templates_that_speak_of_it_are_known() -> None:
    assert is_known("{{ '<think>\\n\\n</think>' }}")
    assert not is_known("{{ messages }}")
