"""Suffix decoding: what is drafted, how far, how sure it says to be, and that sequences do not mix."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import PathModel
from foredraft.core import Context, Draft, SamplingParams
from foredraft.proposers.base import Resources
from foredraft.proposers.suffix import Suffix, create


def context(tokens: Sequence[int], id: int = 1) -> Context:
    return Context(id, list(tokens), 0, SamplingParams(), key=0)


def propose(suffix: Suffix, of: Context, budget: int = 8) -> Draft | None:
    return suffix.propose([of], [budget])[0]


def tokens(suffix: Suffix, of: Context, budget: int = 8) -> list[int] | None:
    draft = propose(suffix, of, budget)
    return None if draft is None else list(draft.tokens)


def test_the_most_frequent_continuation_of_the_longest_suffix() -> None:
    assert tokens(Suffix(), context([1, 2, 7, 3, 1, 2, 8, 3, 1, 2, 8, 5, 1, 2]), 1) == [8]
    assert tokens(Suffix(), context([9, 1, 2, 7, 3, 1, 2, 8, 3, 1, 2, 8, 5, 9, 1, 2]), 1) == [7]


def test_the_latest_of_equally_frequent_continuations() -> None:
    assert tokens(Suffix(), context([5, 1, 2, 7, 6, 1, 2, 8, 4, 1, 2]), 1) == [8]


def test_a_draft_follows_the_text_to_its_end_and_over_itself() -> None:
    assert tokens(Suffix(), context([*range(10, 40), *range(10, 30)]), 25) == [*range(30, 40), *range(10, 25)]


def test_no_suffix_that_occurs_before_no_draft() -> None:
    assert propose(Suffix(), context([1, 2, 3, 4])) is None
    assert propose(Suffix(), context([1])) is None


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 9))
def test_a_context_that_grew_is_as_one_seen_at_once(text: list[int], budget: int) -> None:
    grown, of = Suffix(), context([])
    for token in text:
        of.tokens.append(token)
        found = propose(grown, of, budget)
        assert found == propose(Suffix(), of, budget)
    assert found is None or len(found.tokens) == len(found.grades) <= budget


@pytest.mark.parametrize("length", [1, 2, 4, 8, 30])
def test_longer_suffixes_are_surer_and_drafted_farther(length: int) -> None:
    source = [*range(100, 200)]
    longer, shorter = (propose(Suffix(), context([*source, 1, *source[50 - n : 50]]), 40) for n in (length + 2, length))
    assert longer
    assert shorter
    assert longer.grades[0] >= shorter.grades[0]
    assert len(longer.tokens) >= len(shorter.tokens)
    assert list(shorter.grades) == sorted(shorter.grades)


def test_what_always_went_on_alike_is_surer_than_what_did_not() -> None:
    once = propose(Suffix(), context([1, 2, 3, 9, 1, 2]), 1)
    thrice = propose(Suffix(), context([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3, 7, 1, 2]), 1)
    split = propose(Suffix(), context([1, 2, 3, 9, 1, 2, 4, 8, 1, 2]), 1)
    assert once
    assert thrice
    assert split
    assert split.grades < once.grades < thrice.grades


def test_a_draft_ends_where_it_is_no_longer_likely() -> None:
    """After 1, 2 comes always 3, then one of five."""
    text = [token for last in (10, 11, 12, 13, 14, 15) for token in (last + 10, 1, 2, 3, last)]
    assert tokens(Suffix(), context([*text, 1, 2]), 8) == [3]


def test_sequences_do_not_mix_and_release_forgets() -> None:
    suffix = Suffix()
    first, second = context([1, 2, 3, 1, 2], id=1), context([1, 2, 8, 1, 2], id=2)
    drafts = suffix.propose([first, second], [1, 1])
    assert [draft and draft.tokens for draft in drafts] == [(3,), (8,)]
    suffix.release(1)
    suffix.release(99)
    assert propose(suffix, context([5, 6, 7], id=1)) is None
    assert tokens(suffix, second, 1) == [8]


def test_the_factory_needs_no_past() -> None:
    assert create(Resources(PathModel(), frozenset(), None)).name == "suffix"
