"""What a step costs in which the governor rests: counted in calls, since time is noise."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from fakes import new_sequence
from foredraft.core import SamplingParams, Speculation
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.governor.plan import PassCost
from governed import HOPELESS, Clock, Governed, TimedProposer, num_drafts

COUNTED = ("foredraft.core", "foredraft.engine", "foredraft.governor", "foredraft.steps")
NUM_STEPS = 96  # many rests, and rounds of what is done once in so many steps


def endless(mode: str) -> Callable[[], EngineSequence]:
    """Makes sequences that do not end while a test runs."""
    numbers = itertools.count()

    def new() -> EngineSequence:
        number = next(numbers)
        params = SamplingParams(max_tokens=190, ignore_eos=True, temperature=1.0, seed=number)
        return new_sequence([number % 7, 1], params, Speculation(mode, None, ("p",)), number)

    return new


def num_calls(monkeypatch: pytest.MonkeyPatch, mode: str, num_running: int) -> float:
    """Calls that the engine and the governor make in a step in which all goes on, those of C included."""
    clock = Clock()
    governed = Governed(monkeypatch, clock, [TimedProposer("p", clock, 1.0)], HOPELESS)
    governed.run(endless(mode), 4, num_running)
    count = 0

    def on(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += frame.f_globals["__name__"].startswith(COUNTED)

    sys.setprofile(on)
    try:
        records = governed.run(endless(mode), NUM_STEPS, num_running)
    finally:
        sys.setprofile(None)
    assert num_drafts(records) == 0
    return count / NUM_STEPS


@pytest.mark.parametrize("num_running", [1, 8])
def test_a_rest_is_nearly_as_cheap_as_no_speculation(monkeypatch, num_running):
    """A few calls for the step, and two for each sequence, which leaves its drafts to the governor."""
    extra = num_calls(monkeypatch, "auto", num_running) - num_calls(monkeypatch, "off", num_running)
    assert extra < 16 + 2.5 * num_running


def test_a_rest_ends_when_passes_turn_out_cheaper(monkeypatch):
    """A few steps of a rest are listened to, so that it is found out."""
    clock = Clock()
    governed = Governed(monkeypatch, clock, [TimedProposer("p", clock, 1.0)], HOPELESS)
    new = endless("auto")
    assert num_drafts(governed.run(new, 100)) == 0
    governed.engine._target.cost = PassCost((1, 2), (0.100, 0.105))
    governed.run(new, 400)
    assert num_drafts(governed.run(new, 50)) > 0
