"""Several proposers at once: in every step the one that should gain most, by what was learned of each, drafts.

Nothing about the proposers is told to the governor: lookup, suffix and prediction are the real ones, on texts that they
are good and bad at; the one that runs a model is right by chance and takes its time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest

from fakes import new_sequence, next_token
from foredraft.core import Context, SamplingParams, Speculation
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.governor.plan import Candidate, Plan, Snapshot
from foredraft.governor.pools import PoolConfig
from foredraft.proposers.lookup import Lookup
from foredraft.proposers.prediction import Prediction
from foredraft.proposers.suffix import Suffix
from foredraft.proposers.suffix_memory import SuffixMemory
from governed import MEASURED, Clock, Governed, TimedProposer

NAMES = ("prediction", "suffix", "lookup", "model")
# Of texts: greedy, which repeats itself; with a prediction; neither; and one that was written before.
KINDS = ("loop", "predicted", "free", "again")


def mixed(names: tuple[str, ...] = NAMES, kinds: tuple[str, ...] = KINDS) -> Callable[[], EngineSequence]:
    """Makes sequences of all kinds in turn, each kind on a route of its own."""
    numbers = count()

    def new() -> EngineSequence:
        number = next(numbers)
        kind = kinds[number % len(kinds)]
        params = SamplingParams(
            temperature=0.0 if kind == "loop" else 1.0,
            max_tokens=70,
            seed=7 if kind == "again" else number,
            ignore_eos=True,
        )
        prompt = [1, 2, 3] if kind == "again" else [number % 7, number % 5, 2]
        sequence = new_sequence(prompt, params, Speculation("auto", 8, names), number, route=kind)
        if kind == "predicted" and "prediction" in names:
            sequence.context.prediction = written(sequence.context)
        return sequence

    return new


def written(context: Context) -> tuple[int, ...]:
    """What the model will write, but for every tenth token."""
    tokens: list[int] = []
    for _ in range(70):
        tokens.append(next_token(context, tokens))
    return tuple((token + (number % 10 == 9)) % 20 for number, token in enumerate(tokens))


def made(monkeypatch: pytest.MonkeyPatch, cost=MEASURED, names: tuple[str, ...] = NAMES) -> Governed:
    clock = Clock()
    known = {
        "prediction": Prediction(),
        "suffix": Suffix(SuffixMemory()),
        "lookup": Lookup(min_ngram=2),
        "model": TimedProposer("model", clock, 0.65, is_free=False, seconds=0.006),
    }
    pools = {"default": PoolConfig(share_outputs=True)}
    return Governed(monkeypatch, clock, [known[name] for name in names], cost, pools)


def gain(snapshot: Snapshot, candidate: Candidate, num_tokens: int) -> float:
    """Tokens per second of a step in which the one sequence that runs has this draft."""
    seat = snapshot.seats[0]
    rows = snapshot.num_rows + num_tokens
    step_s = snapshot.overhead_s + snapshot.pass_cost(
        rows, snapshot.sequence_context, snapshot.row_context + num_tokens * seat.context_len
    )
    if not candidate.is_ready:
        cost = snapshot.draft_costs[candidate.proposer]
        step_s += num_tokens * cost(1) + candidate.catch_up / seat.horizon * cost.row_s
    return (1 + sum(candidate.survival[:num_tokens])) / step_s


def test_each_step_takes_the_best_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sequence at a time, so that what would have been best can be searched for."""
    governed = made(monkeypatch)
    checked: Counter[str] = Counter()
    lost: list[float] = []

    def check(snapshot: Snapshot, plan: Plan) -> None:
        if snapshot.has_prompt_rows or governed.governor._is_probe or not plan.choices:
            return
        [seat], [choice] = snapshot.seats, plan.choices.values()
        options = {
            (candidate.proposer, num_tokens): gain(snapshot, candidate, num_tokens)
            for candidate in seat.candidates
            for num_tokens in range(1, len(candidate.survival) + 1)
        }
        lost.append(options[choice.proposer, choice.num_tokens] / max(options.values()))
        checked[choice.proposer] += 1

    governed.governor.on_plan.append(check)
    governed.run(mixed(kinds=("again", "predicted", "again", "loop")), 500)
    assert all(checked[name] > 15 for name in ("prediction", "suffix", "model")), checked
    assert min(lost) > 0.99


def test_each_kind_of_text_is_drafted_by_who_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds in one batch."""
    records = made(monkeypatch).run(mixed(), 250, num_running=4)
    accepted: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for record in records[80:]:
        for outcome in record.drafts:
            accepted[record.routes[outcome.context_id]][outcome.proposer] += outcome.num_accepted
    assert accepted["predicted"].most_common(1)[0][0] == "prediction"
    assert accepted["again"].most_common(1)[0][0] == "suffix"
    assert accepted["loop"]["suffix"] + accepted["loop"]["lookup"] > 0
    assert accepted["free"].most_common(1)[0][0] == "model"
