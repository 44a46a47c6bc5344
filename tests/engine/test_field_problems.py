"""Faults that users of other engines ran into, and the tests that keep them out of this one. Those of servers, routing
and benchmarks are not about the engine; numbers are those of the list that they were collected in.

  1  slower than no speculation                test_engine.test_off_never_calls_a_proposer (k = 0 costs nothing)
  5  temperature 0 changes                     test_engine.test_exact_text_is_that_of_a_plain_loop, test_real, test_llm
  6  wrong law above temperature 0             lossless/, test_draft_model.test_the_law_is_the_one_drawn_from
  7  acceptance collapses over requests        test_draft_model.test_the_targets_own_function_is_always_accepted
  8  padded vocabularies                       test_draft_model.test_padding_and_other_forbidden_tokens_...
  9  drafter's own range                       test_draft_model.test_past_its_own_range_it_stops_drafting...
 10  drafts past max_tokens or context         test_engine.test_drafts_never_reach_past_max_tokens_or_the_context
 11  logprobs                                  here
 12  tokens after the end leak                 test_engine.test_an_end_inside_an_accepted_block_cuts_everything_there
 13  bias, min_p only on the first row         here
 14  penalties and min_tokens weaken           here
 15  seeds                                     here, test_engine.test_choices_differ_and_a_seed_reproduces_them
 18  prefix-cache hits collapse                test_engine.test_prefix_hits_are_equal_with_and_without_speculation...
 19  out of memory from drafts                 here, test_scheduler.test_drafts_push_nobody_out
 21  speculation silently off                  here
 23  "disabled" still costs                    test_engine.test_off_never_calls_a_proposer
 24  no progress, committed tokens change      test_engine.test_every_step_commits_a_token_and_committed_is_final
 25  requests without an answer                test_scheduler.test_everybody_is_served_in_order_and_no_page_is_lost
 26  acceptance only on average                here
"""

from __future__ import annotations

import numpy as np
import pytest

from fakes import EOS, BrokenProposer, logits_after, new_engine, new_sequence, next_token, outcome, proposers, run
from foredraft.core import Context, SamplingParams, Speculation
from foredraft.sampling.processors import log_probabilities

RIGHT = Speculation("on", 8, ("right",))


def chunks_of(params: SamplingParams, speculation: Speculation | None = RIGHT, prompt=(1, 2, 3)):
    sequence = new_sequence(prompt, params, speculation)
    return run(new_engine(max_rows=512, proposers=proposers()), [sequence])[sequence.context.id], sequence


def test_11_logprobs_are_the_targets_own_at_every_verified_row():
    params = SamplingParams(max_tokens=30, temperature=1.0, logit_bias={3: 5.0}, logprobs=2, seed=1, ignore_eos=True)
    chunks, sequence = chunks_of(params)
    assert {chunk.origin for chunk in chunks} >= {"accepted", "bonus"}
    for index, chunk in enumerate(chunks):
        path = sequence.context.tokens[: 3 + index]
        logprob, top = log_probabilities(logits_after(path), chunk.token_id, 2)
        assert (chunk.logprobs.logprob, list(chunk.logprobs.top)) == (logprob, top)


@pytest.mark.parametrize(
    "params",
    [
        {"logit_bias": {4: 100.0}},
        {"logit_bias": dict.fromkeys(range(0, 23, 2), -100.0)},
        {"min_p": 0.9, "temperature": 1.5},
        {"top_k": 1, "temperature": 1.5},
        {"top_p": 0.01, "temperature": 1.5},
    ],
)
def test_13_processors_reach_every_row_of_a_block(params):
    chunks, sequence = chunks_of(SamplingParams(max_tokens=40, ignore_eos=True, seed=3, **params))
    plain, _ = chunks_of(SamplingParams(max_tokens=40, ignore_eos=True, seed=3, **params), None)
    assert outcome(chunks) == outcome(plain)
    assert sequence.stats.num_steps < 8
    tokens = {chunk.token_id for chunk in chunks}
    if params.get("logit_bias") == {4: 100.0}:
        assert tokens == {4}
    elif "logit_bias" in params:
        assert all(token % 2 for token in tokens)


def test_14_penalties_count_the_accepted_part_of_the_block():
    """With so strong a penalty no token comes twice before all have come, also within one block."""
    chunks, sequence = chunks_of(SamplingParams(max_tokens=23, presence_penalty=10.0, logit_bias={EOS: -100.0}), RIGHT)
    tokens = [chunk.token_id for chunk in chunks]
    assert len(set(tokens)) >= 20
    assert sequence.stats.num_steps < 5
    assert outcome(chunks_of(sequence.context.params, None)[0]) == outcome(chunks)


def test_14_min_tokens_ends_inside_a_block():
    """The end token is forbidden up to min_tokens and, with this bias, certain from there on."""
    for min_tokens in range(1, 20):
        chunks, sequence = chunks_of(SamplingParams(max_tokens=40, min_tokens=min_tokens, logit_bias={EOS: 100.0}))
        assert [chunk.token_id == EOS for chunk in chunks] == [False] * min_tokens + [True]
        assert sequence.stats.num_tokens == min_tokens + 1


def test_15_seeds_in_one_batch_are_their_own():
    def tokens(seeds: list[int]) -> list[list[int]]:
        params = [SamplingParams(max_tokens=20, temperature=1.2, seed=seed, ignore_eos=True) for seed in seeds]
        sequences = [new_sequence([1, 2], one, RIGHT, request=i) for i, one in enumerate(params)]
        run(new_engine(proposers=proposers()), sequences)
        return [one.context.output for one in sequences]

    together = tokens([1, 2, 3, 1])
    assert together == [tokens([seed])[0] for seed in (1, 2, 3, 1)]
    assert together[0] == together[3]
    assert len({str(one) for one in together}) == 3


def test_19_speculation_allocates_nothing_after_start():
    engine = new_engine(40, proposers=proposers())
    layer = engine.scheduler._kv.layers[0]
    addresses = [array.ctypes.data for array in (layer.keys, layer.values)]
    run(
        engine,
        [new_sequence([i] * 20, SamplingParams(max_tokens=40), Speculation("on", 64, ("wrong",))) for i in range(4)],
    )
    assert addresses == [array.ctypes.data for array in (layer.keys, layer.values)]
    assert engine.scheduler._kv.num_available_pages == 40


def test_21_a_proposer_that_fails_is_reported(caplog):
    engine = new_engine(proposers={"broken": BrokenProposer("raises")})
    sequence = new_sequence([1], SamplingParams(max_tokens=20, ignore_eos=True), Speculation("on", 4, ("broken",)))
    run(engine, [sequence])
    assert "proposer broken failed and drafts no more for 1 sequences" in caplog.text
    assert "no draft today" in caplog.text
    assert sequence.stats.num_drafts == 0


def test_24_a_refused_token_is_not_drafted_into_an_endless_loop():
    """A proposer that insists on one wrong token costs rows, never progress."""
    chunks, sequence = chunks_of(SamplingParams(max_tokens=30, ignore_eos=True), Speculation("on", 8, ("wrong",)))
    assert len(chunks) == sequence.stats.num_steps == 30
    one = Context(-1, [1, 2, 3], 3, sequence.context.params, sequence.context.key)
    for chunk in chunks:
        assert chunk.token_id == next_token(one)
        one.tokens.append(chunk.token_id)


def test_26_acceptance_is_counted_per_request_proposer_and_position():
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    sequences = [
        new_sequence([i], params, Speculation("on", 4, (name,)), i) for i, name in enumerate(("right", "wrong"))
    ]
    run(new_engine(proposers=proposers()), sequences)
    right, wrong = (one.stats for one in sequences)
    assert (right.num_drafts_by_proposer, wrong.num_drafts_by_proposer) == ({"right": 8}, {"wrong": 39})
    assert right.accepted_per_position == [8, 8, 8, 8]
    assert wrong.accepted_per_position == []
    assert np.isclose(right.alpha, 1.0)
    assert wrong.alpha == 0.0
