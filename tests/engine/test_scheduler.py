"""The scheduler under random loads and tiny KV budgets: all are served, in order, and pages are never lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import PAGE_SIZE, new_engine, new_sequence, pages_by_owner, plain_tokens, proposers
from foredraft.core import SamplingParams, Speculation

ON = Speculation("on", 5, ("random",))
requests = st.tuples(
    st.integers(0, 30),  # step of arrival
    st.lists(st.integers(0, 3), min_size=1, max_size=24),
    st.integers(1, 24),  # max_tokens
    st.integers(1, 3),  # choices
    st.booleans(),
)


def arrivals(load):
    """(step, sequences) of each request, in order of arrival."""
    arriving = []
    for number, (step, prompt, max_tokens, n, is_on) in enumerate(sorted(load, key=lambda request: request[0])):
        params = SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=number, ignore_eos=True, n=n)
        speculation = ON if is_on else None
        leader = new_sequence(prompt, params, speculation, number)
        others = [new_sequence(prompt, params, speculation, number, choice, leader) for choice in range(1, n)]
        arriving.append((step, [leader, *others]))
    return arriving


@settings(max_examples=30, deadline=None)
@given(
    load=st.lists(requests, min_size=1, max_size=8),
    num_pages=st.integers(12, 40),
    max_sequences=st.integers(1, 6),
    max_rows=st.sampled_from([1, 4, 32]),
    share_prefixes=st.booleans(),
)
def test_everybody_is_served_in_order_and_no_page_is_lost(load, num_pages, max_sequences, max_rows, share_prefixes):
    engine = new_engine(num_pages, max_sequences, max_rows, share_prefixes, proposers())
    scheduler, todo = engine.scheduler, arrivals(load)
    sequences = [one for _, group in todo for one in group]
    order = {one.context.id: place for place, one in enumerate(sequences)}
    first_seen: list[int] = []
    step = 0
    while todo or not engine.is_idle:
        while todo and todo[0][0] <= step:
            for one in todo.pop(0)[1]:
                engine.add(one)
        prefilled = {one for one in sequences if one.is_prefilled}
        decoding = [one for one in scheduler.running if one.num_pending == 1]
        num_preemptions = scheduler.num_preemptions
        chunks = engine.step()
        decided = {chunk.context_id for chunk in chunks}
        # A decode is left out of a step only when it lost its pages.
        assert all(one.context.id in decided or one.kv is None for one in decoding)
        assert scheduler.num_preemptions > num_preemptions or all(one.context.id in decided for one in decoding)
        assert len(scheduler.running) <= max_sequences
        assert sum(pages_by_owner(engine)) == num_pages
        assert scheduler.kv_use == 1 - pages_by_owner(engine)[0] / num_pages
        if engine.last_record:
            rows = engine.last_record.num_rows - engine.last_record.num_draft_rows
            assert rows <= max(max_rows, len(decoding) + 1)
        for one in scheduler.running:
            if one.context.id not in first_seen:
                first_seen.append(one.context.id)
                assert one.leader is None or one.leader in prefilled
        # Those who wait stand in order of arrival, and so do those who run (a preempted one comes back in its turn).
        waiting = [order[one.context.id] for one in scheduler.waiting]
        assert waiting == sorted(waiting)
        step += 1
        assert step < 3000
    for one in sequences:
        assert one.context.output == plain_tokens(one)
        assert one.finish_reason == "length"


def start(num_pages, *prompts_and_lengths, max_rows=64, max_sequences=8, speculation=None):
    engine = new_engine(num_pages, max_sequences, max_rows, proposers=proposers())
    sequences = []
    for number, (prompt_len, max_tokens) in enumerate(prompts_and_lengths):
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        sequences.append(new_sequence([number] * prompt_len, params, speculation, request=number))
        engine.add(sequences[-1])
    return engine, sequences


def test_a_long_prompt_is_read_in_chunks_while_others_decode():
    engine, (short, long) = start(60, (2, 20), (50, 3), max_rows=8)
    engine.step()
    assert (short.num_pending, long.kv.length) == (1, 6)
    lengths = []
    while not long.is_prefilled:
        before = len(short.context.tokens)
        engine.step()
        assert len(short.context.tokens) == before + 1
        lengths.append(long.kv.length)
    assert lengths == [13, 20, 27, 34, 41, 48, 50]


def test_nobody_is_preempted_while_there_are_pages():
    engine, _ = start(30, (8, 20), (8, 20), (8, 20), speculation=ON)
    while not engine.is_idle:
        engine.step()
    assert engine.scheduler.num_preemptions == 0


def test_drafts_push_nobody_out():
    """The short one fits beside the long one, which needs all pages only later; so it must with drafts."""
    for speculation in (None, Speculation("on", 9, ("wrong",))):
        engine, _ = start(4, (3, 14), (3, 5), speculation=speculation)
        num_steps = 0
        while not engine.is_idle:
            engine.step()
            num_steps += 1
        assert engine.scheduler.num_preemptions == 0
        assert num_steps == 14


def test_refused_drafts_hold_no_pages_between_steps():
    engine, (one,) = start(40, (3, 30), speculation=Speculation("on", 20, ("wrong",)))
    while not engine.is_idle:
        engine.step()
        if one.kv:
            assert len(one.kv.pages) == -(-one.kv.length // PAGE_SIZE)


def test_the_youngest_gives_way_and_comes_back_first():
    engine, (old, young, late) = start(5, (8, 12), (8, 12), (4, 4))
    while engine.scheduler.num_preemptions == 0:
        engine.step()
    assert old in engine.scheduler.running
    assert engine.scheduler.waiting[0] is young
    assert engine.scheduler.waiting[1] is late
    while not engine.is_idle:
        engine.step()
    assert all(one.context.output == plain_tokens(one) for one in (old, young, late))
    assert young.num_cached_tokens == 0  # what it found of its own pages after preemption is no cache hit


def test_a_first_in_line_that_does_not_fit_is_not_overtaken():
    engine, (running, large, small) = start(9, (12, 12), (24, 4), (1, 2))
    engine.step()
    assert engine.scheduler.running == [running]
    assert list(engine.scheduler.waiting) == [large, small]
    while not running.finish_reason:
        assert small.kv is None
        engine.step()


def test_choices_wait_for_their_leader_and_share_its_prompt():
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    leader = new_sequence([1] * 17, params)
    follower = new_sequence([1] * 17, params, choice=1, leader=leader)
    engine = new_engine(max_rows=12)
    engine.add(leader)
    engine.add(follower)
    for _ in range(2):
        engine.step()
        assert follower.kv is None  # though the second step has room for it
    engine.step()
    assert follower.num_cached_tokens == 16
    assert leader.kv.pages[:4] == follower.kv.pages[:4]
