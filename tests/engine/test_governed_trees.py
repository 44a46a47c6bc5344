"""Chain or tree: what the governor settles on in the engine, on a clock of its own, with what it learned itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from fakes import new_sequence, plain_tokens
from foredraft.core import SamplingParams, Speculation
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.governor.plan import PassCost
from governed import STEEP, Clock, Governed, TimedTrees, tokens_per_s

ROOM = PassCost((1, 16, 32, 64), (0.050, 0.055, 0.100, 0.200))  # up to 16 rows cost next to nothing


def sequences(rule: str = "exact", tree_width: int | None = None) -> Callable[[], EngineSequence]:
    numbers = itertools.count()

    def new() -> EngineSequence:
        number = next(numbers)
        params = SamplingParams(max_tokens=120, ignore_eos=True, temperature=1.0, seed=number)
        speculation = Speculation("auto", None, ("trees",), rule, tree_width)
        return new_sequence([number % 7, 1, 2], params, speculation, number)

    return new


class Run:
    """So many steps of a drafter whose second guess helps; all but the first are looked at."""

    def __init__(
        self, monkeypatch, cost, alpha, second, seconds, num_running=1, new=None, num_steps=100, believes=None
    ):
        clock = Clock()
        self.proposer = TimedTrees("trees", clock, alpha, second, seconds, believes)
        self.governed = Governed(monkeypatch, clock, [self.proposer], cost)
        self.governed.run(new or sequences(), num_steps // 2, num_running)
        self.proposer.shapes.clear()
        records = self.governed.run(new or sequences(), num_steps, num_running)
        self.records = [record for record in records if not record.num_prompt_rows]

    @property
    def speed(self) -> float:
        return tokens_per_s(self.records)

    @property
    def share_of_trees(self) -> float:
        widths = [width for shape in self.proposer.shapes for width in shape]
        return sum(width > 1 for width in widths) / max(len(widths), 1)


def test_trees_where_rows_are_free_and_the_second_guess_is_often_right(monkeypatch):
    free = Run(monkeypatch, ROOM, 0.5, 0.3, 0.002)
    chains = Run(monkeypatch, ROOM, 0.5, 0.3, 0.002, new=sequences(tree_width=1))
    assert free.share_of_trees > 0.8
    assert chains.share_of_trees == 0
    assert free.speed > 1.1 * chains.speed


def test_chains_where_the_second_guess_is_never_right(monkeypatch):
    """It is tried, and what was learned of it decides."""
    free = Run(monkeypatch, STEEP, 0.8, 0.0, 0.002, believes=0.7)
    assert free.share_of_trees < 0.3


@pytest.mark.parametrize(("alpha", "second"), [(0.5, 0.3), (0.8, 0.1)])
def test_with_16_at_once_nobody_is_worse_off_for_having_the_choice(monkeypatch, alpha, second):
    cost = PassCost((1, 16, 32, 64), (0.050, 0.060, 0.110, 0.210))
    free = Run(monkeypatch, cost, alpha, second, 0.002, num_running=16, num_steps=40)
    chains = Run(monkeypatch, cost, alpha, second, 0.002, 16, sequences(tree_width=1), num_steps=40)
    assert free.speed > 0.93 * chains.speed


def test_the_rule_block_has_chains(monkeypatch):
    assert Run(monkeypatch, ROOM, 0.5, 0.3, 0.002, new=sequences("block"), num_steps=60).share_of_trees == 0


def test_the_text_is_the_same(monkeypatch):
    made = []

    def new() -> EngineSequence:
        made.append(makes())
        return made[-1]

    makes = sequences()
    run = Run(monkeypatch, ROOM, 0.5, 0.3, 0.002, new=new)
    assert run.share_of_trees > 0.5
    for sequence in made[:-1]:
        assert sequence.context.output == plain_tokens(sequence)
