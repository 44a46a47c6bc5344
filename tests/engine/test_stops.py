"""Stop strings against a search over the whole text after every character."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.engine.stops import StopMatcher
from splits import splits

# Two letters and short strings, so that stops overlap themselves, each other and the cuts.
_text = st.text("ab", max_size=30)
_stops = st.lists(st.text("ab", min_size=1, max_size=6), max_size=4)


def first_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text before the stop string that is complete first (the longest of several), and that stop string."""
    for end in range(1, len(text) + 1):
        ending_here = [stop for stop in stops if text[:end].endswith(stop)]
        if ending_here:
            found = max(ending_here, key=len)
            return text[: end - len(found)], found
    return text, None


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@given(_text, _stops, st.lists(st.integers(0, 100), max_size=8))
def test_text_and_stop_do_not_depend_on_how_the_text_was_cut(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher = StopMatcher(stops)
    shown = "".join(matcher.push(piece) for piece in pieces_of(text, cuts)) + matcher.flush()
    assert (shown, matcher.found) == first_stop(text, stops)


def test_all_splits_of_short_texts_agree() -> None:
    for text, stops in (("aabaabb", ["aabb", "baab"]), ("abababc", ["ababc", "abd"]), ("xENDENx", ["END", "ENx"])):
        for pieces in splits(text):
            matcher = StopMatcher(stops)
            shown = "".join(map(matcher.push, pieces)) + matcher.flush()
            assert (shown, matcher.found) == first_stop(text, stops)


@given(_text, _stops)
def test_holds_back_exactly_what_may_begin_a_stop(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for index, char in enumerate(text):
        shown += matcher.push(char)
        if matcher.found is not None:
            break
        seen = text[: index + 1]
        beginnings = (stop[:length] for stop in stops for length in range(1, len(stop)))
        held = max((len(beginning) for beginning in beginnings if seen.endswith(beginning)), default=0)
        assert shown == seen[: len(seen) - held]


@pytest.mark.parametrize(
    ("stops", "text", "before", "found"),
    [
        ([], "plain", "plain", None),
        (["\n\n"], "one\n\ntwo", "one", "\n\n"),
        (["abc", "b"], "xabc", "xa", "b"),
        (["bc", "abc"], "xabc", "x", "abc"),
        (["aab"], "aaab", "a", "aab"),
        (["é"], "café!", "caf", "é"),
        (["END"], "EN", "EN", None),
    ],
)
def test_examples(stops: list[str], text: str, before: str, found: str | None) -> None:
    matcher = StopMatcher(stops)
    assert (matcher.push(text) + matcher.flush(), matcher.found) == (before, found)


def test_says_nothing_after_a_stop() -> None:
    matcher = StopMatcher(["x"])
    assert matcher.push("ax") == "a"
    assert matcher.push("b") + matcher.flush() == ""


def test_a_very_long_stop_string_is_found() -> None:
    stop = "a" * 50_000 + "b"
    matcher = StopMatcher([stop])
    assert matcher.push("a" * 100_000) == "a" * 50_000
    assert matcher.push("b") == ""
    assert matcher.found == stop
