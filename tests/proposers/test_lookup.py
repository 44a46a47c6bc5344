"""Prompt lookup against a plain version that rescans everything, its cost in operations, and edits that it follows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.core import Context, Draft, SamplingParams, Verdict
from foredraft.errors import ConfigError
from foredraft.proposers.lookup import Lookup, create


def context(tokens: Sequence[int], id: int = 1) -> Context:
    return Context(id, list(tokens), 0, SamplingParams(), key=0)


def propose(lookup: Lookup, of: Context, budget: int) -> list[int] | None:
    draft = lookup.propose([of], [budget])[0]
    return None if draft is None else list(draft.tokens)


class Rescan:
    """The same rules with no index: every call looks through the whole context."""

    def __init__(self, min_ngram: int, max_ngram: int) -> None:
        self.lengths = range(max_ngram, min_ngram - 1, -1)
        self.copy, self.num_copied, self.misses, self.length = -1, 0, 0, 0

    def propose(self, tokens: list[int], budget: int) -> list[int] | None:
        if self.copy >= 0:
            self.copy += len(tokens) - self.length
        self.length = len(tokens)
        place = self.place(tokens)
        if place < 0:
            return None
        drafted = list(tokens)
        for i in range(budget):
            drafted.append(drafted[place + i])
        return drafted[len(tokens) :]

    def place(self, tokens: list[int]) -> int:
        for n in self.lengths:
            places = [e for e in range(n, len(tokens)) if tokens[e - n : e] == tokens[-n:]]
            if places:
                if self.copy not in places:
                    self.copy, self.num_copied, self.misses = places[-1], 0, 0
                return self.copy
        if self.misses >= 2 or self.num_copied < 4:
            self.copy = -1
        if self.copy >= 0:
            near = [e for e in range(1, len(tokens)) if tokens[e - 1] == tokens[-1] and abs(e - self.copy) <= 8]
            self.copy = min(near, key=lambda e: (abs(e - self.copy), e), default=self.copy)
        return self.copy


@settings(max_examples=150)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=12),
    st.lists(st.integers(0, 5), min_size=12, max_size=12),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 9),
)
def test_equals_rescanning(
    growth: list[list[int]], accepted: list[int], min_ngram: int, wider: int, budget: int
) -> None:
    """In contexts that grow by several tokens at a time, whatever became of the drafts."""
    lookup, plain = Lookup(min_ngram, min_ngram + wider), Rescan(min_ngram, min_ngram + wider)
    of = context([])
    for tokens, num_accepted in zip(growth, accepted, strict=False):
        of.tokens.extend(tokens)
        drafted = propose(lookup, of, budget)
        assert drafted == plain.propose(of.tokens, budget)
        if drafted:
            path = tuple(range(min(num_accepted, budget)))
            lookup.observe(of, Draft.chain("lookup", drafted), Verdict(path, 0))
            plain.num_copied += len(path)
            plain.misses = 0 if path else plain.misses + 1


def test_the_longest_match_wins_over_the_latest() -> None:
    lookup = Lookup(min_ngram=1, max_ngram=3)
    assert propose(lookup, context([1, 2, 3, 7, 9, 2, 3, 8, 1, 2, 3]), 1) == [7]


def test_the_latest_of_equally_long_matches_wins() -> None:
    assert propose(Lookup(2, 3), context([2, 3, 7, 5, 2, 3, 8, 4, 2, 3]), 2) == [8, 4]


def test_a_match_at_the_end_goes_on_over_itself() -> None:
    assert propose(Lookup(2, 3), context([9, 1, 2, 3, 1, 2, 3, 1, 2]), 7) == [3, 1, 2, 3, 1, 2, 3]


def test_no_match_no_draft() -> None:
    assert propose(Lookup(), context([1, 2, 3, 4, 5, 6]), 4) is None
    assert propose(Lookup(), context([1]), 4) is None


def test_sequences_do_not_mix_and_release_forgets() -> None:
    lookup = Lookup(2, 2)
    first, second = context([1, 2, 3, 1, 2], id=1), context([1, 2, 8, 1, 2], id=2)
    drafts = lookup.propose([first, second], [1, 1])
    assert [draft and draft.tokens for draft in drafts] == [(3,), (8,)]
    lookup.release(1)
    lookup.release(99)
    assert propose(lookup, context([5, 6, 7], id=1), 1) is None
    assert propose(lookup, second, 1) == [8]


def edited(lookup: Lookup, num_copied: int) -> Context:
    """A source of tokens 10 to 39 of which the output has copied 13 and following, after a match of 10, 11, 12."""
    of = context([*range(10, 40), 1, 10, 11, 12])
    drafted = propose(lookup, of, num_copied)
    assert drafted == list(range(13, 13 + num_copied))
    of.tokens.extend(drafted)
    lookup.observe(of, Draft.chain("lookup", drafted), Verdict(tuple(range(num_copied)), 0))
    return of


def test_a_copy_goes_on_past_a_changed_token() -> None:
    lookup = Lookup()
    of = edited(lookup, num_copied=5)
    of.tokens.append(77)  # instead of 18
    assert propose(lookup, of, 3) == [19, 20, 21]


def test_a_copy_finds_its_place_again_after_a_longer_replacement() -> None:
    lookup = Lookup()
    of = edited(lookup, num_copied=5)
    of.tokens.extend([77, 78, 79, 19])  # three tokens instead of 18
    assert propose(lookup, of, 3) == [20, 21, 22]


def test_a_copy_that_has_not_proved_itself_does_not_go_on() -> None:
    lookup = Lookup()
    of = edited(lookup, num_copied=3)
    of.tokens.append(77)
    assert propose(lookup, of, 3) is None


def test_a_copy_is_given_up_after_two_drafts_refused_at_once() -> None:
    lookup = Lookup()
    of = edited(lookup, num_copied=5)
    for number in (70, 71):
        of.tokens.append(number)
        drafted = propose(lookup, of, 2)
        assert drafted is not None
        lookup.observe(of, Draft.chain("lookup", drafted), Verdict((), number + 1))
    of.tokens.append(72)
    assert propose(lookup, of, 2) is None


def test_a_copy_stays_where_it_is_when_another_place_matches_no_better() -> None:
    body = [5, 6, 7, 8]
    of = context([1, *body, 2, 9, *body, 3, 4, 1, 5, 6])
    lookup = Lookup(min_ngram=2, max_ngram=3)
    assert propose(lookup, of, 2) == [7, 8]  # by the match 1, 5, 6
    of.tokens.extend([7, 8])
    assert propose(lookup, of, 1) == [2]  # 6, 7, 8 stands in two places; the later one is followed by 3


class CountingList(list[int]):
    """Counts the elements read."""

    num_read = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.num_read += len(found) if isinstance(index, slice) else 1
        return found


def test_a_lookup_costs_the_same_in_a_long_context() -> None:
    def reads_per_step(length: int) -> float:
        of = context([])
        of.tokens = CountingList(i * i % 1009 for i in range(length))
        lookup = Lookup()
        propose(lookup, of, 4)
        before = of.tokens.num_read
        for step in range(50):
            of.tokens.append(step)
            propose(lookup, of, 4)
        return (of.tokens.num_read - before) / 50

    assert reads_per_step(20_000) == pytest.approx(reads_per_step(2_000), abs=20)
    assert reads_per_step(20_000) < 100


def follow(lookup: Lookup, prompt: list[int], output: list[int], k: int) -> float:
    """Tokens per step when the target's text is known."""
    of = context(prompt)
    num_steps, done = 0, 0
    while done < len(output):
        draft = lookup.propose([of], [k])[0]
        tokens = draft.tokens if draft else ()
        accepted = 0
        while accepted < min(len(tokens), len(output) - done) and tokens[accepted] == output[done + accepted]:
            accepted += 1
        new = output[done : done + accepted + 1]
        of.tokens.extend(new)
        if draft:
            lookup.observe(of, draft, Verdict(tuple(range(accepted)), new[-1]))
        done += len(new)
        num_steps += 1
    return len(output) / num_steps


class WithoutCopy(Lookup):
    """N-grams alone: the copy's place is forgotten at each step."""

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        for sequence in self._sequences.values():
            sequence.copy = -1
        return super().propose(contexts, budgets)


SOURCE = '''
def total_price(items, tax_rate, discount=None):
    """Sum the items, take off the discount, add the tax."""
    total = 0
    for item in items:
        if item.is_free:
            continue
        total += item.price * item.count
    if discount is not None:
        total -= total * discount.share
        total = max(total, discount.floor)
    tax = total * tax_rate
    total += tax
    report("price", total, tax)
    return round(total, 2)
'''


@pytest.mark.parametrize(("k", "least"), [(8, 1.2), (16, 1.2)])
def test_renaming_a_variable_is_followed(k: int, least: float) -> None:
    words: dict[str, int] = {}

    def tokenize(text: str) -> list[int]:
        return [words.setdefault(word, len(words)) for word in re.findall(r"\n *| ?[a-z]+|\W|\d", text)]

    prompt = tokenize("Rename total to amount:\n" + SOURCE)
    output = tokenize(SOURCE.replace("total ", "amount ").replace("total,", "amount,"))
    with_copy, without = follow(Lookup(), prompt, output, k), follow(WithoutCopy(), prompt, output, k)
    assert with_copy > least * without


@pytest.mark.parametrize(("smallest", "largest"), [(0, 3), (4, 3)])
def test_ngram_lengths_are_checked(smallest: int, largest: int) -> None:
    with pytest.raises(ConfigError, match=r"n-grams.*allowed is"):
        Lookup(smallest, largest)


def test_the_factory_needs_nothing() -> None:
    assert create(None).name == "lookup"
