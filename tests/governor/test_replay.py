"""Replays whose figures are worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traces
from foredraft.errors import ConfigError
from foredraft.governor.calibration import calibration, measured
from foredraft.governor.plan import Candidate, Choice, Plan, Snapshot
from foredraft.governor.policy import decide
from foredraft.governor.replay import exact_tokens, expected_seconds, policy_named, replay
from foredraft.governor.trace_format import Between, TraceStep
from traces import outcome, plan, record, snapshot

LOOKUP = Candidate("lookup", (0.5, 0.25), True)
MODEL = Candidate("draft_model", (0.75, 0.5, 0.25), False, catch_up=100)

# One sequence; lookup drafts two tokens in every second step, and the first of them is accepted.
TRACE = [
    TraceStep(snapshot((LOOKUP, MODEL)), plan(2), record(outcome(2, 1, True), num_tokens={1: 2}, seconds=1.5)),
    TraceStep(snapshot((LOOKUP, MODEL)), plan(), record(num_tokens={1: 1}, seconds=1.0), Between(3, 3, 57.0)),
]


def test_recorded():
    found = replay(TRACE, policy_named("recorded"))
    assert (found.num_steps, found.num_decisions, found.num_different, found.num_switches) == (2, 2, 0, 1)
    assert found.k_counts == {0: 1, 2: 1}
    assert found.expected_tokens == 1.75 + 1
    assert found.expected_seconds == 1.625 + 1  # three rows lie half-way between two and four
    assert (found.num_exact, found.tokens) == (2, 3)
    assert found.tokens_per_s == pytest.approx(3 / 2.625)
    assert found.mean_k == 1
    assert found.switches_per_minute == pytest.approx(60 / 59.625)


def test_off():
    found = replay(TRACE, policy_named("off"))
    assert found.k_counts == {0: 2}
    assert (found.expected_tokens, found.expected_seconds, found.tokens) == (2, 2, 2)
    assert (found.num_different, found.num_switches, found.exact_share) == (1, 0, 1)


def test_less_than_was_tried_is_known():
    found = replay(TRACE, policy_named("fixed:1"))
    assert found.k_counts == {1: 2}
    assert found.num_different == 2
    assert (found.num_exact, found.exact_share) == (1, 0.5)
    assert found.tokens == 2 + 1.5  # seen, and expected
    assert found.expected_seconds == 2 * 1.25


def test_fixed_takes_no_more_than_there_is():
    assert replay(TRACE, policy_named("fixed:9")).k_counts == {2: 2}


def test_fixed_asks_the_first_where_nobody_is_ready():
    decided = policy_named("fixed:2")(snapshot((replace(LOOKUP, is_ready=False), MODEL), (MODEL, LOOKUP), ()))
    assert decided.choices == {1: Choice("lookup", 2), 2: Choice("lookup", 2)}


def test_auto_is_the_governors_policy():
    assert policy_named("auto") is decide


@pytest.mark.parametrize("name", ["", "on", "fixed", "fixed:", "fixed:0", "fixed:-1", "fixed:65", "fixed:x", "fixed:²"])
def test_unknown_policies(name):
    with pytest.raises(ConfigError, match=r"unknown policy .*; known are recorded, off, auto, and fixed:K"):
        policy_named(name)


def test_seconds_of_proposers_that_run():
    """Two depths for two sequences, a third for one; each reads up 100 tokens, spread over 50 steps."""
    situation = snapshot((MODEL,), (MODEL,))
    costs = {"draft_model": traces.PassCost((1, 2), (0.125, 0.25))}
    situation = replace(situation, draft_costs=costs, overhead_s=0.5)
    choices = {1: Choice("draft_model", 3), 2: Choice("draft_model", 2)}
    the_pass = 2.0 + 3 * 0.375  # seven rows
    assert expected_seconds(situation, choices) == the_pass + 0.25 + 0.25 + 0.125 + 2 * 2 * 0.125 + 0.5
    assert expected_seconds(situation, {}) == 1.25


def test_seconds_of_contexts():
    """A row of context 1 more reads its 100 tokens again."""
    situation = snapshot((LOOKUP,))
    situation = replace(situation, pass_cost=replace(traces.COST, sequence_token_s=0.01, row_token_s=0.001))
    assert expected_seconds(situation, {1: Choice("lookup", 1)}) == pytest.approx(1.25 + 100 * 0.01 + 200 * 0.001)


@pytest.mark.parametrize(
    ("choice", "tried", "draft", "num_kept", "expected"),
    [
        (0, 0, None, 1, 1),
        (0, 4, (4, 2, True), 3, 1),
        (1, 4, (4, 2, True), 3, 2),
        (2, 4, (4, 2, True), 3, 3),
        (4, 4, (4, 2, True), 3, 3),
        (4, 4, (4, 4, False), 5, 5),
        (3, 4, (4, 4, False), 5, 4),
        (3, 4, (2, 2, False), 3, 3),  # the proposer had two tokens, so it had not three
        (3, 4, None, 1, 1),  # nor had it any
        (3, 4, (4, 2, False), 2, 2),  # the answer ended with the second token
        (1, 4, (4, 2, False), 2, 2),
        (2, 1, (1, 1, False), 2, None),
        (1, 0, None, 1, None),
    ],
)
def test_tokens_that_a_record_tells(choice, tried, draft, num_kept, expected):
    done = record(*([outcome(*draft)] if draft else []), num_tokens={1: num_kept})
    step = TraceStep(snapshot((Candidate("lookup", (0.5,) * 4, True),)), plan(tried), done)
    assert exact_tokens(step, step.snapshot.seats[0], Choice("lookup", choice) if choice else None) == expected


@pytest.mark.parametrize(
    ("step", "proposer"),
    [
        (TRACE[0], "draft_model"),  # somebody else was asked
        (replace(TRACE[0], record=None), "lookup"),
        (replace(TRACE[0], record=record(num_tokens={2: 1})), "lookup"),  # the sequence ended with an error
        (replace(TRACE[0], record=record(outcome(2, 1, True, "draft_model"), num_tokens={1: 2})), "lookup"),
    ],
)
def test_tokens_that_no_record_tells(step, proposer):
    assert exact_tokens(step, step.snapshot.seats[0], Choice(proposer, 1)) is None


def test_other_sequences_count():
    step = replace(TRACE[0], snapshot=snapshot((LOOKUP,), other_tokens=2.5))
    found = replay([replace(step, record=record(num_tokens={1: 1, 2: 1, 3: 3}))], policy_named("off"))
    assert (found.expected_tokens, found.tokens) == (3.5, 5)
    assert replay([replace(step, record=None)], policy_named("off")).tokens == 3.5


def test_nothing_to_replay():
    found = replay([], policy_named("auto"))
    assert (found.num_steps, found.tokens_per_s, found.exact_share, found.switches_per_minute) == (0, 0, 0, 0)


def every_other_seat(situation: Snapshot) -> Plan:
    """A policy of somebody else."""
    offers = [(seat, each) for seat in situation.seats[::2] for each in seat.candidates[-1:] if each.survival]
    choices = {seat.context_id: Choice(each.proposer, len(each.survival)) for seat, each in offers}
    return Plan(choices, 0.0, 0.0, 0.0)


@settings(max_examples=25)
@given(st.lists(traces.steps(), max_size=4))
def test_any_trace(steps: Sequence[TraceStep]):
    """The same trace has the same answer; recorded plans do not differ from themselves; off is known where there is a
    record; shares are shares."""
    for policy in (*map(policy_named, ("recorded", "off", "fixed:3")), every_other_seat):
        found = replay(steps, policy)
        assert found == replay(steps, policy)
        assert found.num_decisions == sum(len(step.snapshot.seats) for step in steps) >= found.num_exact
        assert found.expected_tokens >= found.num_decisions
    recorded, off = replay(steps, None), replay(steps, policy_named("off"))
    with_record = sum(len(step.snapshot.seats) for step in steps if step.record)
    assert recorded.num_different == 0
    assert recorded.num_exact == off.num_exact == with_record
    assert calibration(steps) == calibration(steps)


def test_measured():
    found = measured([*TRACE, replace(TRACE[0], record=None)])
    assert (found.num_steps, found.tokens, found.seconds) == (2, 3, 2.5)
    assert (found.pass_seconds, found.expected_pass_seconds) == (2.5, 2.0)
    assert found.between == Between(3, 3, 57.0)
    assert found.tokens_per_s == pytest.approx(3 / 2.5)


def test_calibration():
    """Of (0.5, 0.25) the first is accepted: squares of 0.5 and 0.25 are off, both bins by as much."""
    found = calibration(TRACE)
    assert found.count == 2
    assert (found.bins[5].count, found.bins[5].predicted, found.bins[5].observed) == (1, 0.5, 1)
    assert (found.bins[2].count, found.bins[2].predicted, found.bins[2].observed) == (1, 0.25, 0)
    assert found.brier == (0.25 + 0.0625) / 2
    assert found.error == (0.5 + 0.25) / 2


def test_calibration_of_an_answer_that_ended():
    """Nobody knows what would have become of the tokens after the end."""
    step = replace(TRACE[0], record=record(outcome(2, 1, False), num_tokens={1: 1}))
    found = calibration([step])
    assert [each.count for each in found.bins] == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_calibration_of_perfect_predictions():
    sure = Candidate("lookup", (1.0, 0.0), True)
    found = calibration([replace(TRACE[0], snapshot=snapshot((sure,)))] * 5)
    assert (found.brier, found.error) == (0, 0)
    assert (found.bins[0].count, found.bins[9].count) == (5, 5)


def test_calibration_of_nothing():
    found = calibration([])
    assert (found.count, found.brier, found.error) == (0, 0, 0)
