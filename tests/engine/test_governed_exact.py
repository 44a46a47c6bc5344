"""What the governor decides never changes what is written: any decisions, any mix of modes, routes and proposers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import (
    EOS,
    PAGE_SIZE,
    VOCAB,
    FakeProposer,
    PathModel,
    Steps,
    new_engine,
    new_sequence,
    next_token,
    outcome,
    proposers,
    run,
)
from foredraft.core import SamplingParams, Speculation
from foredraft.engine.llm import LLM
from foredraft.governor import governor as governor_module
from foredraft.governor.governor import Governor, Turn
from foredraft.governor.plan import Choice, Plan, Snapshot
from foredraft.governor.policy import empty_plan
from foredraft.governor.pools import PoolConfig
from foredraft.kv.cache import PagedKV
from foredraft.proposers import draft_model
from foredraft.proposers.base import DraftModel, GoesOn, Paths, Proposer, Resources
from foredraft.proposers.grammar import Grammar

NAMES = ("right", "wrong", "random", "tree", "free", "free tree", "grammar", "draft_model")
POOLS = {
    "default": PoolConfig(),
    "off": PoolConfig("off"),
    "on": PoolConfig("on", k_max=3),
    "few": PoolConfig(max_concurrency=2, proposers=("random", "free", "free tree")),
}


def drafters(seed: int) -> dict[str, Proposer]:
    made: dict[str, FakeProposer] = {**proposers(seed)}
    for free, like in (("free", "random"), ("free tree", "tree")):
        made[free] = proposers(seed + 1)[like]
        made[free].name, made[free].is_free = free, True
    model = DraftModel(PathModel(), PagedKV(1, 1, 2, 100, PAGE_SIZE), np.arange(VOCAB) % 5 > 0)
    ending = draft_model.create(Resources(PathModel(), {EOS}, model))
    return {**made, "grammar": Grammar(), "draft_model": ending}


class Whims:
    """Decides at random: who drafts, how far, and which drafts go on. `num_chosen` counts choices, `num_ended` drafts
    that were ended before that."""

    def __init__(self, seed: int) -> None:
        self.num_chosen = self.num_ended = 0
        self._random = random.Random(seed)

    def __call__(self, snapshot: Snapshot) -> Plan:
        choices: dict[int, Choice] = {}
        for seat in snapshot.seats:
            able = [candidate for candidate in seat.candidates if candidate.survival]
            if able and self._random.random() < 0.8:
                candidate = self._random.choice(able)
                choices[seat.context_id] = Choice(candidate.proposer, self._random.randint(1, len(candidate.survival)))
        self.num_chosen += len(choices)
        plain = empty_plan(snapshot)
        return Plan(choices, plain.expected_tokens, plain.step_s, plain.plain_s)

    def goes_on(self, drafts: Paths) -> set[int]:
        chosen = {number for number in drafts if self._random.random() < 0.7}
        self.num_ended += len(drafts) - len(chosen)
        return chosen


class Impulsive(Governor):
    """Never rests, and plans by whim."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int, pools: Mapping[str, PoolConfig] = POOLS) -> None:
        super().__init__(pools, {name: name for name in pools})
        self.whims = Whims(seed)
        monkeypatch.setattr(governor_module, "decide", self.whims)

    def begin(self, num_running: int) -> int:
        return 8

    def goes_on(self, proposer: str, turns: Sequence[Turn]) -> GoesOn:
        return self.whims.goes_on


sampling = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([1.0, 0.9]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    logit_bias=st.sampled_from([{}, {3: 5.0, EOS: -2.0}]),
    min_tokens=st.sampled_from([0, 6]),
    max_tokens=st.integers(6, 40),
    stop=st.sampled_from([(), ("bc", "é", "c a")]),
    ignore_eos=st.booleans(),
    seed=st.integers(0, 50),
    logprobs=st.sampled_from([None, 2]),
)
requests = st.tuples(
    st.lists(st.integers(0, 6), min_size=1, max_size=20),
    sampling,
    st.sampled_from(["auto", "auto", "auto", "on", "off"]),
    st.lists(st.sampled_from(NAMES), max_size=4, unique=True).map(tuple),
    st.sampled_from([None, 0, 2, 9]),
    st.sampled_from([*POOLS, "unknown"]),
    st.sampled_from([None, None, 12]),
)


@settings(max_examples=60, deadline=None)
@given(
    load=st.lists(requests, min_size=1, max_size=6),
    num_pages=st.integers(18, 60),
    max_rows=st.sampled_from([1, 3, 64]),
    seed=st.integers(0, 1000),
    is_impulsive=st.booleans(),
)
def test_every_outcome_is_that_without_drafts(load, num_pages, max_rows, seed, is_impulsive):
    """Tokens, text, logprobs and finish reason of each request are those that it gets alone with speculation off."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        governor = Impulsive(monkeypatch, seed) if is_impulsive else Governor(POOLS, {name: name for name in POOLS})
        engine = new_engine(num_pages, 6, max_rows, proposers=drafters(seed), governor=governor)
        together = [
            new_sequence(
                prompt, params, Speculation(mode, k, names), i, route=route, constraint=length and Steps(length)
            )
            for i, (prompt, params, mode, names, k, route, length) in enumerate(load)
        ]
        chunks = run(engine, together)
    for sequence, (prompt, params, *_, length) in zip(together, load, strict=True):
        alone = new_sequence(prompt, params, constraint=length and Steps(length))
        plain = run(new_engine(), [alone])[alone.context.id]
        assert outcome(chunks[sequence.context.id]) == outcome(plain)
        assert sequence.stats.num_tokens == len(plain)
    assert engine.is_idle
    assert engine.scheduler._kv.num_available_pages == num_pages
    assert governor.acceptance._sequences == {}
    assert governor._costs._read == {}


def test_whims_are_obeyed(monkeypatch):
    """Otherwise the test above would show nothing: drafts are made as was chosen, and cut where that was less."""
    governor = Impulsive(monkeypatch, 0)
    engine = new_engine(proposers=drafters(0), governor=governor)
    names = ("right", "free", "free tree", "tree", "draft_model")
    params = SamplingParams(max_tokens=60, ignore_eos=True, temperature=1.0, seed=1)
    made = [new_sequence([i], params, Speculation("auto", None, names), i) for i in range(4)]
    planned: dict[int, Choice] = {}
    governor.on_plan.append(lambda snapshot, plan: planned.update(plan.choices))
    drafted = set()
    for sequence in made:
        engine.add(sequence)
    while not engine.is_idle:
        planned.clear()
        engine.step()
        for draft in engine.last_record.drafts:
            choice = planned[draft.context_id]
            assert draft.proposer == choice.proposer
            assert draft.num_tokens <= choice.num_tokens
            drafted.add((draft.proposer, draft.num_tokens))
    assert {name for name, _ in drafted} == set(names)
    assert {count for _, count in drafted} >= {1, 2, 3, 4, 5, 6}
    assert governor.whims.num_chosen > 40
    assert governor.whims.num_ended > 5


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_governed_draft_is_exact_at_temperature_0_under_every_rule(monkeypatch, rule):
    for seed in range(5):
        governor = Impulsive(monkeypatch, seed)
        engine = new_engine(proposers=drafters(seed), governor=governor)
        sequence = new_sequence(
            [1, 2, 3], SamplingParams(max_tokens=40), Speculation("auto", None, (*NAMES[:5], "draft_model"), rule)
        )
        run(engine, [sequence])
        context = new_sequence([1, 2, 3], SamplingParams(max_tokens=40)).context
        for token in sequence.context.output:
            assert token == next_token(context)
            context.tokens.append(token)
        assert sequence.stats.num_drafts > 0


PROMPTS = [
    "<|im_start|>user\nRepeat this text exactly: The old lighthouse stood on the rocks.<|im_end|>\n"
    "<|im_start|>assistant\n",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "red, green, blue, " * 5,
    "1 2 3 4 5 6 7 8 9 10 11 12",
]


def test_no_decision_changes_a_byte_of_a_real_model(smollm2, monkeypatch):
    """A model that drafts for itself is the pair with the most to say about where drafts end."""
    llm = LLM(smollm2, context_length=512, kv_memory=64 << 20, draft=smollm2)
    governor = llm.engine.governor
    monkeypatch.setattr(governor, "begin", lambda num_running: 8)
    whims = Whims(3)
    monkeypatch.setattr(governor_module, "decide", whims)
    monkeypatch.setattr(governor, "goes_on", lambda proposer, turns: whims.goes_on)
    for temperature in (0.0, 1.0):
        params = SamplingParams(temperature=temperature, max_tokens=24, seed=11)

        def texts(prompts: list[str], speculation: Speculation, params: SamplingParams = params) -> list[tuple]:
            return [(r.text, r.token_ids) for r in llm.generate(prompts, params, speculation, prediction=PROMPTS[1])]

        alone = [texts([prompt], Speculation("off"))[0] for prompt in PROMPTS]
        assert [texts([prompt], Speculation("auto"))[0] for prompt in PROMPTS] == alone
        assert texts(PROMPTS, Speculation("auto")) == alone
    assert whims.num_chosen > 30
    assert whims.num_ended > 5
