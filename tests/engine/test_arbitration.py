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
from governed import FLAT, MEASURED, Clock, Governed, TimedProposer, tokens_per_s

NAMES = ("prediction", "suffix", "lookup", "model")
KINDS = ("loop", "predicted", "free", "again")  # of texts: greedy, and so in a loop soon; with a prediction; neither;
# and one that was written before


def mixed(names: tuple[str, ...] = NAMES, kinds: tuple[str, ...] = KINDS) -> Callable[[], EngineSequence]:
    """Makes sequences of all kinds in turn, each kind on a route of its own."""
    numbers = count()

    def new() -> EngineSequence:
        number = next(numbers)
        kind = kinds[number % len(kinds)]
        params = SamplingParams(
            temperature=0.0 if kind == "loop" else 1.0,
            max_tokens=60,
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
    for _ in range(60):
        tokens.append(next_token(context, tokens))
    return tuple((token + (number % 10 == 9)) % 20 for number, token in enumerate(tokens))


def made(monkeypatch: pytest.MonkeyPatch, cost=MEASURED, names: tuple[str, ...] = NAMES) -> Governed:
    clock = Clock()
    known = {
        "prediction": Prediction(),
        "suffix": Suffix(SuffixMemory()),
        "lookup": Lookup(min_ngram=2),
        "model": TimedProposer("model", clock, 0.75, is_free=False, seconds=0.004),
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
    governed.run(mixed(), 900)
    assert all(checked[name] > 15 for name in NAMES), checked
    # Ready drafts are compared by all their tokens, those of the model at some depths only.
    assert min(lost) > 0.9
    assert sum(share > 0.999 for share in lost) > 0.95 * len(lost)


@pytest.mark.parametrize("cost", [FLAT, MEASURED])
@pytest.mark.parametrize("num_running", [1, 4])
def test_together_they_are_no_worse_than_the_best_alone(monkeypatch, cost, num_running) -> None:
    """And every kind of text is drafted by those that know it."""

    def rate(names: tuple[str, ...]) -> tuple[float, dict[str, Counter[str]]]:
        records = made(monkeypatch, cost, names).run(mixed(names), 500, num_running)[150:]
        records = [record for record in records if not record.num_prompt_rows]
        by_kind: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        for record in records:
            for outcome in record.drafts:
                by_kind[record.routes[outcome.context_id]][outcome.proposer] += outcome.num_accepted
        return tokens_per_s(records), by_kind

    together, by_kind = rate(NAMES)
    assert together > 0.97 * max(rate((name,))[0] for name in NAMES)
    top = {kind: counts.most_common(1)[0][0] for kind, counts in by_kind.items() if counts}
    assert top["predicted"] == "prediction"
    assert top["loop"] in ("suffix", "lookup")
    assert top["again"] == "suffix"
    assert top.get("free", "model") == "model"
