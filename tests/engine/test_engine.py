"""The engine over a model that is a plain function of the token path: speculation changes nothing but the steps."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import (
    EOS,
    PAGE_SIZE,
    VOCAB,
    BrokenProposer,
    FakeProposer,
    new_engine,
    new_sequence,
    outcome,
    plain_tokens,
    proposers,
    run,
    text,
)
from foredraft.core import SamplingParams, Speculation

NAMES = ("right", "wrong", "random", "tree")
prompts = st.lists(st.integers(0, 6), min_size=1, max_size=30)
sampling = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 5]),
    top_p=st.sampled_from([1.0, 0.9]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.8]),
    frequency_penalty=st.sampled_from([0.0, 0.5]),
    logit_bias=st.sampled_from([{}, {3: 5.0, EOS: -2.0}, {EOS: 4.0}]),
    min_tokens=st.sampled_from([0, 6]),
    max_tokens=st.integers(6, 40),
    stop=st.sampled_from([(), ("a",), ("bc", "é", "c a"), ("zzzzzz",)]),
    stop_token_ids=st.sampled_from([(), (5,)]),
    ignore_eos=st.booleans(),
    seed=st.integers(0, 50),
    logprobs=st.sampled_from([None, 0, 3]),
)


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(st.tuples(prompts, sampling, st.sampled_from(NAMES), st.integers(0, 9)), min_size=1, max_size=6),
    num_pages=st.integers(18, 60),
    max_rows=st.sampled_from([1, 3, 16, 64]),
    max_sequences=st.integers(1, 6),
    share_prefixes=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_exact_text_is_that_of_a_plain_loop(requests, num_pages, max_rows, max_sequences, share_prefixes, seed):
    """Any proposers and k, any batch, any preemption, prefixes shared or not: each request's chunks (tokens, text,
    logprobs, finish reason) are those it gets alone without speculation, whose tokens are those of a plain loop."""
    engine = new_engine(num_pages, max_sequences, max_rows, share_prefixes, proposers(seed))
    together = [
        new_sequence(prompt, params, Speculation("on", k, (name,)), request=i)
        for i, (prompt, params, name, k) in enumerate(requests)
    ]
    chunks = run(engine, together)
    for sequence in together:
        alone = new_sequence(sequence.context.prompt, sequence.context.params)
        plain = run(new_engine(), [alone])[alone.context.id]
        assert outcome(chunks[sequence.context.id]) == outcome(plain)
        by_the_book = plain_tokens(alone)
        tokens = [chunk.token_id for chunk in plain]
        assert tokens == by_the_book[: len(tokens)]
        assert len(tokens) == len(by_the_book) or alone.stops.found
        assert sequence.context.output == tokens
        assert sequence.stats.num_tokens == len(tokens)
    assert engine.is_idle
    assert engine.scheduler._kv.num_available_pages == num_pages


@pytest.mark.parametrize("rule", ["rejection", "block"])
@pytest.mark.parametrize("name", NAMES)
def test_every_rule_is_exact_at_temperature_0(rule, name):
    params = SamplingParams(max_tokens=40, repetition_penalty=1.1)
    engine = new_engine(proposers=proposers())
    sequence = new_sequence([1, 2, 3], params, Speculation("on", 5, (name,), rule))
    chunks = run(engine, [sequence])[sequence.context.id]
    assert [chunk.token_id for chunk in chunks] == plain_tokens(sequence)
    assert sequence.stats.num_drafts > 0


def test_block_with_a_drafter_of_trees_goes_on_without_drafts(caplog):
    engine = new_engine(proposers=proposers())
    params = SamplingParams(max_tokens=30, temperature=1.0, seed=3, ignore_eos=True)
    sequence = new_sequence([1, 2, 3], params, Speculation("on", 6, ("tree",), "block"))
    run(engine, [sequence])
    assert len(sequence.context.output) == 30
    assert "trees" in caplog.text or "tree" in caplog.text


def test_right_drafts_take_one_step_per_k_plus_1_tokens():
    engine = new_engine(proposers=proposers())
    sequence = new_sequence([1, 2], SamplingParams(max_tokens=30, ignore_eos=True), Speculation("on", 4, ("right",)))
    chunks = run(engine, [sequence])[sequence.context.id]
    stats = sequence.stats
    assert (stats.num_steps, stats.num_tokens, stats.num_accepted) == (6, 30, 24)
    assert stats.accepted_per_position == [6, 6, 6, 6]
    assert (stats.alpha, stats.tokens_per_step) == (1.0, 5.0)
    assert [chunk.origin for chunk in chunks[:5]] == ["accepted"] * 4 + ["bonus"]
    assert [chunk.step for chunk in chunks] == [i // 5 for i in range(30)]
    assert chunks[-1].stats is stats


def test_wrong_drafts_still_give_a_token_a_step():
    engine = new_engine(proposers=proposers())
    sequence = new_sequence([1, 2], SamplingParams(max_tokens=9, ignore_eos=True), Speculation("on", 4, ("wrong",)))
    chunks = run(engine, [sequence])[sequence.context.id]
    assert {chunk.origin for chunk in chunks[:-1]} == {"corrected"}
    assert chunks[-1].origin == "plain"  # no room for a draft before the last token
    assert (sequence.stats.num_steps, sequence.stats.alpha) == (9, 0.0)
    assert sequence.stats.num_ended_by_rejection == sequence.stats.num_drafts == 8


@given(st.sampled_from(NAMES), prompts, st.integers(1, 64), st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_every_step_commits_a_token_and_committed_is_final(name, prompt, k, max_tokens):
    engine = new_engine(max_rows=512, proposers=proposers())
    sequence = new_sequence(prompt, SamplingParams(max_tokens=max_tokens), Speculation("on", k, (name,)))
    engine.add(sequence)
    before = list(sequence.context.tokens)
    while not engine.is_idle:
        chunks = engine.step()
        assert chunks
        assert sequence.context.tokens == before + [chunk.token_id for chunk in chunks]
        before = list(sequence.context.tokens)
        assert sequence.kv is None or sequence.kv.tokens == before[:-1]


@given(st.integers(0, 64), st.integers(1, 40), st.integers(160, 199))
@settings(max_examples=40, deadline=None)
def test_drafts_never_reach_past_max_tokens_or_the_context(k, max_tokens, prompt_len):
    """Field problem 10."""
    engine = new_engine(max_rows=512, proposers=proposers())
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    sequence = new_sequence([i % 5 for i in range(prompt_len)], params, Speculation("on", k, ("right",)))
    run(engine, [sequence])
    assert len(sequence.context.tokens) == sequence.token_limit
    assert max(batch.positions.max() for batch in engine._target.batches) < sequence.token_limit
    assert sequence.finish_reason == "length"


END_CASES = {
    "eos": SamplingParams(max_tokens=60, seed=5, temperature=1.0),
    "stop token": SamplingParams(max_tokens=60, stop_token_ids=(4, 9), ignore_eos=True, seed=1, temperature=1.0),
    "stop string": SamplingParams(max_tokens=60, stop=("e", "ab"), ignore_eos=True, seed=2, temperature=1.0),
    "max_tokens": SamplingParams(max_tokens=7, ignore_eos=True),
    "min_tokens": SamplingParams(max_tokens=60, min_tokens=20, logit_bias={EOS: 8.0}, seed=6, temperature=1.0),
}


@pytest.mark.parametrize("case", END_CASES)
@pytest.mark.parametrize("k", [1, 3, 8, 32])
@pytest.mark.parametrize("name", ["right", "tree"])
def test_an_end_inside_an_accepted_block_cuts_everything_there(case, k, name):
    """Text, tokens, reason, counts, and what the KV cache keeps for others."""
    params, prompt = END_CASES[case], [1, 2, 3, 4, 5]
    engines = new_engine(max_rows=512), new_engine(max_rows=512, proposers=proposers())
    sequences = new_sequence(prompt, params), new_sequence(prompt, params, Speculation("on", k, (name,)))
    plain, drafted = (run(engine, [one])[one.context.id] for engine, one in zip(engines, sequences, strict=True))
    assert outcome(plain) == outcome(drafted)
    assert sequences[0].finish_reason == sequences[1].finish_reason is not None
    assert sequences[1].stats.num_tokens == len(drafted) == len(sequences[1].context.output)
    assert sequences[1].stats.num_accepted <= len(drafted)
    assert [chunk.finish_reason for chunk in drafted[:-1]] == [None] * (len(drafted) - 1)
    whole = sequences[0].context.tokens
    hits = [engine.scheduler._kv.open([*whole, 0, 0, 0, 0, 0]).length for engine in engines]
    assert hits[0] == hits[1] == (len(whole) - 1) // PAGE_SIZE * PAGE_SIZE


def test_text_ends_before_a_stop_string_that_spans_tokens_of_two_blocks():
    probe = new_sequence([1, 2], SamplingParams(max_tokens=40, ignore_eos=True, logit_bias={20: -100.0, 21: -100.0}))
    whole = text(run(new_engine(), [probe])[probe.context.id])
    for start in range(1, 30):
        stop = whole[start : start + 5]
        params = SamplingParams(
            max_tokens=40, ignore_eos=True, logit_bias=probe.context.params.logit_bias, stop=(stop,)
        )
        engine = new_engine(proposers=proposers())
        sequence = new_sequence([1, 2], params, Speculation("on", 3, ("right",)))
        chunks = run(engine, [sequence])[sequence.context.id]
        assert text(chunks) == whole[: whole.index(stop)]
        assert chunks[-1].finish_reason == "stop"


def test_half_a_character_at_the_end_is_shown_as_a_replacement():
    params = SamplingParams(max_tokens=3, logit_bias={20: 100.0})
    sequence = new_sequence([1], params)
    assert text(run(new_engine(), [sequence])[sequence.context.id]) == "\ufffd\ufffd\ufffd"


def test_choices_differ_and_a_seed_reproduces_them():
    def texts(seed: int, speculation: Speculation) -> list[str]:
        params = SamplingParams(max_tokens=20, temperature=1.5, seed=seed, n=3, ignore_eos=True)
        leader = new_sequence([1] * 9, params, speculation)
        others = [new_sequence([1] * 9, params, speculation, choice=i, leader=leader) for i in (1, 2)]
        engine = new_engine(proposers=proposers())
        chunks = run(engine, [leader, *others])
        assert [one.num_cached_tokens for one in (leader, *others)] == [0, 8, 8]
        return [text(chunks[one.context.id]) for one in (leader, *others)]

    off = texts(7, Speculation("off"))
    assert len(set(off)) == 3
    assert texts(7, Speculation("on", 4, ("random",))) == off
    assert texts(8, Speculation("off")) != off


def test_off_never_calls_a_proposer():
    """Field problem 23."""
    proposer = FakeProposer("right", lambda rng, right: right)
    engine = new_engine(proposers={"right": proposer})
    run(engine, [new_sequence([1, 2], SamplingParams(max_tokens=9), Speculation("off", 4, ("right",)))])
    assert proposer.calls == []


def test_proposers_are_asked_in_order_and_together():
    silent = FakeProposer("silent", lambda rng, right: right)
    silent.draft = lambda context, budget: None
    right, never = proposers()["right"], proposers()["wrong"]
    engine = new_engine(proposers={"silent": silent, "right": right, "wrong": never})
    speculation = Speculation("on", 2, ("silent", "right", "wrong"))
    params = SamplingParams(max_tokens=9, ignore_eos=True)
    sequences = [new_sequence([i], params, speculation, request=i) for i in range(3)]
    run(engine, sequences)
    assert silent.calls.count("propose") == right.calls.count("propose") == 3
    assert "propose" not in never.calls
    assert sequences[0].stats.num_drafts_by_proposer == {"right": 3}


def test_a_proposer_is_told_what_became_of_its_draft_and_released_once():
    right = FakeProposer("right", lambda rng, right: right)
    engine = new_engine(proposers={"right": right})
    run(engine, [new_sequence([1], SamplingParams(max_tokens=8, ignore_eos=True), Speculation("on", 3, ("right",)))])
    assert right.calls == ["propose", "observe", "propose", "observe", "release"]
    assert all(verdict.path == tuple(range(len(draft.tokens))) for draft, verdict in right.observed)


@pytest.mark.parametrize("fault", BrokenProposer.FAULTS)
def test_a_broken_proposer_costs_speed_only(fault, caplog):
    caplog.set_level(logging.ERROR, "foredraft")
    fine = proposers()["right"]
    engine = new_engine(60, proposers={"broken": BrokenProposer(fault), "right": fine})
    params = SamplingParams(max_tokens=25, ignore_eos=True, temperature=1.0, seed=4)
    sequences = [
        new_sequence([i, 1, 2], params, Speculation("on", 4, ("broken", "right")), request=i) for i in range(3)
    ]
    chunks = run(engine, sequences)
    for sequence in sequences:
        assert [chunk.token_id for chunk in chunks[sequence.context.id]] == plain_tokens(sequence)
    assert "broken" in caplog.text
    assert engine.scheduler._kv.num_available_pages == 60
    if fault not in ("observe", "release"):
        assert sequences[0].stats.num_drafts_by_proposer.keys() == {"right"}
        assert caplog.text.count("Traceback") <= 3


def test_abort_frees_pages_and_lets_the_others_go_on():
    right = FakeProposer("right", lambda rng, right: right)
    engine = new_engine(60, proposers={"right": right})
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    speculation = Speculation("on", 3, ("right",))
    leader = new_sequence([1] * 10, params, speculation)
    follower = new_sequence([1] * 10, params, speculation, choice=1, leader=leader)
    other = new_sequence([2] * 10, params, speculation, request=1)
    for sequence in (leader, follower, other):
        engine.add(sequence)
    engine.abort(leader)  # before its prompt was read: the follower must not wait for it for ever
    engine.step()
    engine.abort(other)
    engine.abort(other)
    for _ in range(100):
        if engine.is_idle:
            break
        engine.step()
    assert follower.context.output == plain_tokens(follower)
    assert engine.scheduler._kv.num_available_pages == 60
    assert leader.context.output == []


def test_an_idle_engine_steps_to_nothing():
    assert new_engine().step() == []


def test_prefix_hits_are_equal_with_and_without_speculation_when_pages_are_scarce():
    """Field problem 18: drafts take no page that holds a prefix somebody may come back for."""

    def cached(speculation: Speculation) -> list[int]:
        engine = new_engine(num_pages=24, max_sequences=1, proposers=proposers())
        params = SamplingParams(max_tokens=12, ignore_eos=True)
        hits = []
        for turn in range(12):
            prompt = [turn % 4] * 16 + [turn]
            sequence = new_sequence(prompt, params, speculation)
            run(engine, [sequence])
            hits.append(sequence.num_cached_tokens)
        return hits

    off = cached(Speculation("off"))
    assert any(off)
    for name in NAMES:
        assert cached(Speculation("on", 12, (name,))) == off


@pytest.mark.parametrize("name", NAMES)
def test_prefixes_are_found_in_their_own_scope_only(name):
    """With and without speculation, by a later request, by another choice and after a preemption."""

    def cached(speculation: Speculation) -> list[int]:
        engine = new_engine(proposers=proposers())
        params = SamplingParams(max_tokens=12, ignore_eos=True)
        found = []
        for scope in ("", "alice", "bob", "alice", ""):
            leader = new_sequence([1] * 17, params, speculation, scope=scope)
            other = new_sequence([1] * 17, params, speculation, choice=1, leader=leader, scope=scope)
            run(engine, [leader, other])
            found += [leader.num_cached_tokens, other.num_cached_tokens]
        return found

    off = cached(Speculation("off"))
    assert off == [0, 16, 0, 16, 0, 16, 16, 16, 16, 16]
    assert cached(Speculation("on", 6, (name,))) == off


def test_the_last_chunk_tells_seed_and_cached_tokens():
    engine, params = new_engine(), SamplingParams(max_tokens=6, ignore_eos=True, seed=7)
    for num_cached in (0, 8):
        sequence = new_sequence([1] * 9, params)
        *before, last = run(engine, [sequence])[sequence.context.id]
        assert (last.finish_reason, last.seed, last.num_cached_tokens) == ("length", 7, num_cached)
        assert {(chunk.finish_reason, chunk.seed, chunk.num_cached_tokens) for chunk in before} == {(None, None, None)}


def test_vocabulary_of_the_fakes():
    assert EOS == VOCAB - 1


@pytest.mark.parametrize("speculation", [None, Speculation("on", 4, ("random",))])
def test_a_sequence_without_numbers_ends_alone(speculation):
    """Its logits turn to NaN where token 5 comes up: it ends with an error, its pages are free, the others go on."""
    params = [SamplingParams(max_tokens=40, temperature=1.0, seed=seed, ignore_eos=True) for seed in range(6)]
    expected = [plain_tokens(new_sequence([1, 2], one)) for one in params]
    engine = new_engine(proposers=proposers())
    forward = engine._target.forward

    def poisoned(batch, kv):
        logits = forward(batch, kv)
        logits[batch.tokens[batch.wanted] == 5] = np.nan
        return logits

    engine._target.forward = poisoned
    sequences = [new_sequence([1, 2], one, speculation) for one in params]
    run(engine, sequences)
    for sequence, tokens in zip(sequences, expected, strict=True):
        output = sequence.context.output
        if 5 in tokens[:-1]:
            assert sequence.finish_reason == "error"
            assert "nan" in str(sequence.error)
            assert output == tokens[: len(output)]
        else:
            assert (sequence.finish_reason, sequence.error, output) == ("length", None, tokens)
    assert {sequence.finish_reason for sequence in sequences} == {"error", "length"}
    assert engine.is_idle
    assert engine.scheduler._kv.num_available_pages == engine.scheduler._kv.num_pages


def test_a_logit_that_only_logprobs_see_ends_its_sequence_alone():
    """NaN on a token that the constraint forbids: the choice does not look at it, the log probabilities do."""
    engine = new_engine()
    forward = engine._target.forward

    def poisoned(batch, kv):
        logits = forward(batch, kv)
        logits[:, EOS] = np.nan
        return logits

    engine._target.forward = poisoned
    params = SamplingParams(max_tokens=6, min_tokens=6)
    good, bad = new_sequence([1, 2], params), new_sequence([1, 2], replace(params, logprobs=2), request=1)
    run(engine, [good, bad])
    assert (good.finish_reason, len(good.context.output)) == ("length", 6)
    assert (bad.finish_reason, bad.context.output) == ("error", [])
    assert "nan" in str(bad.error)
