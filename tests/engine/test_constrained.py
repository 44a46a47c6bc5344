"""Constraints in the engine: every row has the mask of its own path, and only what is kept is taken in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import (
    EOS,
    FakeProposer,
    Steps,
    new_engine,
    new_sequence,
    next_token,
    outcome,
    proposers,
    run,
)
from foredraft.core import Draft, SamplingParams, Speculation
from foredraft.proposers.grammar import Grammar

NAMES = ("right", "wrong", "random", "tree", "grammar")


def drafters(seed: int = 0) -> dict[str, Any]:
    return {**proposers(seed), "grammar": Grammar()}


def by_the_book(prompt: list[int], params: SamplingParams, length: int) -> list[int]:
    """One masked token after the other."""
    constraint = Steps(length)
    context = new_sequence(prompt, params, constraint=constraint).context
    while len(context.output) < params.max_tokens and constraint.finish_reason is None:
        token = next_token(context)
        context.tokens.append(token)
        if token == EOS:
            break
        constraint.advance(token)
    return context.output


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            st.lists(st.integers(0, 6), min_size=1, max_size=20),
            st.sampled_from([0.0, 1.0, 2.0]),
            st.integers(1, 30),
            st.sampled_from(NAMES),
            st.integers(0, 9),
        ),
        min_size=1,
        max_size=6,
    ),
    num_pages=st.integers(14, 40),
    max_rows=st.sampled_from([1, 3, 64]),
    seed=st.integers(0, 1000),
)
def test_text_is_that_of_a_plain_masked_loop(requests, num_pages, max_rows, seed):
    """Any proposer, chain or tree, any batch and any preemption. Steps.advance asserts that no forbidden token is kept,
    and a matcher that a re-read prompt had moved on would hold more than the output."""
    engine = new_engine(num_pages, 6, max_rows, proposers=drafters(seed))
    sequences, expected = [], []
    for i, (prompt, temperature, length, name, k) in enumerate(requests):
        params = SamplingParams(temperature=temperature, max_tokens=30, seed=seed)
        how = Speculation("on", k, (name,))
        sequences.append(new_sequence(prompt, params, how, request=i, constraint=Steps(length)))
        expected.append(by_the_book(prompt, params, length))
    run(engine, sequences)
    for sequence, tokens in zip(sequences, expected, strict=True):
        assert sequence.context.output == tokens
        assert sequence.context.constraint.output == [token for token in tokens if token != EOS]


def test_a_preempted_sequence_takes_nothing_in_twice():
    engine = new_engine(num_pages=16, max_sequences=2, proposers=drafters())
    params = SamplingParams(max_tokens=40, logit_bias={EOS: -100})
    pair = [new_sequence([n, 2], params, Speculation("on", 4, ("random",)), n, constraint=Steps(40)) for n in (1, 2)]
    run(engine, pair)
    assert engine.scheduler.num_preemptions > 0
    for sequence in pair:
        assert sequence.context.constraint.output == sequence.context.output
        assert len(sequence.context.output) == 40


@pytest.mark.parametrize("k", [0, 1, 6])
@pytest.mark.parametrize("name", NAMES)
def test_a_complete_output_ends_the_sequence_at_once(name, k):
    params = SamplingParams(max_tokens=30, logit_bias={EOS: -100})
    sequence = new_sequence([1, 2], params, Speculation("on", k, (name,)), constraint=Steps(8))
    chunks = run(new_engine(proposers=drafters()), [sequence])[sequence.context.id]
    assert len(chunks) == 8
    assert chunks[-1].finish_reason == "stop"
    assert EOS not in sequence.context.output


@pytest.mark.parametrize("rule", ["rejection", "block"])
@pytest.mark.parametrize("name", ["right", "wrong", "random", "grammar"])
def test_no_rule_keeps_a_forbidden_token(rule, name):
    for seed in range(20):
        params = SamplingParams(temperature=1.5, max_tokens=30, seed=seed, logit_bias={EOS: -100})
        sequence = new_sequence([1, 2], params, Speculation("on", 4, (name,), rule), constraint=Steps(20))
        run(new_engine(proposers=drafters()), [sequence])
        assert sequence.context.constraint.output == sequence.context.output
        assert len(sequence.context.output) == 20


def test_what_is_forced_is_drafted_and_right():
    params = SamplingParams(temperature=1.0, max_tokens=24, seed=1, logit_bias={EOS: -100})
    sequence = new_sequence([1, 2], params, Speculation("on", 4, ("grammar",)), constraint=Steps(24))
    chunks = run(new_engine(proposers=drafters()), [sequence])[sequence.context.id]
    assert [i for i, chunk in enumerate(chunks) if chunk.origin == "accepted"] == [3, 7, 11, 15, 19]
    assert sequence.stats.alpha == 1.0


def test_a_forbidden_draft_costs_no_rows_and_the_next_proposer_is_asked():
    class Forbidden(FakeProposer):
        def draft(self, context, budget):
            mask = context.constraint.mask([])
            return Draft.chain(self.name, [int(mask.argmin())] * budget)

    right = FakeProposer("right", lambda rng, right: right)
    engine = new_engine(proposers={"forbidden": Forbidden("forbidden", lambda rng, right: right), "right": right})
    params = SamplingParams(max_tokens=12, logit_bias={EOS: -100})
    sequence = new_sequence([1, 2], params, Speculation("on", 3, ("forbidden",)), constraint=Steps(12))
    engine.add(sequence)
    while not engine.is_idle:
        engine.step()
        assert engine.last_record.num_draft_rows == 0
    both = new_sequence([1, 2], params, Speculation("on", 3, ("forbidden", "right")), constraint=Steps(12))
    run(engine, [both])
    assert both.context.output == sequence.context.output
    assert both.stats.num_drafts_by_proposer == {"right": 3}


def test_others_in_the_batch_are_free():
    engine = new_engine(proposers=drafters())
    params = SamplingParams(temperature=1.0, max_tokens=20, seed=4)
    how = Speculation("on", 4, ("grammar", "random"))
    free = new_sequence([1, 2], params, how, request=1)
    chunks = run(engine, [new_sequence([1, 2], params, how, constraint=Steps(9)), free])
    alone = new_sequence([1, 2], params)
    assert outcome(chunks[free.context.id]) == outcome(run(new_engine(), [alone])[alone.context.id])


class Lost(Steps):
    """Fails after three tokens: in the mask, or when it takes the third in."""

    def __init__(self, in_mask: bool) -> None:
        super().__init__(30)
        self._in_mask, self._is_lost = in_mask, False

    @property
    def finish_reason(self) -> str | None:
        return "error" if self._is_lost else None

    def mask(self, path):
        mask = super().mask(path)
        if self._in_mask and len(self.output) + len(path) >= 3:
            self._is_lost = True
            mask[:] = False
            mask[EOS] = True
        return mask

    def advance(self, token):
        self.output.append(token)
        self._is_lost |= not self._in_mask and len(self.output) >= 3


@pytest.mark.parametrize("in_mask", [False, True])
def test_a_constraint_that_fails_ends_its_own_sequence_only(in_mask):
    params = SamplingParams(max_tokens=10, logit_bias={EOS: -100})
    lost = new_sequence([1, 2], params, constraint=Lost(in_mask))
    other = new_sequence([1, 2], params, request=1, constraint=Steps(8))
    chunks = run(new_engine(), [lost, other])
    assert chunks[lost.context.id][-1].finish_reason == "error"
    assert chunks[other.context.id][-1].finish_reason == "stop"
    assert len(lost.context.output) == 3 + in_mask


def test_a_stop_string_may_end_a_constrained_text_early():
    params = SamplingParams(max_tokens=30, logit_bias={EOS: -100})
    whole = new_sequence([1, 2], params, constraint=Steps(12))
    text = "".join(chunk.text for chunk in run(new_engine(), [whole])[whole.context.id])
    params = SamplingParams(max_tokens=30, logit_bias={EOS: -100}, stop=(text[4:6],))
    cut = new_sequence([1, 2], params, Speculation("on", 4, ("right",)), constraint=Steps(12))
    chunks = run(new_engine(proposers=drafters()), [cut])[cut.context.id]
    assert "".join(chunk.text for chunk in chunks) == text[: text.index(text[4:6])]
    assert chunks[-1].finish_reason == "stop"
    assert len(cut.context.output) < len(whole.context.output)
