"""Past outputs: never over the bound, never another tenant's, what is not used goes first, and all of it on disk."""

from __future__ import annotations

import gc
import logging
import random
import tracemalloc
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.core import Context, SamplingParams, Verdict
from foredraft.errors import ConfigError, StoreError
from foredraft.proposers.suffix import Suffix
from foredraft.proposers.suffix_file import FILE, fingerprint
from foredraft.proposers.suffix_index import SuffixIndex
from foredraft.proposers.suffix_memory import LEAST_BYTES, Key, SuffixMemory

ANNA, BERT = Key("anna", "chat"), Key("bert", "chat")
MIB = 1 << 20


def text(seed: int, length: int = 200) -> list[int]:
    return random.Random(seed).choices(range(1000), k=length)


def context(tokens: Sequence[int], key: Key = ANNA, prompt_len: int = 0, id: int = 1) -> Context:
    return Context(id, list(tokens), prompt_len, SamplingParams(), 0, scope=key.scope, shares=key.pool)


def drafted(memory: SuffixMemory, tokens: Sequence[int], key: Key = ANNA, budget: int = 8) -> list[int]:
    """What a sequence that is seen for the first time is drafted."""
    draft = Suffix(memory).propose([context(tokens, key)], [budget])[0]
    return list(draft.tokens) if draft else []


def num_texts(memory: SuffixMemory) -> dict[Key, int]:
    return {store.key: store.num_texts for store in memory.report()}


def test_outputs_are_remembered_and_drafted_from() -> None:
    memory, of = SuffixMemory(), context([5, 6, 7, *text(1)], prompt_len=3)
    Suffix(memory).learn(of)
    assert drafted(memory, text(1)[:20]) == text(1)[20:28]
    assert drafted(memory, [9, 9, 5, 6, 7], budget=1) == text(1)[:1]  # from the end of the prompt on
    assert num_texts(memory) == {ANNA: 1}


def test_of_a_long_prompt_only_the_end_is_remembered() -> None:
    memory = SuffixMemory()
    Suffix(memory).learn(context([*text(1), *text(2)], prompt_len=200))
    assert drafted(memory, text(1)[20:40]) == []
    assert drafted(memory, text(2)[20:40]) == text(2)[40:48]


def test_a_sequence_sees_what_is_added_while_it_runs() -> None:
    memory = SuffixMemory()
    suffix, of = Suffix(memory), context(text(1)[:10])
    assert suffix.propose([of], [4]) == [None]
    memory.add(ANNA, text(1))
    of.tokens.append(text(1)[10])
    assert suffix.propose([of], [4])[0].tokens == tuple(text(1)[11:15])
    memory.clear([ANNA])
    of.tokens.append(text(1)[11])
    assert suffix.propose([of], [4]) == [None]


def test_its_own_text_wins_where_that_promises_more() -> None:
    memory, own = SuffixMemory(), [*range(100), 1, 2, 3, 4]
    memory.add(ANNA, [1, 2, 3, 4, 300, 301, 302])
    assert drafted(memory, own, budget=1) == [5]
    for _ in range(3):
        memory.add(ANNA, [1, 2, 3, 4, 300, 301, 302])
    assert drafted(memory, own, budget=1) == [300]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([ANNA, BERT, Key("anna", "batch"), Key("", "chat")]), st.integers(0, 5))),
    st.sampled_from([ANNA, BERT, Key("anna", "batch"), Key("", "chat")]),
    st.integers(0, 5),
)
def test_nothing_of_another_tenant_or_pool_is_drafted(added: list[tuple[Key, int]], key: Key, seed: int) -> None:
    """Every tenant's tokens are its own, so that any that is drafted tells whose it was."""
    memory, suffix_of = SuffixMemory(), {}
    keys = sorted({each for each, _ in added} | {key})
    for owner, its_seed in added:
        memory.add(owner, [1, 2, 3, *(1000 * (1 + keys.index(owner)) + token for token in text(its_seed, 30))])
    suffix_of[key] = Suffix(memory)
    of = context([7, 1, 2, 3], key)
    mine = 1000 * (1 + keys.index(key))
    for token in [0, *text(seed, 10)]:
        draft = suffix_of[key].propose([of], [8])[0]
        if draft:
            assert all(mine <= each < mine + 1000 or each in of.tokens for each in draft.tokens)
        of.tokens.append(mine + token)


def test_a_context_that_does_not_share_neither_reads_nor_adds() -> None:
    memory = SuffixMemory()
    memory.add(Key("anna", ""), text(1))  # as nobody could
    of = context(text(1)[:20])
    of.shares = ""
    assert Suffix(memory).propose([of], [4]) == [None]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40), st.integers(1, 700)), max_size=60))
def test_memory_is_never_above_its_bound(added: list[tuple[int, int, int]]) -> None:
    memory = SuffixMemory(LEAST_BYTES)
    for tenant, seed, length in added:
        memory.add(Key(str(tenant), "chat"), text(seed, length))
        assert memory.num_bytes <= LEAST_BYTES
        assert memory.num_bytes == sum(store.num_bytes for store in memory.report())
        for store in memory.stores.values():
            assert 1 <= len(store.generations) <= 2
            for generation in store.generations:
                index = generation.index
                assert index.num_edges == sum(map(len, index._edges))
                assert generation.num_text_bytes >= sum(map(len, generation.texts))


@pytest.mark.parametrize("vocabulary", [3, 40, 1000, 50_000])
def test_what_is_counted_covers_what_is_allocated(vocabulary: int) -> None:
    numbers = random.Random(2)
    tokens = [array("i", numbers.choices(range(300, 300 + vocabulary), k=300)) for _ in range(50)]
    gc.collect()
    tracemalloc.start()
    try:
        index = SuffixIndex()
        for one in tokens:
            index.begin()
            for token in one:
                index.append(token)
        assert tracemalloc.get_traced_memory()[0] <= index.num_bytes
    finally:
        tracemalloc.stop()


def test_no_token_adds_more_than_was_said() -> None:
    index = SuffixIndex()
    for token in [1] * 50 + [2] + text(1, 500) + text(1, 300) + [1] * 60 + [3]:
        most, before = index.most_growth, index.num_bytes
        index.append(token)
        assert index.num_bytes - before <= most


def test_old_texts_go_first_and_what_is_written_again_stays() -> None:
    memory = SuffixMemory(LEAST_BYTES)
    for number in range(40):
        memory.add(ANNA, text(1))
        memory.add(ANNA, text(100 + number))
    assert drafted(memory, text(1)[:20]) == text(1)[20:28]
    assert drafted(memory, text(139)[:20]) == text(139)[20:28]
    assert drafted(memory, text(100)[:20]) != text(100)[20:28]


def test_the_tenant_that_was_away_longest_goes_first() -> None:
    memory = SuffixMemory(LEAST_BYTES)
    for name in ("anna", "bert", "carl"):
        memory.add(Key(name, "chat"), text(len(memory.stores)))
    suffix, of = Suffix(memory), context(text(0)[:20])
    draft = suffix.propose([of], [4])[0]
    assert draft
    suffix.observe(of, draft, Verdict((0, 1), 5))  # a hit: anna was used last of the three
    number = 100
    while Key("bert", "chat") in memory.stores:
        memory.add(Key("dora", "chat"), text(number := number + 1, 20))
    assert Key("carl", "chat") in memory.stores
    assert ANNA in memory.stores
    assert (memory.stores[ANNA].num_hits, memory.stores[ANNA].num_accepted) == (1, 2)


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"suffix_memory is 1000 bytes; allowed is 1048576 \(1 MiB\) or more"):
        SuffixMemory(1000)


# Files.


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


MINE = fingerprint(["a", "b"])


def kept(folder, mine: str = MINE, clock=None) -> SuffixMemory:
    memory = SuffixMemory(MIB, *([clock] if clock else []))
    memory.keep(folder, mine)
    return memory


def test_texts_come_back_after_a_restart_each_to_its_own(tmp_path) -> None:
    memory = kept(tmp_path / "new" / "folder")
    for owner, seed in ((ANNA, 1), (ANNA, 2), (BERT, 3), (ANNA, 2)):
        memory.add(owner, text(seed))
    memory.close()
    path = tmp_path / "new" / "folder" / FILE
    assert path.stat().st_mode & 0o777 == 0o600
    again = kept(path.parent)
    for key, seed, found in ((ANNA, 1, True), (ANNA, 2, True), (ANNA, 3, False), (BERT, 3, True), (BERT, 1, False)):
        assert drafted(again, text(seed)[:20], key) == (text(seed)[20:28] if found else [])
    assert num_texts(again) == {ANNA: 2, BERT: 1}
    [generation] = again.generations(ANNA)
    assert sorted(generation.texts.values()) == [1, 2]


def test_it_saves_while_it_runs_now_and_then(tmp_path) -> None:
    clock = Clock()
    memory = kept(tmp_path, clock=clock)
    memory.add(ANNA, text(1))
    assert not (tmp_path / FILE).exists()
    clock.now += 61
    memory.add(ANNA, text(2))
    memory._join()
    assert num_texts(kept(tmp_path)) == {ANNA: 2}
    memory.add(ANNA, text(3))
    memory.close()
    assert num_texts(kept(tmp_path)) == {ANNA: 3}


def test_nothing_new_nothing_written(tmp_path) -> None:
    kept(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_cleared_is_gone_from_the_file_too(tmp_path) -> None:
    memory = kept(tmp_path)
    memory.add(ANNA, text(1))
    memory.add(BERT, text(2))
    memory.close()
    memory.clear([ANNA, Key("nobody", "chat")])
    assert list(memory.stores) == list(kept(tmp_path).stores) == [BERT]
    assert [memory.num_bytes] == [store.num_bytes for store in memory.report()]
    assert array("i", text(1)).tobytes() not in (tmp_path / FILE).read_bytes()


def flipped(content: bytes) -> bytes:
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (flipped, "damaged"),
        (lambda content: content[:-4], "damaged"),
        (lambda content: content[:30], "damaged"),
        (lambda content: b"", "damaged, or another program's"),
        (lambda content: b"\0" * len(content), "another program's"),
        (lambda content: content.replace(b"suffixes 1", b"suffixes 2", 1), "version 2, this program knows up to 1"),
    ],
    ids=["flipped bit", "cut", "cut short", "empty", "zeros", "newer"],
)
def test_a_file_that_cannot_be_used_is_left_alone(tmp_path, caplog, change, says) -> None:
    memory = kept(tmp_path)
    memory.add(ANNA, text(1))
    memory.close()
    path = tmp_path / FILE
    path.write_bytes(change(path.read_bytes()))
    before = path.read_bytes()
    with caplog.at_level(logging.WARNING, "foredraft"):
        again = kept(tmp_path)
    [warning] = [record.getMessage() for record in caplog.records]
    assert "neither used nor kept" in warning
    assert says in warning
    assert not again.stores
    again.add(ANNA, text(2))
    assert drafted(again, text(2)[:20]) == text(2)[20:28]
    again.close()
    assert path.read_bytes() == before


def test_another_tokenizers_tokens_are_not_used(tmp_path, caplog) -> None:
    memory = kept(tmp_path)
    memory.add(ANNA, text(1))
    memory.close()
    other = kept(tmp_path, fingerprint(["b", "a"]))
    assert not other.stores
    assert "another tokenizer" in caplog.text
    other.add(ANNA, text(2))
    other.close()
    assert num_texts(kept(tmp_path)) == {ANNA: 1}


def test_a_full_disk_is_a_warning_and_the_old_file_stays(tmp_path, caplog, monkeypatch) -> None:
    memory = kept(tmp_path)
    memory.add(ANNA, text(1))
    memory.close()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        memory.add(ANNA, text(2))
        memory.close()
        with pytest.raises(StoreError, match="No space left"):
            memory.clear([BERT])
    assert "past outputs are not kept" in caplog.text
    assert "No space left on device" in caplog.text
    assert num_texts(kept(tmp_path)) == {ANNA: 1}
    memory.add(ANNA, text(3))
    memory.close()
    assert num_texts(kept(tmp_path)) == {ANNA: 3}


def test_a_write_that_was_killed_leaves_the_old_file(tmp_path) -> None:
    memory = kept(tmp_path)
    memory.add(ANNA, text(1))
    memory.close()
    (tmp_path / f"{FILE}.partial").write_bytes(b"foredraft suff")
    assert num_texts(kept(tmp_path)) == {ANNA: 1}
    memory.add(ANNA, text(2))
    memory.close()
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
