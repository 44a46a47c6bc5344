"""The suffix automaton against a search through all texts, and its cost in operations."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.proposers.suffix_index import Match, SuffixIndex

TEXTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=25), min_size=1, max_size=4)


def indexed(texts: Sequence[Sequence[int]]) -> SuffixIndex:
    index = SuffixIndex()
    for text in texts:
        index.begin()
        for token in text:
            index.append(token)
    return index


def followers(texts: Sequence[Sequence[int]], string: Sequence[int]) -> Counter[int]:
    """How often which token follows a string, the latest last."""
    found: Counter[int] = Counter()
    for text in texts:
        for end in range(len(string), len(text)):
            if text[end - len(string) : end] == string:
                token = text[end]
                found[token] = found.pop(token, 0) + 1
    return found


def occurs(texts: Sequence[Sequence[int]], string: Sequence[int]) -> bool:
    starts = ((text, at) for text in texts for at in range(len(text) - len(string) + 1))
    return any(text[at : at + len(string)] == string for text, at in starts)


def check(index: SuffixIndex, state: int, expected: Counter[int]) -> None:
    assert index.num_followed(state) == expected.total()
    token, count, following = index.likeliest(state)
    if not expected:
        assert (token, count) == (-1, 0)
        return
    assert count == max(expected.values())
    assert token == [each for each in expected if expected[each] == count][-1]  # the latest of equally frequent
    assert following


@settings(max_examples=300)
@given(TEXTS, st.lists(st.integers(0, 3), max_size=20))
def test_a_sequence_is_followed_as_by_searching(texts: list[list[int]], sequence: list[int]) -> None:
    """Its match is the longest suffix that occurs; all contexts and what follows them are counted."""
    index, match = indexed(texts), Match()
    for end, token in enumerate(sequence, 1):
        index.follow(match, token)
        longest = next(n for n in range(end, -1, -1) if not n or occurs(texts, sequence[end - n : end]))
        assert match.length == longest
        lengths = []
        for state, length in index.contexts(match):
            check(index, state, followers(texts, sequence[end - length : end]))
            lengths.append(length)
        assert lengths == sorted(set(lengths), reverse=True)
        following = [n for n in range(1, longest + 1) if followers(texts, sequence[end - n : end])]
        assert max(lengths, default=0) == max(following, default=0)


@settings(max_examples=300)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_a_text_is_followed_in_itself(text: list[int]) -> None:
    index = SuffixIndex()
    for end, token in enumerate(text, 1):
        index.append(token)
        match = index.of_itself()
        so_far = text[:end]
        longest = next(n for n in range(end - 1, -1, -1) if not n or followers([so_far], so_far[-n:]))
        assert match.length == longest
        if longest:
            check(index, match.state, followers([so_far], so_far[-longest:]))


@given(TEXTS, TEXTS, st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_a_match_stays_right_while_texts_are_added(
    texts: list[list[int]], more: list[list[int]], sequence: list[int]
) -> None:
    index, match = indexed(texts), Match()
    for token in sequence:
        index.follow(match, token)
    for text in more:
        index.begin()
        for token in text:
            index.append(token)
    longest = match.length
    for state, length in index.contexts(match):
        assert length <= longest
        check(index, state, followers([*texts, *more], sequence[-length:]))
    index.follow(match, 0)
    assert occurs([*texts, *more], [*sequence, 0][len(sequence) + 1 - match.length :])


@given(TEXTS)
def test_its_size_is_that_of_the_texts(texts: list[list[int]]) -> None:
    index, num_tokens = indexed(texts), sum(map(len, texts))
    assert index.num_states <= max(2 * num_tokens, 2)
    assert index.num_edges == sum(map(len, index._edges)) <= max(3 * num_tokens, 1)
    states = index.num_states
    index.begin()
    for token in texts[0]:
        index.append(token)
    assert index.num_states <= states + len(texts[0])


def test_a_text_that_was_there_before_adds_nothing() -> None:
    text = [n * n % 101 for n in range(80)]
    index = indexed([text])
    before = index.num_states, index.num_edges
    for _ in range(5):
        index.begin()
        for token in text:
            index.append(token)
    assert (index.num_states, index.num_edges) == before


class Counting(list[int]):
    """Counts its reads. Every loop over states goes from link to link."""

    num_read = 0

    def __getitem__(self, at: Any) -> Any:
        self.num_read += 1
        return super().__getitem__(at)


def reads_per_token(text: Sequence[int]) -> float:
    index, links = SuffixIndex(), Counting([-1])
    index._links = links  # type: ignore[assignment]
    for token in text:
        index.append(token)
    return links.num_read / len(text)


def test_a_token_costs_the_same_in_a_long_text() -> None:
    text = random.Random(1).choices(range(50), k=20_000)
    short, long = reads_per_token(text[:2000]), reads_per_token(text)
    assert long < short + 4
    assert long < 20


def test_loops_cost_no_more_than_a_bound() -> None:
    assert reads_per_token([7] * 2000) < 40
    assert reads_per_token([1, 2, 3] * 1000) < 40
