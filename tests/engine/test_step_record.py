"""The record of a step agrees with the pass that was run, with the requests' own counts, and with the clock."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import BrokenProposer, FakeProposer, new_engine, new_sequence, proposers
from foredraft.core import SamplingParams, Speculation
from foredraft.engine.record import StepRecorder
from foredraft.steps import NO_DRAFT_REASONS, PHASES

PARAMS = SamplingParams(max_tokens=12, ignore_eos=True)


def records(engine, sequences):
    """The record of every step until all have ended, with the chunks that it emitted."""
    for sequence in sequences:
        engine.add(sequence)
    found = []
    while not engine.is_idle:
        chunks = engine.step()
        found.append((engine.last_record, chunks))
    return found


@settings(max_examples=30, deadline=None)
@given(
    load=st.lists(
        st.tuples(
            st.integers(1, 30), st.integers(1, 20), st.sampled_from(["off", "random", "tree"]), st.integers(0, 6)
        ),
        min_size=1,
        max_size=6,
    ),
    num_pages=st.integers(16, 60),
    max_rows=st.sampled_from([1, 5, 64]),
)
def test_records_add_up_to_what_was_run(load, num_pages, max_rows):
    engine = new_engine(num_pages, max_rows=max_rows, proposers=proposers())
    sequences = [
        new_sequence(
            [i % 4 for i in range(length)],
            SamplingParams(max_tokens=max_tokens, ignore_eos=True, stop_token_ids=(3,)),
            None if name == "off" else Speculation("on", k, (name,)),
        )
        for length, max_tokens, name, k in load
    ]
    totals = Counter()
    for step, (record, chunks) in enumerate(records(engine, sequences)):
        assert record.step == step
        assert record.num_rows == len(engine._target.batches[step].tokens)
        assert record.num_sequences == engine._target.batches[step].page_tables.shape[0]
        drafted = [draft.context_id for draft in record.drafts]
        assert sorted([*drafted, *record.undrafted]) == sorted({chunk.context_id for chunk in chunks})
        for draft in record.drafts:
            totals[draft.context_id, "drafts"] += 1
            totals[draft.context_id, "tokens"] += draft.num_tokens
            totals[draft.context_id, "accepted"] += draft.num_accepted
            totals[draft.context_id, "rejected"] += draft.is_rejected
    for sequence in sequences:
        stats, key = sequence.stats, sequence.context.id
        assert totals[key, "drafts"] == stats.num_drafts
        assert totals[key, "tokens"] == stats.num_draft_tokens
        assert totals[key, "accepted"] == stats.num_accepted
        assert totals[key, "rejected"] == stats.num_ended_by_rejection


def test_a_step_without_anything_to_do_leaves_no_record():
    engine = new_engine()
    records(engine, [new_sequence([1], SamplingParams(max_tokens=1))])
    assert engine.last_record is not None
    engine.step()
    assert engine.last_record is None


def test_prompts_are_told_from_decoding():
    rows = [
        (record.num_prompt_rows, record.num_decode_rows, record.num_draft_rows)
        for record, _ in records(new_engine(max_rows=8), [new_sequence([1] * 20, SamplingParams(max_tokens=3))])
    ]
    assert rows == [(8, 0, 0), (8, 0, 0), (4, 0, 0), (0, 1, 0), (0, 1, 0)]


def silent() -> FakeProposer:
    proposer = FakeProposer("silent", lambda rng, right: right)
    proposer.draft = lambda context, budget: None
    return proposer


@pytest.mark.parametrize(
    ("speculation", "reason"),
    [
        (None, "off"),
        (Speculation("on", 4, ()), "no_proposer"),
        (Speculation("on", 0, ("silent",)), "no_budget"),
        (Speculation("on", 4, ("silent",)), "no_match"),
        (Speculation("on", 4, ("broken", "silent")), "no_match"),
        (Speculation("on", 4, ("broken",)), "failed"),
    ],
)
def test_the_reason_why_nothing_was_drafted(speculation, reason):
    engine = new_engine(proposers={"silent": silent(), "broken": BrokenProposer("raises")})
    sequence = new_sequence([1, 2], PARAMS, speculation)
    reasons = [record.undrafted[sequence.context.id] for record, _ in records(engine, [sequence])]
    assert reasons == [reason] * 11 + ["no_budget" if speculation and speculation.proposers else reason]
    assert reason in NO_DRAFT_REASONS


def test_no_free_page_is_no_budget():
    engine = new_engine(num_pages=1, proposers=proposers())
    sequence = new_sequence([1], SamplingParams(max_tokens=20), Speculation("on", 8, ("right",)))
    engine.add(sequence)
    engine.step()
    assert engine.last_record.undrafted == {sequence.context.id: "no_budget"}


def test_every_moment_belongs_to_a_phase():
    ticks = count()
    recorder = StepRecorder(clock=lambda: float(next(ticks)))
    recorder.scheduled([])
    recorder.proposed([])
    for phase in ("forward", "decide", "observe", "decide", "observe", "decide"):
        recorder.lap(phase)
    record = recorder.finish(7)
    assert dict(record.phase_seconds) == {"schedule": 1, "propose": 1, "forward": 1, "decide": 3, "observe": 2}
    assert record.step == 7
    assert record.phase_seconds.keys() == PHASES.keys()


def test_the_engine_times_all_phases():
    engine = new_engine(proposers=proposers())
    record, _ = records(engine, [new_sequence([1, 2], PARAMS, Speculation("on", 4, ("right",)))])[0]
    assert all(record.phase_seconds[phase] > 0 for phase in PHASES)
