"""The draft model proposer, with the target's own function as its model: then every draft must be right."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import (
    EOS,
    PAGE_SIZE,
    VOCAB,
    PathModel,
    logits_after,
    new_engine,
    new_sequence,
    next_token,
    plain_tokens,
    proposers,
    run,
)
from foredraft.core import Context, Draft, SamplingParams, Speculation
from foredraft.errors import ConfigError
from foredraft.kv.cache import PagedKV
from foredraft.proposers import draft_model, tree, trimmed
from foredraft.proposers.base import DraftModel, Resources, check_draft, whole
from foredraft.sampling.noise import noise_key
from foredraft.sampling.processors import probabilities, process
from foredraft.sampling.sampler import choose

SAMPLED = SamplingParams(temperature=0.8, top_k=12, repetition_penalty=1.2, frequency_penalty=0.3, min_tokens=9, seed=1)


def make(num_pages=200, context_length=500, num_padding=0, allowed=None, share_prefixes=True, kept=None):
    kv = PagedKV(1, 1, 2, num_pages, PAGE_SIZE, share_prefixes)
    allowed = np.ones(VOCAB, np.bool_) if allowed is None else allowed
    model = DraftModel(PathModel(context_length, num_padding, kept), kv, allowed)
    return draft_model.create(Resources(PathModel(), {EOS}, model)), model


def context(id: int, tokens: list[int], params=SAMPLED, rule="exact", prompt_len=None) -> Context:
    return Context(id, tokens, prompt_len or len(tokens), params, noise_key(id, 0), rule)


def right_chain(one: Context, count: int) -> tuple[int, ...]:
    tokens: list[int] = []
    for _ in range(count):
        tokens.append(next_token(one, tokens))
    return tuple(tokens)


def right_path(one: Context, draft: Draft) -> list[int]:
    """The nodes that the target will accept."""
    right: list[int] = []
    for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
        before = [draft.tokens[i] for i in right]
        if parent == (right[-1] if right else -1) and token == next_token(one, before):
            right.append(node)
    return right


def some(rng):
    """Lets a random part of the drafts go on."""
    return lambda grades: {number for number in grades if rng.random() < 0.6}


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(8, 60), st.booleans())
def test_drafts_follow_the_model_however_contexts_grow(seed, num_pages, share_prefixes):
    """Contexts come, grow by accepted drafts, corrections and tokens it never saw, are left out for some steps, and go.
    Where pages are short it may offer nothing, but never a wrong draft; in the end every page is back."""
    rng = random.Random(seed)
    proposer, model = make(num_pages, share_prefixes=share_prefixes)
    contexts: dict[int, Context] = {}
    for step in range(12):
        if len(contexts) < 4 and rng.random() < 0.6:
            contexts[step] = context(step, [rng.randrange(3) for _ in range(rng.randint(1, 20))])
        asked = [one for one in contexts.values() if rng.random() < 0.8]
        budgets = [rng.randint(1, 6) for _ in asked]
        widths = [rng.choice([1, 1, 2, 3]) for _ in asked]
        ends = rng.random() < 0.5
        drafts = proposer.propose_while(asked, budgets, some(rng) if ends else whole, widths) if asked else []
        for one, budget, width, draft in zip(asked, budgets, widths, drafts, strict=True):
            if draft is None:
                continue
            check_draft(draft, "draft_model", one, budget, VOCAB)
            right = right_path(one, draft)
            assert width > 1 or len(right) == len(draft.tokens)
            assert right or len(draft.tokens) < width
            assert ends or len(draft.tokens) == budget
            assert draft.probs is None
            kept = right[: rng.randint(0, len(right))]
            one.tokens += [draft.tokens[node] for node in kept]
        for one in contexts.values():
            one.tokens += [rng.randrange(VOCAB - 1) for _ in range(rng.randint(1, 3))]
        for id in [id for id in contexts if rng.random() < 0.1]:
            del contexts[id]
            proposer.release(id)
    for id in contexts:
        proposer.release(id)
    proposer.release(12345)
    assert model.kv.num_available_pages == num_pages


@pytest.mark.parametrize("rule", ["exact", "rejection", "block"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_trees_are_accepted_moved_and_gone_on_with(rule, temperature):
    """In the engine: paths of trees are kept in both caches, by every rule but block, which gets chains."""
    proposer, model = make()
    engine = new_engine(60, proposers={"draft_model": proposer})
    params = SamplingParams(temperature=temperature, max_tokens=41, ignore_eos=True, seed=2, repetition_penalty=1.1)
    speculation = Speculation("on", 6, ("draft_model",), rule, tree_width=3)
    sequences = [new_sequence([i, 1, 2] * 3, params, speculation, request=i) for i in range(4)]
    run(engine, sequences)
    for one in sequences:
        assert one.stats.num_accepted > 15
        assert one.stats.num_drafts > 0
        if rule == "exact" or temperature == 0:
            assert one.context.output == plain_tokens(one)
    rows = [np.bincount(batch.sequences).max() for batch in model.decoder.batches]
    is_chain = rule == "block" and temperature > 0
    assert (sorted(rows)[len(rows) // 2] == 1) == is_chain
    assert model.kv.num_available_pages == 200


@pytest.mark.parametrize("rule", ["exact", "rejection", "block"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_targets_own_function_is_always_accepted(rule, temperature):
    """Field problem 7: acceptance must not decay over steps, requests or preemptions."""
    proposer, model = make()
    engine = new_engine(40, proposers={"draft_model": proposer})
    params = SamplingParams(temperature=temperature, max_tokens=41, ignore_eos=True, seed=2, repetition_penalty=1.1)
    speculation = Speculation("on", 4, ("draft_model",), rule)
    for _ in range(2):
        sequences = [new_sequence([i, 1, 2] * 3, params, speculation, request=i) for i in range(4)]
        run(engine, sequences)
        for one in sequences:
            assert one.stats.alpha == 1.0
            if rule == "exact" or temperature == 0:
                assert one.context.output == plain_tokens(one)
    assert engine.scheduler.num_preemptions > 0
    assert model.kv.num_available_pages == 200


def test_one_pass_per_depth_for_all_sequences():
    proposer, model = make()
    contexts = [context(i, [i, 1, 2]) for i in range(5)]
    proposer.propose(contexts, [3, 3, 1, 2, 3])
    assert [len(batch.wanted) for batch in model.decoder.batches] == [5, 4, 3]
    assert [len(batch.tokens) for batch in model.decoder.batches] == [15, 4, 3]


@pytest.mark.parametrize("rule", ["exact", "rejection", "block"])
def test_a_draft_ends_where_it_is_told_to_and_the_others_go_on(rule):
    """Before each further token of those that have budget left, all of them are asked about at once."""
    proposer, model = make()
    contexts = [context(i, [i, 1, 2], rule=rule) for i in range(4)]
    whole_drafts = make()[0].propose(contexts, [5, 5, 1, 5])
    lengths, asked = {0: 5, 1: 2, 3: 3}, []

    def goes_on(paths):
        asked.append({number: grades for number, [grades] in paths.items()})
        return {number for number, grades in asked[-1].items() if len(grades) < lengths[number]}

    drafts = proposer.propose_while(contexts, [5, 5, 1, 5], goes_on)
    assert [len(draft.tokens) for draft in drafts] == [5, 2, 1, 3]
    assert [len(batch.wanted) for batch in model.decoder.batches] == [4, 3, 2, 1, 1]
    for draft, longer in zip(drafts, whole_drafts, strict=True):
        count = len(draft.tokens)
        assert draft.tokens == longer.tokens[:count]
        assert draft.grades == longer.grades[:count]
        if rule == "exact":
            assert draft.probs is None
        else:
            np.testing.assert_array_equal(draft.probs, longer.probs[:count])
    sizes = [{0: n, 1: n, 3: n} if n < 3 else {0: n, 3: n} if n == 3 else {0: n} for n in range(1, 5)]
    assert [{number: len(each) for number, each in grades.items()} for grades in asked] == sizes
    for grades in asked:
        assert all(tuple(each) == drafts[number].grades[: len(each)] for number, each in grades.items())


def test_grades_tell_by_how_much_a_token_leads():
    """And how far behind it is where noise has picked another than the likeliest: then the grade is the lowest."""
    proposer, _ = make()
    params = SamplingParams(temperature=1.0, seed=3)
    seen = set()
    for i in range(12):
        one = context(i, [i, 1], params)
        [draft] = proposer.propose([one], [6])
        for depth, (token, grade) in enumerate(zip(draft.tokens, draft.grades, strict=True)):
            logits = logits_after([*one.tokens, *draft.tokens[:depth]])
            lead = logits[token] - np.delete(logits, token).max()
            assert grade == sum(lead >= least for least in tree.LEADS)
            seen.add(grade)
    assert seen == set(range(len(tree.LEADS) + 1))


def test_accepted_rows_are_not_computed_again():
    proposer, model = make()
    one = context(0, [1, 2, 3])
    draft = proposer.propose([one], [4])[0]
    one.tokens += [*draft.tokens, 7]
    model.decoder.batches.clear()
    proposer.propose([one], [1])
    assert len(model.decoder.batches[0].tokens) == 2  # the last drafted token was never fed, and the bonus token


def test_its_cache_is_shared_within_a_scope_only():
    proposer, model = make()
    for id, scope, num_rows in ((0, "", 9), (1, "alice", 9), (2, "bob", 9), (3, "alice", 1)):
        one = context(id, [1] * 9)
        one.scope = scope
        model.decoder.batches.clear()
        proposer.propose([one], [1])
        assert len(model.decoder.batches[0].tokens) == num_rows


def test_no_pass_is_larger_than_a_prefill_chunk(monkeypatch):
    monkeypatch.setattr(draft_model, "MAX_ROWS", 16)
    proposer, model = make(share_prefixes=False)
    contexts = [context(i, [i] * length) for i, length in enumerate((70, 15, 16, 1))]
    drafts = proposer.propose(contexts, [2] * 4)
    assert [draft.tokens for draft in drafts] == [right_chain(one, 2) for one in contexts]
    assert max(len(batch.tokens) for batch in model.decoder.batches) <= 16


def test_past_its_own_range_it_stops_drafting_and_nothing_else():
    """Field problem 9."""
    proposer, model = make(context_length=12)
    one = context(0, [1] * 10)
    assert [len(draft.tokens) for draft in proposer.propose([one], [8])] == [2]
    assert max(batch.positions.max() for batch in model.decoder.batches) < 12
    one.tokens += [1, 1, 1]
    assert proposer.propose([one], [8]) == [None]
    engine = new_engine(proposers={"draft_model": proposer})
    sequence = new_sequence(
        [1] * 8, SamplingParams(max_tokens=30, ignore_eos=True), Speculation("on", 4, ("draft_model",))
    )
    run(engine, [sequence])
    assert sequence.context.output == plain_tokens(sequence)
    assert 0 < sequence.stats.num_accepted < 12


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", ["exact", "rejection"])
def test_padding_and_other_forbidden_tokens_are_never_drafted(temperature, rule):
    """Field problem 8: the draft's vocabulary is padded further, and some ids mean nothing to it."""
    allowed = np.arange(VOCAB) % 2 == 0
    proposer, _ = make(num_padding=7, allowed=allowed)
    one = context(0, [1, 2], SamplingParams(temperature=temperature, seed=1), rule)
    draft = proposer.propose([one], [12])[0]
    assert len(draft.tokens) == 12
    assert all(allowed[token] for token in draft.tokens)
    if draft.probs is not None:
        assert draft.probs.shape == (12, VOCAB)
        assert (draft.probs[:, ~allowed] == 0).all()


def test_the_law_is_the_one_drawn_from():
    proposer, _ = make()
    one = context(0, [1, 2], SAMPLED, "rejection")
    draft = proposer.propose([one], [5])[0]
    for depth in range(5):
        path = [*one.tokens, *draft.tokens[:depth]]
        from_logits = process(logits_after(path), SAMPLED, [1, 2], path[2:], {EOS})
        np.testing.assert_allclose(
            draft.probs[depth], probabilities(from_logits, SAMPLED.temperature), rtol=1e-5, atol=1e-8
        )
        assert draft.probs[depth, draft.tokens[depth]] > 0


KEPT = np.array([1, 2, 3, 5, 8, EOS], np.int32)


@pytest.mark.parametrize("rule", ["exact", "rejection", "block"])
def test_a_trimmed_vocabulary_has_the_law_of_its_tokens_and_the_contexts(rule):
    """What is neither kept nor in the context is never drafted; the law is zero there and sums to 1 over the rest.
    Under exact the draft is the best of these tokens by the noise that the target itself will use."""
    proposer, _ = make(kept=KEPT)
    params = SamplingParams(temperature=1.3, frequency_penalty=0.3, seed=1)
    contexts = [context(id, [6 + id % 5, 2], params, rule) for id in range(20)]
    for _ in range(2):
        drafts = proposer.propose(contexts, [5] * 20)
        for one, draft in zip(contexts, drafts, strict=True):
            known = sorted({*KEPT.tolist(), *one.tokens})
            for depth, token in enumerate(draft.tokens):
                path = [*one.tokens, *draft.tokens[:depth]]
                logits = np.where(np.isin(np.arange(VOCAB), known), logits_after(path), -np.inf).astype(np.float32)
                scores = process(logits, params, one.tokens[:2], path[2:], {EOS})
                assert token in known
                if rule == "exact":
                    assert token == choose(scores, params.temperature, one.key, len(path))
                    continue
                law = draft.probs[depth]
                np.testing.assert_allclose(law, probabilities(scores, params.temperature), rtol=1e-5)
                assert np.flatnonzero(law).tolist() == known
                assert law.sum() == pytest.approx(1)
            one.tokens += [10, 4]  # which the next draft may hold


def test_rows_of_the_contexts_tokens_are_gathered_when_they_are_new():
    proposer, model = make(kept=KEPT, allowed=np.arange(VOCAB) != 9)
    gathered = []
    model.decoder.output_rows = lambda tokens: gathered.append(tokens.tolist()) or tokens
    one, two = context(0, [4, 6, 9, 4]), context(1, [7, 6])
    for asked in ([one], [one, two], [one], [two, one]):
        proposer.propose(asked, [2] * len(asked))
        for each in asked:
            each.tokens.append(2)
    assert gathered == [[4, 6], [4, 6, 7]]  # 9 means nothing to the draft model; rows at hand are not gathered again
    two.tokens.append(10)
    proposer.propose([two], [2])
    assert gathered[2:] == [[6, 7, 10]]
    for id in (0, 1):
        proposer.release(id)
    proposer.propose([context(1, [0, 6])], [1])
    assert gathered[3:] == [[0, 6]]


def test_rows_that_are_not_needed_any_more_are_dropped(monkeypatch):
    monkeypatch.setattr(trimmed, "SLACK", 3)
    proposer, model = make(kept=KEPT)
    sizes = []
    model.decoder.output_rows = lambda tokens: sizes.append(len(tokens)) or tokens
    for id, tokens in enumerate(([0, 4, 6, 7, 9], [4, 6], [4], [1])):
        proposer.propose([context(id, tokens)], [1])
    assert sizes == [5, 1]


def test_where_the_mask_allows_nothing_that_is_kept_something_is_drafted_and_refused():
    constraint = SimpleNamespace(mask=lambda path: np.arange(VOCAB) == 4)
    proposer, _ = make(kept=KEPT)
    one = context(0, [1, 2])
    one.constraint = constraint
    [draft] = proposer.propose([one], [2])
    assert set(draft.tokens) <= {*KEPT.tolist(), 1, 2}


@pytest.mark.parametrize("rule", ["exact", "rejection", "block"])
def test_a_trimmed_vocabulary_refuses_drafts_and_changes_nothing_else(rule):
    proposer, _ = make(kept=KEPT)
    engine = new_engine(proposers={"draft_model": proposer})
    params = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
    sequence = new_sequence([1, 2, 3], params, Speculation("on", 3, ("draft_model",), rule))
    run(engine, [sequence])
    assert sequence.context.output == plain_tokens(sequence)
    assert 0 < sequence.stats.num_accepted < sequence.stats.num_draft_tokens
    assert not set(sequence.context.output) <= set(KEPT.tolist())


def test_it_takes_over_from_lookup_in_the_middle():
    """Lookup-like drafts come first; the draft model catches up with what it did not see."""
    proposer, _ = make()
    engine = new_engine(proposers=proposers() | {"draft_model": proposer})
    params = SamplingParams(max_tokens=60, temperature=1.0, seed=8, ignore_eos=True)
    sequence = new_sequence([1, 2, 3], params, Speculation("on", 3, ("tree", "draft_model")))
    run(engine, [sequence])
    assert sequence.context.output == plain_tokens(sequence)
    assert set(sequence.stats.num_drafts_by_proposer) == {"tree", "draft_model"}


def test_it_needs_a_draft_model():
    with pytest.raises(ConfigError, match="needs a draft model; name one with --draft"):
        draft_model.create(Resources(PathModel(), {EOS}, None))


def test_a_row_that_nothing_can_be_drawn_from_ends_its_own_draft_only():
    proposer, model = make()
    good, bad = context(0, [1, 2, 3]), context(1, [4, 5, 6])
    forward, num_passes = model.decoder.forward, 0

    def poison(*arguments):
        nonlocal num_passes
        num_passes += 1
        logits = forward(*arguments)
        if len(logits) == 2 and num_passes == 2:
            logits[1] = np.nan
        return logits

    model.decoder.forward = poison
    drafts = proposer.propose([good, bad], [3, 3])
    assert [draft.tokens for draft in drafts] == [right_chain(good, 3), right_chain(bad, 1)]
    num_passes = 1
    bad.tokens += [*right_chain(bad, 2)]
    good.tokens.append(7)
    assert proposer.propose([good, bad], [2, 2])[1] is None
    bad.tokens.append(7)
    assert proposer.propose([bad], [2])[0].tokens == right_chain(bad, 2)
