import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import traces
from foredraft.governor.plan import Candidate, Choice, PassCost, Plan, Seat, Snapshot
from foredraft.governor.trace_format import VERSION, Between, Decoder, Encoder, TraceStep
from foredraft.steps import DraftOutcome, StepRecord
from traces import outcome, plan, record, snapshot

STEP = TraceStep(
    snapshot((Candidate("lookup", (0.5, 0.25), True), Candidate("draft_model", (0.5, 0.25), False, catch_up=3))),
    plan(2),
    record(outcome(2, 1, True), num_tokens={1: 2}),
)


# What a line is made of. Where this changes, older files cannot be read as newer ones: raise VERSION.
FIELDS = {
    TraceStep: "snapshot plan record before",
    Snapshot: "step seats credits_s num_rows sequence_context row_context other_tokens has_prompt_rows pass_cost "
    "draft_costs overhead_s rate is_drafting",
    Seat: "context_id route context_len horizon candidates",
    Candidate: "proposer survival is_ready reach catch_up width parents is_at_once",
    PassCost: "rows seconds sequence_token_s row_token_s",
    Plan: "choices expected_tokens step_s plain_s",
    Choice: "proposer num_tokens width",
    StepRecord: "step num_sequences num_prompt_rows num_decode_rows num_draft_rows drafts undrafted num_tokens routes "
    "phase_seconds",
    DraftOutcome: "context_id proposer num_tokens path is_rejected",
    Between: "num_steps num_tokens seconds",
}


def test_these_are_the_lines_of_version_2():
    assert VERSION == 2
    assert {kind: " ".join(each.name for each in fields(kind)) for kind in FIELDS} == FIELDS


def line(step: TraceStep = STEP) -> dict:
    return json.loads(Encoder().line(step))


def read(value: object) -> TraceStep:
    return Decoder().step(json.dumps(value).encode())


def test_a_line_of_version_1_is_read_as_the_chains_that_it_has():
    old = line()
    for seat in old["snapshot"]["seats"]:
        for candidate in seat["candidates"]:
            del candidate["width"], candidate["parents"]
    for choice in old["plan"]["choices"].values():
        del choice["width"]
    for draft in old["record"]["drafts"]:
        draft["num_accepted"] = len(draft.pop("path"))
    assert read(old) == STEP


@given(st.lists(traces.steps(), max_size=4))
def test_what_is_written_is_what_is_read(steps):
    encoder, decoder = Encoder(), Decoder()
    assert [decoder.step(encoder.line(step)) for step in steps] == steps


def test_fractions_keep_six_digits():
    survival = (1 / 3, 1e-9 / 3)
    given = snapshot((Candidate("lookup", survival, True),))
    [seat] = read(line(TraceStep(given, plan(), None))).snapshot.seats
    assert seat.candidates[0].survival == (0.333333, 3.33333e-10)


def test_what_repeats_is_said_once():
    encoder = Encoder()
    first, second = (json.loads(encoder.line(STEP)) for _ in range(2))
    assert first["snapshot"].keys() - second["snapshot"].keys() == {"pass_cost", "draft_costs"}
    assert first["survivals"] == [[0.5, 0.25]]


def test_a_cost_that_changes_in_place_is_written_again():
    costs = dict(STEP.snapshot.draft_costs)
    changing = replace(STEP, snapshot=replace(STEP.snapshot, draft_costs=costs))
    encoder, decoder = Encoder(), Decoder()
    decoder.step(encoder.line(changing))
    costs["draft_model"] = traces.COST
    assert decoder.step(encoder.line(changing)).snapshot.draft_costs == {"draft_model": traces.COST}


def changed(path: str, value: object) -> dict:
    """The step's line with another value at a place such as `snapshot.seats.0.route`."""
    root = place = line()
    *parents, last = [int(each) if each.isdecimal() else each for each in path.split(".")]
    for each in parents:
        place = place[each]
    place[last] = value
    return root


def test_the_line_that_is_changed_can_be_read():
    assert read(changed("snapshot.rate", 1.0)) == STEP


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("snapshot.step", 1.5),
        ("snapshot.step", True),
        ("snapshot.step", 10**400),
        ("snapshot.rate", "fast"),
        ("snapshot.rate", 10**400),
        ("snapshot.is_drafting", 1),
        ("snapshot.new_field", 1),
        ("snapshot.seats", 3),
        ("snapshot.seats.0.candidates.0.survival", 7),
        ("snapshot.seats.0.candidates.0.survival", None),
        ("snapshot.seats.0.candidates.1.parents", [-1]),
        ("snapshot.seats.0.candidates.1.parents", [-1, 1]),
        ("snapshot.pass_cost.rows", []),
        ("snapshot.pass_cost.rows", [4, 2, 1]),
        ("snapshot.pass_cost.seconds", [1.0]),
        ("snapshot.draft_costs", {}),
        ("survivals", [[1.5, 0.1]]),
        ("survivals", [[float("nan")]]),
        ("plan.choices", {"one": {"proposer": "lookup", "num_tokens": 1}}),
        ("plan.choices", {"2": {"proposer": "lookup", "num_tokens": 1}}),
        ("plan.choices.1.num_tokens", 0),
        ("plan.choices.1.num_tokens", 3),
        ("plan.choices.1.proposer", "nobody"),
        ("plan", None),
        ("record.phase_seconds", {}),
        ("record.drafts", None),
        ("before", 0),
    ],
)
def test_damaged_lines(path, value):
    with pytest.raises((ValueError, TypeError, LookupError)):
        read(changed(path, value))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", '"text"', "{}", '{"snapshot": "x", "survivals": 1}', "[" * 9**5]
)
def test_lines_that_are_no_steps(text):
    with pytest.raises((ValueError, TypeError, LookupError, RecursionError)):
        Decoder().step(text.encode())
