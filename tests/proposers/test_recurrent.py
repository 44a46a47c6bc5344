"""An EAGLE head drafts what it says when all of it is computed anew, however contexts grow."""

from __future__ import annotations

import logging
import random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
import tiny_drafters
from foredraft.core import Context, SamplingParams
from foredraft.drafters import loading
from foredraft.drafters.eagle import Eagle3
from foredraft.errors import ConfigError
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.models import gguf
from foredraft.models.decoder import Decoder
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops.native import NativeOps
from foredraft.proposers import features as features_module
from foredraft.proposers import recurrent
from foredraft.proposers.base import LoadedDrafter, Resources, whole
from foredraft.proposers.recurrent import RecurrentProposer
from foredraft.proposers.tree import Growth, grow
from foredraft.sampling.noise import noise_key
from foredraft.sampling.processors import probabilities, process

WIDTH = 2 * 64  # two taps
SAMPLED = SamplingParams(temperature=0.8, top_p=0.95, repetition_penalty=1.2, seed=1)


class Setting(NamedTuple):
    target: Decoder
    head: Eagle3
    eos_ids: frozenset[int]

    def proposer(self, num_pages: int = 200, share_prefixes: bool = False) -> tuple[RecurrentProposer, PagedKV]:
        kv = PagedKV(*self.head.kv_shape, num_pages, page_size=8, share_prefixes=share_prefixes)
        resources = Resources(self.target, self.eos_ids, None, drafters={"eagle3": LoadedDrafter(self.head, kv)})
        return recurrent.eagle3(resources), kv


@pytest.fixture(scope="module")
def setting(tmp_path_factory) -> Setting:
    root = tmp_path_factory.mktemp("head")
    file = gguf.read(tiny.write_tiny(root / "target.gguf"))
    target, tokenizer = Decoder(file, NativeOps(1)), Tokenizer.from_metadata(file.metadata)
    head = loading.load(tiny_drafters.write_eagle3(root / "head", taps=[1, 2]), target, tokenizer)
    assert isinstance(head, Eagle3)
    return Setting(target, head, frozenset(tokenizer.eos_ids))


def context(id: int, tokens: list[int], params=SAMPLED, rule="exact") -> Context:
    return Context(id, tokens, len(tokens), params, noise_key(id, 0), rule)


def features(tokens: list[int], start: int, end: int) -> np.ndarray:
    """Like the target's, a function of the tokens up to each position."""
    rows = [
        np.random.default_rng([7, *tokens[: position + 1]]).standard_normal(WIDTH) for position in range(start, end)
    ]
    return np.array(rows, np.float32).reshape(-1, WIDTH)


def show(proposer: RecurrentProposer, one: Context, start: int = 0) -> None:
    """All features of positions from `start` on that are final."""
    proposer.feed(one.id, start, features(one.tokens, start, len(one.tokens) - 1))


def anew(setting: Setting, one: Context, origin: int, budget: int, width: int):
    """The draft, from rows that all are computed for every node, each node's path as a chain."""
    head, kv = setting.head, PagedKV(*setting.head.kv_shape, 40, page_size=8)
    fused = head.fuse(features(one.tokens, origin, len(one.tokens) - 1).astype(np.float16).astype(np.float32))

    def run(path: list[int]) -> tuple[np.ndarray, np.ndarray]:
        hidden = np.concatenate([fused, *(run(path[:depth])[1] for depth in range(len(path)))])
        sequence, builder = kv.open([]), BatchBuilder()
        assert kv.reserve(sequence, len(hidden))
        builder.add(sequence, [*one.tokens[origin + 1 :], *path], [len(hidden) - 1])
        logits, after = head.forward(builder.build(), hidden, kv)
        kv.close(sequence)
        return logits, after

    def feed(growths):
        for node in growths[0].open:
            logits = np.full(setting.target.vocab_size, -np.inf, np.float32)
            logits[head.target_ids] = run([guess.token for guess in growths[0].path(node)])[0][0]
            yield logits

    growth = Growth(0, one, budget, width)
    grow([growth], feed, setting.eos_ids, whole)
    return growth.draft("eagle3")


def same(draft, other) -> bool:
    return (draft.tokens, draft.parents, draft.grades) == (other.tokens, other.parents, other.grades)


class Sequence:
    """What the proposer should know of a context: where its cache begins, what it has read and been shown."""

    def __init__(self, one: Context) -> None:
        self.context = one
        self.origin, self.read, self.start, self.shown = 0, 0, 0, 0

    def show(self, proposer: RecurrentProposer, skipped: int = 0) -> None:
        """The next pass, of which the first `skipped` tokens were found in a cache."""
        start, self.shown = self.shown + skipped, len(self.context.tokens) - 1
        self.start = max(start if skipped else self.start, self.shown - features_module.MOST)
        show(proposer, self.context, start)

    def asked(self) -> None:
        if self.read < self.start or not self.read:
            self.origin = self.start
        self.read = self.shown


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(8, 60), st.booleans())
def test_drafts_are_what_the_head_says(setting, seed, num_pages, share_prefixes):
    """Contexts come, partly found in the target's prefix cache, grow with and without a draft, miss passes, and go."""
    rng = random.Random(seed)
    proposer, kv = setting.proposer(num_pages, share_prefixes)
    sequences: dict[int, Sequence] = {}
    most, features_module.MOST = features_module.MOST, 30
    try:
        for step in range(8):
            if len(sequences) < 3:
                new = Sequence(context(step, [rng.randrange(2) for _ in range(rng.randint(2, 40))]))
                new.show(proposer, rng.choice([0, 0, len(new.context.tokens) // 2]))
                sequences[step] = new
            asked = [one for one in sequences.values() if rng.random() < 0.7]
            budgets, widths = [rng.randint(1, 4) for _ in asked], [rng.choice([1, 1, 3]) for _ in asked]
            drafts = proposer.propose_while([one.context for one in asked], budgets, whole, widths)
            for one, budget, width, draft in zip(asked, budgets, widths, drafts, strict=True):
                if draft is None:
                    assert num_pages < 40 or one.start == one.shown, "pages are short, or nothing new was shown"
                    continue
                one.asked()
                origins = {one.origin, 0} if share_prefixes else {one.origin}
                assert any(same(draft, anew(setting, one.context, o, budget, width)) for o in origins)
                one.context.tokens += draft.tokens[: rng.randint(0, 2)]
            for one in sequences.values():
                one.context.tokens += [rng.randrange(200) for _ in range(rng.choice([1, 1, 2, 35]))]
                one.show(proposer, rng.choice([0, 0, 0, 1]))
            for id in [id for id in sequences if rng.random() < 0.15]:
                del sequences[id]
                proposer.release(id)
    finally:
        features_module.MOST = most
        for id in sequences:
            proposer.release(id)
    proposer.release(12345)
    assert kv.num_available_pages == num_pages


def passes(setting: Setting, monkeypatch) -> list:
    """Batches that the head runs from now on."""
    seen, forward = [], setting.head.forward

    def watched(batch, hidden, kv):
        assert len(batch.tokens) == len(hidden)
        seen.append(batch)
        return forward(batch, hidden, kv)

    monkeypatch.setattr(setting.head, "forward", watched)
    return seen


def test_one_pass_per_depth_for_all_sequences(setting, monkeypatch):
    proposer, _ = setting.proposer()
    contexts = [context(i, [i, 1, 2, 3]) for i in range(4)]
    for one in contexts:
        show(proposer, one)
    batches = passes(setting, monkeypatch)
    proposer.propose(contexts, [3, 3, 1, 2])
    assert [len(batch.wanted) for batch in batches] == [4, 3, 2]
    assert [len(batch.tokens) for batch in batches] == [12, 3, 2]


def test_rows_it_drafted_are_run_again_with_the_targets_features(setting, monkeypatch):
    proposer, _ = setting.proposer()
    one = context(0, [1, 2, 3])
    show(proposer, one)
    [draft] = proposer.propose([one], [3])
    one.tokens += [*draft.tokens[:2], 9]
    show(proposer, one, 2)
    batches = passes(setting, monkeypatch)
    proposer.propose([one], [1])
    assert batches[0].tokens.tolist() == [*draft.tokens[:2], 9]
    assert batches[0].positions.tolist() == [2, 3, 4]


def test_no_pass_is_larger_than_a_prefill_chunk(setting, monkeypatch):
    monkeypatch.setattr(recurrent, "MAX_ROWS", 16)
    proposer, _ = setting.proposer()
    contexts = [context(i, [i] * length) for i, length in enumerate((70, 15, 16, 2))]
    for one in contexts:
        show(proposer, one)
    batches = passes(setting, monkeypatch)
    drafts = proposer.propose(contexts, [2] * 4)
    assert max(len(batch.tokens) for batch in batches) <= 16
    assert all(same(draft, anew(setting, one, 0, 2, 1)) for one, draft in zip(contexts, drafts, strict=True))


def test_it_reads_what_a_cache_had_from_its_own(setting, monkeypatch):
    """The target found a prefix in its cache; so does the head, in its own, if the scopes are the same."""
    proposer, _ = setting.proposer(share_prefixes=True)
    first = context(0, list(range(40)))
    show(proposer, first)
    proposer.propose([first], [1])
    batches = passes(setting, monkeypatch)
    for id, scope, tokens, num_rows in (
        (1, "", [*range(40), 7], 8),
        (2, "alice", [*range(40), 7], 16),
        (3, "", [5, *range(1, 40), 7], 16),
    ):
        one = context(id, tokens)
        one.scope = scope
        batches.clear()
        show(proposer, one, 24)
        [draft] = proposer.propose([one], [2])
        assert len(batches[0].tokens) == num_rows
        assert same(draft, anew(setting, one, 0 if num_rows == 8 else 24, 2, 1))


def test_nothing_is_offered_without_the_newest_features(setting):
    proposer, _ = setting.proposer()
    one = context(0, [1, 2, 3])
    assert proposer.propose([one], [2]) == [None]
    show(proposer, one)
    one.tokens += [4, 5]
    assert proposer.propose([one], [2]) == [None]
    proposer.feed(0, 3, features(one.tokens, 3, 4))  # the pass before was missed
    [draft] = proposer.propose([one], [2])
    assert same(draft, anew(setting, one, 3, 2, 1))
    assert proposer.propose([one], [2]) == [None], "asked again without a new token"


def test_beyond_what_it_was_trained_for_it_stops_and_says_so_once(setting, caplog, monkeypatch):
    proposer, _ = setting.proposer()
    monkeypatch.setattr(setting.head, "max_positions", 12)
    contexts = [context(0, [1] * 11), context(1, [2] * 20), context(2, [3] * 30)]
    for one in contexts:
        show(proposer, one)
    with caplog.at_level(logging.WARNING, "foredraft"):
        drafts = proposer.propose(contexts, [8] * 3)
    assert [draft and len(draft.tokens) for draft in drafts] == [3, None, None]
    assert caplog.messages == ["eagle3 was trained for 12 positions; it drafts no more for longer sequences"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", ["exact", "rejection", "block"])
def test_only_tokens_of_its_vocabulary_are_drafted_and_laws_are_of_the_target(setting, temperature, rule):
    proposer, _ = setting.proposer()
    params = SamplingParams(temperature=temperature, seed=1)
    one = context(0, [1, 2], params, rule)
    show(proposer, one)
    [draft] = proposer.propose([one], [6])
    assert len(draft.tokens) == 6
    assert set(draft.tokens) <= set(setting.head.target_ids.tolist())
    if rule == "exact" or temperature == 0:
        assert draft.probs is None
        return
    outside = np.ones(288, bool)
    outside[setting.head.target_ids] = False
    assert draft.probs.shape == (6, 288)
    assert not draft.probs[:, outside].any()
    np.testing.assert_allclose(draft.probs.sum(1), 1, rtol=1e-5)
    kv = PagedKV(*setting.head.kv_shape, 4)
    sequence, builder = kv.open([]), BatchBuilder()
    kv.reserve(sequence, 1)
    builder.add(sequence, [2], [0])
    fused = setting.head.fuse(features([1, 2], 0, 1).astype(np.float16).astype(np.float32))
    logits = np.full(288, -np.inf, np.float32)
    logits[setting.head.target_ids] = setting.head.forward(builder.build(), fused, kv)[0][0]
    law = probabilities(process(logits, params, [1, 2], [], setting.eos_ids), temperature)
    np.testing.assert_allclose(draft.probs[0], law, rtol=1e-5, atol=1e-8)


def test_it_needs_a_drafter(setting):
    for create in (recurrent.eagle, recurrent.eagle3):
        with pytest.raises(ConfigError, match="needs a drafter of this kind; name one with --drafter"):
            create(Resources(setting.target, setting.eos_ids, None))
