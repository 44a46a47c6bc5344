"""Predicted outputs: followed, lost and found again, at a cost that does not grow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import new_engine, new_sequence, outcome, plain_tokens, run
from foredraft.core import Context, SamplingParams, Speculation
from foredraft.proposers.prediction import Prediction, create

PROMPT = [90, 91, 92]
LINE = tuple(range(10, 60))
_tokens = st.lists(st.integers(0, 3), max_size=30)


def context(prediction: Sequence[int], output: Sequence[int] = (), id: int = 1) -> Context:
    return Context(id, [*PROMPT, *output], len(PROMPT), SamplingParams(), key=0, prediction=tuple(prediction))


def propose(proposer: Prediction, of: Context, budget: int = 3) -> list[int] | None:
    draft = proposer.propose([of], [budget])[0]
    return None if draft is None else list(draft.tokens)


def after(output: Sequence[int], prediction: Sequence[int] = LINE, budget: int = 3) -> list[int] | None:
    """What is drafted after an output."""
    return propose(Prediction(), context(prediction, output), budget)


def test_starts_at_the_beginning_and_ends_at_the_end() -> None:
    assert after([]) == [10, 11, 12]
    assert after(LINE[:48]) == [58, 59]
    assert after(LINE) is None
    assert after([], prediction=[]) is None


def test_the_prompt_is_not_taken_for_output() -> None:
    assert after([], prediction=[1, *PROMPT, 2, 3]) == [1, 90, 91]


@pytest.mark.parametrize(
    ("output", "place"),
    [
        ([*LINE[:20], 7], 21),  # one token instead of one
        ([*LINE[:20], 7, LINE[25]], 26),  # one instead of five
        ([*LINE[:20], 7, 8, 9, *LINE[21:24]], 24),  # three instead of one
        ([*LINE[:20], *LINE[24:26]], 26),  # four left out
        ([*LINE[:10], *LINE[40:43]], 43),  # thirty left out
        ([*LINE[:20], *[1, 2, 3] * 20, *LINE[20:23]], 23),  # sixty put in
        ([1, 2, 3, *LINE[:3]], 3),  # another beginning, such as a code fence
        ([99, *LINE[1:2]], 2),  # the first word is another token after what the chat template wrote
    ],
)
def test_finds_its_place_after_a_change(output: list[int], place: int) -> None:
    assert after(output) == list(LINE[place : place + 3])


def test_nothing_is_drafted_where_the_output_says_something_else() -> None:
    assert after([*LINE[:20], 1, 2]) is None
    assert after([*LINE[:20], 1, 2, LINE[30], 3]) is None


def test_a_chance_match_far_ahead_is_taken_back() -> None:
    prediction = [*LINE[:20], 1, 2, 3, *LINE[20:], 1, 2, 3, 4]
    of, proposer = context(prediction, [*LINE[:20], 5, *LINE[25:28]]), Prediction()
    assert propose(proposer, of) == list(LINE[28:31])
    of.tokens += [6, 1, 2, 3]
    assert propose(proposer, of) == list(LINE[20:23])


def test_the_nearest_match_ahead_wins() -> None:
    block = [1, 2, 3, 4, 5]
    prediction = [*block, 20, *LINE[:9], *block, 21, *block, 22]
    assert after([*block, 20, *LINE[:9], 9, 8, *block], prediction, 1) == [21]


@given(_tokens, _tokens, st.lists(st.integers(0, 30)))
def test_a_draft_depends_on_the_tokens_alone(prediction: list[int], output: list[int], asked_at: list[int]) -> None:
    """Not on when the proposer was asked: it may have been left out, or its state released in between."""
    of, proposer = context(prediction), Prediction()
    for length in sorted({min(length, len(output)) for length in asked_at}):
        of.tokens[len(PROMPT) :] = output[:length]
        propose(proposer, of)
    of.tokens[len(PROMPT) :] = output
    assert propose(proposer, of) == after(output, prediction)


def test_sequences_do_not_mix_and_release_forgets() -> None:
    proposer = Prediction()
    first, second = context([1, 2, 3]), context([4, 5, 6], [4], id=2)
    assert [draft and draft.tokens for draft in proposer.propose([first, second], [2, 2])] == [(1, 2), (5, 6)]
    proposer.release(1)
    proposer.release(99)
    assert propose(proposer, context([7, 8])) == [7, 8]


SOURCE = '''
def total_price(items, tax_rate, discount=None):
    """Sum the items, take off the discount, add the tax."""
    total = 0
    for item in items:
        if item.is_free:
            continue
        total += item.price * item.count
    if discount is not None:
        total -= total * discount.share
        total = max(total, discount.floor)
    tax = total * tax_rate
    total += tax
    report("price", total, tax)
    return round(total, 2)
'''


@pytest.mark.parametrize(("name", "least"), [("amount", 5.5), ("sum_so_far", 3.0)])
def test_a_rename_is_followed(name: str, least: float) -> None:
    """Words and punctuation as tokens; at most 9 a step."""
    words: dict[str, int] = {}

    def tokenize(text: str) -> list[int]:
        return [words.setdefault(word, len(words)) for word in re.findall(r"\n *| ?[a-z]+|\W|\d", text)]

    output = tokenize(re.sub(r"\btotal\b", name, SOURCE))
    of, proposer, num_steps = context(tokenize(SOURCE)), Prediction(), 0
    while (done := len(of.output)) < len(output):
        tokens = propose(proposer, of, 8) or []
        accepted = 0
        while accepted < min(len(tokens), len(output) - done - 1) and tokens[accepted] == output[done + accepted]:
            accepted += 1
        of.tokens += output[done : done + accepted + 1]
        num_steps += 1
    assert len(output) / num_steps > least


class CountingList(list[int]):
    """Counts the elements read."""

    num_read = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.num_read += len(found) if isinstance(index, slice) else 1
        return found


def test_a_token_costs_the_same_after_a_long_output() -> None:
    def reads_per_token(length: int) -> float:
        of = context([i * i % 1009 for i in range(length)])
        of.tokens = CountingList([*PROMPT, *(i * i % 1013 for i in range(length))])
        proposer = Prediction()
        propose(proposer, of)
        before = of.tokens.num_read
        for step in range(50):
            of.tokens.append(step)
            propose(proposer, of)
        return (of.tokens.num_read - before) / 50

    assert reads_per_token(20_000) == pytest.approx(reads_per_token(2_000), abs=1)
    assert reads_per_token(20_000) < 10


@given(st.integers(0, 40), st.lists(st.integers(0, 20), max_size=6), st.sampled_from([0.0, 1.0]))
def test_text_is_the_same_with_any_prediction_and_its_tokens_are_counted(
    at: int, instead: list[int], temperature: float
) -> None:
    params = SamplingParams(max_tokens=40, temperature=temperature, seed=5, ignore_eos=True)
    plain = new_sequence([1, 2, 3], params)
    expected = plain_tokens(plain)
    engine = new_engine(max_rows=512, proposers={"prediction": create(None)})
    sequence = new_sequence([1, 2, 3], params, Speculation("on", 5, ("prediction",)))
    sequence.context.prediction = (*expected[:at], *instead, *expected[at + 1 :])
    chunks = run(engine, [sequence])[sequence.context.id]
    assert outcome(chunks) == outcome(run(new_engine(), [plain])[plain.context.id])
    stats = sequence.stats
    assert stats.num_accepted_by_proposer["prediction"] == stats.num_accepted
    assert stats.num_draft_tokens_by_proposer["prediction"] == stats.num_draft_tokens
    if at == 40:
        assert (stats.num_steps, stats.num_accepted, stats.num_draft_tokens) == (7, 33, 33)
