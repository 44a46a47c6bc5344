"""The governor in the engine, on a clock of its own: who is asked, what is drafted, and how soon that changes."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from fakes import EOS, BrokenProposer, Steps, new_sequence, plain_tokens
from foredraft.core import SamplingParams, Speculation
from foredraft.engine.drafting import Drafting
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.governor.governor import Governor
from foredraft.governor.pools import PoolConfig
from foredraft.governor.probes import SHARE
from foredraft.governor.rest import MOST_STEPS, THINKING
from foredraft.proposers.grammar import Grammar
from governed import (
    EVEN,
    FLAT,
    HOPELESS,
    MEASURED,
    STEEP,
    Clock,
    Governed,
    TimedProposer,
    drafters,
    num_drafts,
    reasons,
    tokens_per_s,
)

FREE, RUNS = (
    {"is_free": True, "seconds": 0.0005},
    {"is_free": False, "seconds": 0.005},
)  # a hundredth, a tenth of a pass
EITHER = pytest.mark.parametrize("kind", [FREE, RUNS], ids=["free", "runs"])


def sequences(
    *proposers: str, mode: str = "auto", route: str = "default", max_tokens: int = 100, k: int | None = 8
) -> Callable[[], EngineSequence]:
    """Makes a new one for each call."""
    numbers = itertools.count()

    def new() -> EngineSequence:
        number = next(numbers)
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=1.0, seed=number)
        return new_sequence([number % 7, 1, 2], params, Speculation(mode, k, proposers), number, route=route)

    return new


def settled(records):
    """Steps in which all is as it will be: nobody reads a prompt."""
    return [record for record in records if not record.num_prompt_rows]


@pytest.mark.parametrize("by", ["request", "pool"])
def test_off_costs_nothing(monkeypatch, by):
    """No proposer is asked, nothing is decided, learned or measured."""
    clock = Clock()
    proposers = [TimedProposer("free", clock, 1.0, **FREE), TimedProposer("runs", clock, 1.0, **RUNS)]
    governed = Governed(monkeypatch, clock, proposers, pools={"default": PoolConfig("off" if by == "pool" else "on")})
    called = []
    for owner, name in [
        *((Governor, name) for name in ("begin", "judge", "plan", "spent", "end", "pass_over", "release")),
        *((Drafting, name) for name in ("_by_plan", "_ask", "observe")),
        *((TimedProposer, name) for name in ("propose", "observe", "release")),
    ]:
        monkeypatch.setattr(owner, name, lambda *_, name=name: called.append(name))
    records = governed.run(sequences("free", "runs", mode="off" if by == "request" else "on"), 150, num_running=3)
    assert called == []
    assert governed.governor._costs.known is None
    assert {reason for record in records for reason in reasons(record)} == {"off"}


@EITHER
@pytest.mark.parametrize("num_running", [1, 4])
def test_it_settles_on_the_proposer_that_is_right(monkeypatch, kind, num_running):
    clock = Clock()
    wrong, right = TimedProposer("wrong", clock, 0.0, **kind), TimedProposer("right", clock, 1.0, **kind)
    governed = Governed(monkeypatch, clock, [wrong, right], MEASURED)
    records = governed.run(sequences("wrong", "right"), 150, num_running)
    assert drafters(records[50:]) == {"right"}
    plain = num_running / MEASURED(num_running)
    assert tokens_per_s(settled(records[50:])) > 1.5 * plain


@EITHER
@pytest.mark.parametrize("num_running", [1, 4])
@pytest.mark.parametrize("max_tokens", [60, 1000])
def test_a_route_that_changes_is_left_alone_within_50_steps(monkeypatch, kind, num_running, max_tokens):
    """And comes back when it changes back. What is drafted in between are probes."""
    clock = Clock()
    proposer = TimedProposer("p", clock, 0.95, **kind)
    governed = Governed(monkeypatch, clock, [proposer], EVEN)
    new = sequences("p", max_tokens=max_tokens)
    good = settled(governed.run(new, 100, num_running))
    assert sum(bool(record.drafts) for record in good[20:]) > 0.9 * len(good[20:])
    proposer.alpha = 0.0
    bad = governed.run(new, 250, num_running)
    assert num_drafts(bad[50:]) <= 0.15 * 200 * num_running
    proposer.alpha = 0.95
    governed.run(new, 300, num_running)
    back = settled(governed.run(new, 50, num_running))
    assert sum(bool(record.drafts) for record in back) > 0.9 * len(back)
    [report] = governed.governor.report()
    assert 3 <= report.num_switches <= 12


@EITHER
@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.8])
def test_no_flapping(monkeypatch, kind, alpha):
    """Also where drafting is about as good as not drafting: on a steep curve a row pays from about 0.6 on."""
    clock = Clock()
    governed = Governed(monkeypatch, clock, [TimedProposer("p", clock, alpha, **kind)], STEEP)
    governed.run(sequences("p"), 600)
    [report] = governed.governor.report()
    assert report.num_switches <= 600 / 50


@EITHER
def test_nobody_is_asked_where_no_draft_could_pay(monkeypatch, kind):
    """Each row is as dear as a pass: even drafts that are always right gain nothing."""
    clock = Clock()
    proposer = TimedProposer("p", clock, 1.0, **kind)
    governed = Governed(monkeypatch, clock, [proposer], HOPELESS)
    records = governed.run(sequences("p"), 300, num_running=2)
    assert proposer.asked == []
    assert {reason for record in records[:-1] for reason in reasons(record)} <= {"not_worth_it", "no_budget"}


def test_thinking_costs_little_while_no_draft_pays(monkeypatch):
    """Nobody knows beforehand that the drafts are bad, so they are looked at now and then, for a share of the time."""
    clock = Clock()
    proposer = TimedProposer("p", clock, 0.1, **FREE)
    governed = Governed(monkeypatch, clock, [proposer], STEEP)
    governed.run(sequences("p", max_tokens=190), 200)
    before_s, asked = proposer.spent_s, len(proposer.asked)
    records = governed.run(sequences("p", max_tokens=190), 1000)
    assert num_drafts(records) == 0
    assert proposer.spent_s - before_s < 1.5 * THINKING * sum(record.seconds for record in records)
    assert len(proposer.asked) - asked > 1000 / (MOST_STEPS + 1) / 2


def test_however_dear_thinking_is_the_rest_is_bounded(monkeypatch):
    clock = Clock()
    proposer = TimedProposer("p", clock, 0.1, is_free=True, seconds=0.05)
    governed = Governed(monkeypatch, clock, [proposer], STEEP)
    governed.run(sequences("p", max_tokens=190), 1000)
    assert len(proposer.asked) == pytest.approx(1000 / (MOST_STEPS + 1), rel=0.3)


@pytest.mark.parametrize("num_running", [1, 4])
def test_probes_cost_no_more_than_their_allowance(monkeypatch, num_running):
    """What is known of a proposer that runs a model is kept alive, for a small share of the time."""
    clock = Clock()
    proposer = TimedProposer("p", clock, 0.0, **RUNS)
    governed = Governed(monkeypatch, clock, [proposer], STEEP)
    new = sequences("p", max_tokens=190)
    governed.run(new, 300, num_running)
    start_s, spent_s, asked = clock.now, proposer.spent_s, len(proposer.asked)
    records = governed.run(new, 600, num_running)
    rows_s = sum(STEEP(r.num_rows) - STEEP(r.num_rows - r.num_draft_rows) for r in records)
    assert proposer.spent_s - spent_s + rows_s < 1.2 * SHARE * (clock.now - start_s)
    probes = proposer.asked[asked:]
    assert len(probes) >= 3
    assert {len(contexts) for contexts in probes} == {1}


def test_probes_are_no_decisions(monkeypatch):
    clock = Clock()
    proposer = TimedProposer("p", clock, 0.0, **RUNS)
    governed = Governed(monkeypatch, clock, [proposer], STEEP)
    governed.run(sequences("p", max_tokens=190), 400)
    [before] = governed.governor.report()
    records = governed.run(sequences("p", max_tokens=190), 800)
    [after] = governed.governor.report()
    assert num_drafts(records) > 0
    assert after.num_switches == before.num_switches


def test_a_proposer_that_nobody_uses_is_found_by_probes_when_it_gets_better(monkeypatch):
    """However hopeless it was."""
    clock = Clock()
    proposer = TimedProposer("p", clock, 0.0, **RUNS)
    governed = Governed(monkeypatch, clock, [proposer], MEASURED)
    new = sequences("p", max_tokens=190)
    governed.run(new, 600)
    proposer.alpha = 1.0
    governed.run(new, 1200)
    assert num_drafts(governed.run(new, 100)) > 80


def test_more_running_sequences_draft_less(monkeypatch):
    """Drafts that pay for one sequence do not for sixteen; see the curve."""
    rows = []
    for num_running in (1, 4, 8, 16):
        clock = Clock()
        governed = Governed(monkeypatch, clock, [TimedProposer("p", clock, 0.45, **FREE)], MEASURED)
        governed.run(sequences("p"), 100, num_running)
        records = settled(governed.run(sequences("p"), 100, num_running))
        rows.append(sum(r.num_draft_rows for r in records) / len(records) / num_running)
    assert rows == sorted(rows, reverse=True)
    assert rows[0] > 1
    assert rows[-1] == 0


@EITHER
def test_it_is_about_as_fast_as_the_better_of_on_and_off(monkeypatch, kind):
    for alpha in (0.0, 0.5, 1.0):
        for num_running in (1, 4):
            speeds = {}
            for mode, k in (("off", 0), ("on", 4), ("auto", None)):
                clock = Clock()
                governed = Governed(monkeypatch, clock, [TimedProposer("p", clock, alpha, **kind)], MEASURED)
                new = sequences("p", mode=mode, k=k, max_tokens=190)
                governed.run(new, 100, num_running)
                speeds[mode, k] = tokens_per_s(governed.run(new, 60, num_running))
            best = max(speeds.values())
            assert speeds["auto", None] > 0.85 * best, (alpha, num_running, speeds)


class Switch:
    """One route, one pool, two proposers that are always right; what a pool says can be changed."""

    def __init__(self, monkeypatch, **settings):
        self.clock = Clock()
        self.free = TimedProposer("free", self.clock, 1.0, **FREE)
        self.runs = TimedProposer("runs", self.clock, 1.0, **RUNS)
        self.governed = Governed(
            monkeypatch,
            self.clock,
            [self.free, self.runs],
            pools={"other": PoolConfig(), "mine": PoolConfig(**settings)},
            routes={"mine": "mine"},
        )
        self.new = sequences("free", "runs", route="mine", max_tokens=500, k=None)

    def set(self, **changes):
        pools = self.governed.governor.pools
        pools["mine"] = replace(pools["mine"], **changes)

    def step(self, num_running=1):
        """The first step after those that read prompts."""
        records = self.governed.run(self.new, 3, num_running)
        return records[-1]


def test_a_pool_is_switched_at_the_next_step(monkeypatch):
    switch = Switch(monkeypatch)
    assert switch.step().drafts
    switch.set(mode="off")
    [record] = switch.governed.run(switch.new, 1)
    assert reasons(record) == {"off"}
    switch.set(mode="on")
    [record] = switch.governed.run(switch.new, 1)
    assert [outcome.num_tokens for outcome in record.drafts] == [4]  # as far as a request that says nothing drafts
    switch.set(mode="auto")
    [record] = switch.governed.run(switch.new, 1)
    assert record.drafts


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_k_max(monkeypatch, mode):
    switch = Switch(monkeypatch, mode=mode, k_max=3)
    assert [outcome.num_tokens for outcome in switch.step().drafts] == [3]
    switch.set(k_max=1)
    [record] = switch.governed.run(switch.new, 1)
    assert [outcome.num_tokens for outcome in record.drafts] == [1]


def test_a_request_may_ask_for_less_than_its_pool_allows_and_not_for_more(monkeypatch):
    for k, most in ((2, 2), (9, 5)):
        switch = Switch(monkeypatch, k_max=5)
        switch.new = sequences("free", route="mine", k=k)
        assert [outcome.num_tokens for outcome in switch.step().drafts] == [most]


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_max_concurrency_counts_the_pool_alone(monkeypatch, mode):
    switch = Switch(monkeypatch, mode=mode, max_concurrency=2)
    assert len(switch.step(num_running=2).drafts) == 2
    record = switch.step(num_running=3)
    assert (record.drafts, reasons(record)) == ((), {"crowded"})
    switch.set(max_concurrency=3)
    assert len(switch.step(num_running=3).drafts) == 3
    switch.new = sequences("free", "runs", mode="off", max_tokens=500)  # others, in the default pool
    assert "crowded" not in reasons(switch.step(num_running=6))


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_allowed_proposers(monkeypatch, mode):
    switch = Switch(monkeypatch, mode=mode, proposers=("runs",))
    for _ in range(20):
        assert drafters([switch.step()]) <= {"runs"}
    assert switch.free.asked == []
    switch.set(proposers=("free",))
    asked = len(switch.runs.asked)
    assert drafters(switch.governed.run(switch.new, 20)) == {"free"}
    assert len(switch.runs.asked) == asked
    switch.set(proposers=("somebody else",))
    assert reasons(switch.step()) == {"no_match"}


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_quarantine(monkeypatch, mode):
    switch = Switch(monkeypatch, mode=mode)
    switch.governed.governor.quarantined.add(("mine", "free"))
    for _ in range(20):
        assert drafters([switch.step()]) <= {"runs"}
    switch.governed.governor.quarantined.add(("mine", "runs"))
    assert reasons(switch.step()) == {"no_match"}
    assert any(report.is_quarantined for report in switch.governed.governor.report()) == (mode == "auto")
    switch.governed.governor.quarantined.clear()
    assert switch.step().drafts


def test_a_request_that_says_on_or_off_is_obeyed_unless_its_pool_is_off(monkeypatch):
    switch = Switch(monkeypatch)
    for mode, is_on in (("on", True), ("off", False)):
        switch.new = sequences("free", route="mine", mode=mode)
        switch.governed.engine.scheduler.running.clear()
        assert bool(switch.step().drafts) == is_on
    switch.set(mode="on")
    assert not switch.step().drafts
    switch.set(mode="off")
    switch.governed.engine.scheduler.running.clear()
    switch.new = sequences("free", route="mine", mode="on")
    assert reasons(switch.step()) == {"off"}


def test_why_there_is_no_draft(monkeypatch):
    clock = Clock()
    silent = TimedProposer("silent", clock, 1.0, **FREE)
    silent.draft = lambda context, budget: None
    wrong = TimedProposer("wrong", clock, 0.0, **FREE)
    governed = Governed(monkeypatch, clock, [silent, wrong], STEEP)
    assert reasons(governed.run(sequences("silent"), 3)[-1]) == {"no_match"}
    governed.engine.scheduler.running.clear()
    assert reasons(governed.run(sequences(), 3)[-1]) == {"no_proposer"}
    governed.engine.scheduler.running.clear()
    assert reasons(governed.run(sequences("wrong", k=0), 3)[-1]) == {"no_budget"}
    governed.engine.scheduler.running.clear()
    assert reasons(governed.run(sequences("wrong", max_tokens=190), 100)[-1]) == {"not_worth_it"}


@pytest.mark.parametrize("is_free", [True, False])
@pytest.mark.parametrize("fault", BrokenProposer.FAULTS)
def test_a_broken_proposer_costs_speed_only(monkeypatch, fault, is_free, caplog):
    caplog.set_level(logging.CRITICAL, "foredraft")
    clock, broken = Clock(), BrokenProposer(fault)
    broken.is_free = is_free
    fine = TimedProposer("fine", clock, 1.0, **RUNS)
    governed = Governed(monkeypatch, clock, [broken, fine], FLAT)
    made = [sequences("broken", "fine", max_tokens=40)() for _ in range(3)]
    waiting = iter(made)
    governed.run(lambda: next(waiting), 1, num_running=3)
    for _ in range(60):
        governed.engine.step()
    assert governed.engine.is_idle
    for sequence in made:
        assert sequence.context.output == plain_tokens(sequence)
    if fault not in ("observe", "release"):
        assert "fine" in drafters(governed.records)
        assert "broken" not in drafters(governed.records)


def test_preempted_sequences_are_drafted_for_again(monkeypatch):
    clock = Clock()
    proposers = [TimedProposer("free", clock, 0.8, **FREE), TimedProposer("runs", clock, 0.9, **RUNS)]
    governed = Governed(monkeypatch, clock, proposers, MEASURED, num_pages=18)
    made = [sequences("free", "runs", max_tokens=60)() for _ in range(6)]
    for sequence in made:
        governed.engine.add(sequence)
    while not governed.engine.is_idle:
        governed.engine.step()
    assert governed.engine.scheduler.num_preemptions > 0
    assert num_drafts(governed.records) > 10
    for sequence in made:
        assert sequence.context.output == plain_tokens(sequence)
    assert governed.governor.acceptance._sequences == {}
    assert governed.governor._costs._read == {}


def test_what_a_grammar_forces_is_found_and_drafted(monkeypatch):
    clock = Clock()
    governed = Governed(monkeypatch, clock, [Grammar(), TimedProposer("wrong", clock, 0.0, **FREE)], FLAT)
    params = SamplingParams(max_tokens=60, logit_bias={EOS: -100})
    for number in range(4):
        governed.engine.add(
            new_sequence(
                [number], params, Speculation("auto", None, ("grammar", "wrong")), number, constraint=Steps(60)
            )
        )
    while not governed.engine.is_idle:
        governed.engine.step()
    accepted = {o.num_accepted for r in governed.records for o in r.drafts if o.proposer == "grammar"}
    assert accepted == {1}
    assert not drafters(governed.records[-20:]) - {"grammar"}


def test_routes_that_gain_do_not_take_from_those_that_do_not(monkeypatch):
    """An interactive route whose drafts are right beside an enrichment route that has none: the latter is given up
    some steps' worth of time, and then no more."""
    clock = Clock()
    governed = Governed(monkeypatch, clock, [TimedProposer("p", clock, 0.95, **FREE)], MEASURED)
    chat, bulk = sequences("p", route="chat", max_tokens=10**6), sequences(mode="off", route="bulk", max_tokens=10**6)
    both = itertools.chain([chat() for _ in range(1)], (bulk() for _ in itertools.count()))
    records = settled(governed.run(lambda: next(both), 150, num_running=8))
    plain_s = MEASURED(8) * len(records)
    assert num_drafts(records) > 0
    assert sum(record.seconds for record in records) - plain_s < 6 * MEASURED(8)


def test_settings_change_while_requests_run_and_no_byte_does(monkeypatch):
    switch = Switch(monkeypatch)
    switch.free.alpha = switch.runs.alpha = 0.7
    settings = itertools.cycle(
        [
            {"mode": "off"},
            {"mode": "on"},
            {"k_max": 2},
            {"mode": "auto"},
            {"proposers": ("free",)},
            {"k_max": None},
            {"proposers": ()},
            {"max_concurrency": 1},
            {"max_concurrency": None},
        ]
    )
    made = [sequences("free", "runs", route="mine", max_tokens=60 + i)() for i in range(4)]
    for sequence in made:
        switch.governed.engine.add(sequence)
    while not switch.governed.engine.is_idle:
        switch.governed.engine.step()
        switch.set(**next(settings))
    assert drafters(switch.governed.records) == {"free", "runs"}
    for sequence in made:
        assert sequence.context.output == plain_tokens(sequence)
