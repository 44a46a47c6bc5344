"""The paged KV cache against a naive model that keeps every sequence's tokens in a list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from foredraft.kv.cache import PagedKV, SequenceKV

PAGE_SIZE = 3
SMALL_PAGE = 2  # full after few random tokens
tokens_of = st.lists(st.integers(0, 1), max_size=8)  # two tokens, so that prefixes meet often


class Machine(RuleBasedStateMachine):
    """Open, write, commit, trim and close at random; slots hold a number made of scope and tokens up to theirs."""

    @initialize(num_pages=st.integers(4, 12), share=st.booleans())
    def setup(self, num_pages: int, share: bool) -> None:
        self.kv = PagedKV(2, 1, 2, num_pages, SMALL_PAGE, share)
        self.share = share
        self.expected: dict[SequenceKV, list[int]] = {}
        self.scopes: dict[SequenceKV, str] = {}
        self.seen: list[list[int]] = [[]]  # what closed sequences held

    def write(self, sequence: SequenceKV, row: int, path: list[int]) -> None:
        page, offset = self.place(sequence, sequence.length + row)
        content = fingerprint(path, self.scopes[sequence])
        for number, layer in enumerate(self.kv.layers):
            layer.keys[page, 0, :, offset] = content, number
            layer.values[page, 0, offset] = -content, number

    def place(self, sequence: SequenceKV, slot: int) -> tuple[int, int]:
        return sequence.pages[slot // SMALL_PAGE], slot % SMALL_PAGE

    @rule(data=st.data(), more=tokens_of.filter(len), scope=st.sampled_from(["", "a"]))
    def open(self, data: st.DataObject, more: list[int], scope: str) -> None:
        prompt = data.draw(st.sampled_from([*self.seen, *self.expected.values()])) + more
        sequence = self.kv.open(prompt, scope)
        assert sequence.tokens == prompt[: sequence.length]
        assert sequence.length < len(prompt)
        assert sequence.length % SMALL_PAGE == 0
        assert self.share or sequence.length == 0
        # A live sequence's full pages are always found.
        alive = [whole for other, whole in self.expected.items() if self.scopes[other] == scope]
        longest = max((common(prompt, whole) for whole in alive), default=0)
        if self.share:
            assert sequence.length >= min(longest, len(prompt) - 1) // SMALL_PAGE * SMALL_PAGE
        self.expected[sequence], self.scopes[sequence] = list(sequence.tokens), scope

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), rows=tokens_of.filter(len), is_tree=st.booleans())
    def step(self, data: st.DataObject, rows: list[int], is_tree: bool) -> None:
        """Reserve, write a chain or a tree of rows, keep one path of it."""
        sequence = self.pick(data)
        free, num_pages = self.kv.num_available_pages, len(sequence.pages)
        if not self.kv.reserve(sequence, len(rows)):
            needed = -(-(sequence.length + len(rows)) // SMALL_PAGE) - num_pages
            assert needed > free
            assert (self.kv.num_available_pages, len(sequence.pages)) == (free, num_pages)
            return
        draw = data.draw
        parents = [draw(st.integers(-1, row - 1)) if is_tree else row - 1 for row in range(len(rows))]
        paths: list[list[int]] = []
        for row, parent in enumerate(parents):
            paths.append([*(paths[parent] if parent >= 0 else []), row])
            self.write(sequence, row, [*sequence.tokens, *(rows[i] for i in paths[row])])
        kept = draw(st.sampled_from([[], *paths]))
        tokens = [rows[row] for row in kept]
        self.kv.commit(sequence, tokens, kept if is_tree or draw(st.booleans()) else None)
        self.expected[sequence] += tokens

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), num_rows=st.integers(0, 4))
    def trim(self, data: st.DataObject, num_rows: int) -> None:
        sequence = self.pick(data)
        before = list(sequence.pages)
        self.kv.trim(sequence, num_rows)
        assert sequence.pages == before[: -(-(sequence.length + num_rows) // SMALL_PAGE)]

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        sequence = self.pick(data)
        self.seen.append(self.expected.pop(sequence))
        self.kv.close(sequence)
        assert (sequence.pages, sequence.tokens) == ([], [])

    def pick(self, data: st.DataObject) -> SequenceKV:
        return data.draw(st.sampled_from(list(self.expected)))

    @invariant()
    def slots_hold_their_own_tokens(self) -> None:
        for sequence, tokens in self.expected.items():
            assert sequence.tokens == tokens
            for slot in range(len(tokens)):
                page, offset = self.place(sequence, slot)
                for number, layer in enumerate(self.kv.layers):
                    want = fingerprint(tokens[: slot + 1], self.scopes[sequence])
                    assert layer.keys[page, 0, :, offset].tolist() == [want, number]
                    assert layer.values[page, 0, offset].tolist() == [-want, number]

    @invariant()
    def pages_are_conserved(self) -> None:
        owned = {page for sequence in self.expected for page in sequence.pages}
        assert self.kv.num_available_pages + len(owned) == self.kv.num_pages

    @invariant()
    def only_full_pages_of_one_content_have_two_owners(self) -> None:
        contents: dict[int, list[int]] = {}
        for sequence, tokens in self.expected.items():
            assert len(set(sequence.pages)) == len(sequence.pages)
            for index, page in enumerate(sequence.pages):
                upto = tokens[: (index + 1) * SMALL_PAGE]
                if page in contents:
                    assert len(upto) == (index + 1) * SMALL_PAGE
                    assert contents[page] == upto
                contents[page] = upto

    def teardown(self) -> None:
        for sequence in getattr(self, "expected", ()):
            self.kv.close(sequence)
        if hasattr(self, "kv"):
            assert self.kv.num_available_pages == self.kv.num_pages
            everything = SequenceKV()
            assert self.kv.reserve(everything, self.kv.num_pages * SMALL_PAGE)
            assert sorted(everything.pages) == list(range(self.kv.num_pages))


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def fingerprint(path: list[int], scope: str) -> int:
    """A number of the path, its length and the scope, exact in float16."""
    return (sum((token + 1) * 3**i for i, token in enumerate(path)) * 31 + len(path) + 1000 * len(scope)) % 2039


def common(first: list[int], second: list[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def filled(kv: PagedKV, tokens: list[int]) -> SequenceKV:
    sequence = kv.open(tokens)
    rest = tokens[sequence.length :]
    assert kv.reserve(sequence, len(rest))
    kv.commit(sequence, rest)
    return sequence


def test_a_closed_prefix_is_found_again_until_its_memory_is_needed():
    kv = PagedKV(1, 1, 2, 4, PAGE_SIZE)
    kv.close(filled(kv, [1, 2, 3, 4, 5, 6, 7]))
    again = kv.open([1, 2, 3, 4, 5, 6, 7])
    assert again.length == 6
    kv.close(again)
    kv.close(filled(kv, [9] * 9))  # takes the unnamed pages first, then the end of the old prefix
    assert kv.open([1, 2, 3, 4, 5, 6, 7]).length == 3


def test_a_prefix_in_use_again_is_not_given_away():
    kv = PagedKV(1, 1, 2, 3, PAGE_SIZE)
    kv.close(filled(kv, [1, 2, 3, 4]))
    again, other = kv.open([1, 2, 3, 4]), kv.open([7])
    assert kv.num_available_pages == 2
    assert kv.reserve(other, 2 * PAGE_SIZE)
    assert not set(again.pages) & set(other.pages)
    assert not kv.reserve(kv.open([8]), 1)


def test_the_whole_prompt_is_never_shared():
    kv = PagedKV(1, 1, 2, 8, PAGE_SIZE)
    kv.close(filled(kv, [1, 2, 3, 4, 5, 6]))
    assert kv.open([1, 2, 3, 4, 5, 6]).length == 3
    assert kv.open([1, 2, 3, 4, 5, 6, 0]).length == 6
    assert kv.open([1, 2, 4, 4, 5, 6, 0]).length == 0


def test_equal_pages_after_different_prefixes_are_different():
    kv = PagedKV(1, 1, 2, 8, PAGE_SIZE)
    kv.close(filled(kv, [1, 1, 1, 5, 5, 5]))
    assert kv.open([2, 2, 2, 5, 5, 5, 0]).length == 0
    assert kv.open([5, 5, 5, 0]).length == 0


def test_scopes_share_nothing():
    kv = PagedKV(1, 1, 2, 8, PAGE_SIZE)
    prompt = [1, 2, 3, 4, 5, 6, 7]
    kv.close(filled(kv, prompt))
    assert [kv.open(prompt, scope).length for scope in ("", "alice", "bob")] == [6, 0, 0]
    alice = kv.open(prompt, "alice")
    assert kv.reserve(alice, 6)
    kv.commit(alice, prompt[:6])
    kv.close(alice)
    assert [kv.open(prompt, scope).length for scope in ("", "alice", "bob")] == [6, 6, 0]


def test_two_sequences_that_wrote_the_same_page_share_with_a_third():
    kv = PagedKV(1, 1, 2, 8, PAGE_SIZE)
    first, second = kv.open([1, 2, 3, 4]), kv.open([1, 2, 3, 4])
    for sequence in (first, second):
        assert kv.reserve(sequence, 3)
        kv.commit(sequence, [1, 2, 3])
    assert first.pages == second.pages
    assert kv.num_available_pages == 7
    kv.close(first)
    third = kv.open([1, 2, 3, 4])
    assert third.pages == second.pages
    kv.close(second)
    kv.close(third)
    assert kv.num_available_pages == 8


@pytest.mark.parametrize("page_size", [1, 32])
def test_page_bytes_are_those_of_the_arrays(page_size):
    kv = PagedKV(3, 2, 8, 5, page_size)
    allocated = sum(layer.keys.nbytes + layer.values.nbytes for layer in kv.layers)
    assert allocated == 5 * PagedKV.page_bytes(3, 2, 8, page_size)
    assert {layer.keys.dtype for layer in kv.layers} == {np.dtype(np.float16)}
