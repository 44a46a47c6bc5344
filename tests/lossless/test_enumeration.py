"""The joint law of several tokens, across steps, is the target's: exactly, for every rule, drafter and draft shape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from enumeration import Law, Oracle, SymbolicNoise, Table, enumerate_runs, step, target_law

from foredraft.core import Draft
from foredraft.sampling.noise import Purpose, Stream

Drafter = Callable[[tuple[int, ...], int, SymbolicNoise], Draft]


def table(vocabulary: int, seed: int) -> Table:
    """A fixed law for each path, in sixteenths (exact in float32); some tokens are impossible."""

    @cache
    def law(path: tuple[int, ...]) -> Law:
        rng = np.random.default_rng([seed, *path])
        return rng.multinomial(16, rng.dirichlet([1.0] * vocabulary)) / 16

    return law


def sampling(draft_table: Table, is_shared: bool = False) -> Drafter:
    """Draws k tokens from its own law, with the target's noise (exact) or with noise of its own."""

    def draft(path: tuple[int, ...], k: int, noise: SymbolicNoise) -> Draft:
        tokens: list[int] = []
        laws = []
        for depth in range(k):
            laws.append(draft_table((*path, *tokens)))
            tokens.append((noise.shared if is_shared else noise.draft)(depth, laws[-1]))
        return Draft.chain("sampling", tokens, None if is_shared else np.array(laws, np.float32))

    return draft


def trimmed(draft_table: Table) -> Table:
    """A law over a trimmed vocabulary: the last token is never drafted, another has its share (still sixteenths)."""

    def law(path: tuple[int, ...]) -> Law:
        kept = draft_table(path).copy()
        kept[0], kept[-1] = kept[0] + kept[-1], 0
        return kept

    return law


def point_mass(draft_table: Table) -> Drafter:
    """The most likely tokens of its own law."""

    def draft(path: tuple[int, ...], k: int, noise: SymbolicNoise) -> Draft:
        tokens: list[int] = []
        for _ in range(k):
            tokens.append(int(draft_table((*path, *tokens)).argmax()))
        return Draft.chain("point", tokens)

    return draft


def point_tree(draft_table: Table) -> Drafter:
    """The two most likely tokens, and the most likely one below each."""

    def draft(path: tuple[int, ...], k: int, noise: SymbolicNoise) -> Draft:
        first, second = (int(x) for x in np.argsort(-draft_table(path), kind="stable")[:2])
        below = [int(draft_table((*path, x)).argmax()) for x in (first, second)]
        return Draft("tree", (first, second, *below), (-1, -1, 0, 1))

    return draft


def sampling_tree(draft_table: Table) -> Drafter:
    """Two different tokens drawn without replacement, and one drawn below each."""

    def draft(path: tuple[int, ...], k: int, noise: SymbolicNoise) -> Draft:
        law = draft_table(path)
        first = noise.draft(0, law)
        rest = law.copy()
        rest[first] = 0
        if rest.sum() == 0:
            return Draft("tree", (first,), (-1,), np.array([law], np.float32))
        rest /= rest.sum()
        second = noise.sibling(0, 1, rest)
        below = [draft_table((*path, x)) for x in (first, second)]
        children = [noise.sibling(1, i, below[i]) for i in range(2)]
        laws = np.array([law, rest, *below], np.float32)
        return Draft("tree", (first, second, *children), (-1, -1, 0, 1), laws)

    return draft


def keep(stream: Stream) -> Stream:
    return stream


def generated_law(
    rule: str,
    drafter: Drafter,
    target: Table,
    length: int,
    k: int,
    rekey: Callable[[Stream], Stream] = keep,
    check: Callable[[Oracle], None] = lambda oracle: None,
) -> dict[tuple[int, ...], float]:
    """The law of the first `length` tokens made step by step. Positions start at 5, as after a prompt."""

    def run(oracle: Oracle) -> tuple[int, ...]:
        path: tuple[int, ...] = ()
        while len(path) < length:
            noise = SymbolicNoise(0, 5 + len(path), oracle, rekey)
            draft = drafter(path, min(k, length - len(path)), noise)
            path += tuple(step(rule, draft, path, target, noise))
        return path[:length]

    law: dict[tuple[int, ...], float] = defaultdict(float)
    for path, weight, oracle in enumerate_runs(run):
        law[path] += weight
        check(oracle)
    return law


def distance(law: dict[tuple[int, ...], float], other: dict[tuple[int, ...], float]) -> float:
    return max(abs(law.get(path, 0.0) - other.get(path, 0.0)) for path in {*law, *other})


def each_key_is_read_once(oracle: Oracle) -> None:
    assert oracle.num_reads
    assert max(oracle.num_reads.values()) == 1, oracle.num_reads


DRAFTERS: dict[str, Callable[[Table], Drafter]] = {
    "point mass": point_mass,
    "sampling": sampling,
    "sampling, shared noise": lambda draft_table: sampling(draft_table, is_shared=True),
    "sampling, trimmed": lambda draft_table: sampling(trimmed(draft_table)),
    "point tree": point_tree,
    "sampling tree": sampling_tree,
}
CASES = [
    ("exact", "point mass"),
    ("exact", "sampling"),
    ("exact", "sampling, shared noise"),
    ("exact", "point tree"),
    ("rejection", "point mass"),
    ("rejection", "sampling"),
    ("rejection", "sampling, trimmed"),
    ("rejection", "point tree"),
    ("rejection", "sampling tree"),
    ("block", "point mass"),
    ("block", "sampling"),
    ("block", "sampling, trimmed"),
]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("rule", "drafter"), CASES)
@pytest.mark.parametrize(("vocabulary", "length", "k"), [(2, 3, 3), (3, 2, 2)])
def test_the_joint_law_is_the_targets(rule: str, drafter: str, seed: int, vocabulary: int, length: int, k: int) -> None:
    target, draft_table = table(vocabulary, seed), table(vocabulary, seed + 100)
    check = (lambda oracle: None) if rule == "exact" else each_key_is_read_once
    law = generated_law(rule, DRAFTERS[drafter](draft_table), target, length, k, check=check)
    assert sum(law.values()) == pytest.approx(1.0)
    assert distance(law, target_law(target, length, vocabulary)) < 1e-9


def without_block_start(stream: Stream) -> Stream:
    return Stream(stream.purpose, stream.position)


def one_purpose(stream: Stream) -> Stream:
    return Stream(Purpose.FINAL, stream.position, stream.block_start)


def accept_as_draft(stream: Stream) -> Stream:
    return stream._replace(purpose=Purpose.DRAFT) if stream.purpose == Purpose.ACCEPT else stream


@pytest.mark.parametrize(
    ("rule", "rekey"),
    [
        ("block", without_block_start),
        ("rejection", accept_as_draft),
        ("block", accept_as_draft),
        ("block", one_purpose),
    ],
)
def test_a_biased_key_scheme_is_noticed(rule: str, rekey: Callable[[Stream], Stream]) -> None:
    worst = 0.0
    for seed in (1, 2, 3):
        target, drafter = table(2, seed), sampling(table(2, seed + 100))
        law = generated_law(rule, drafter, target, 3, 3, rekey)
        worst = max(worst, distance(law, target_law(target, 3, 2)))
    assert worst > 1e-3


def scored_with_q(drafter: Drafter, draft_table: Table) -> Drafter:
    """The classic fault: tokens chosen deterministically, scored as if they had been drawn."""

    def draft(path: tuple[int, ...], k: int, noise: SymbolicNoise) -> Draft:
        made = drafter(path, k, noise)
        laws = [draft_table((*path, *made.tokens[:depth])) for depth in range(len(made.tokens))]
        return Draft.chain("faulty", made.tokens, np.array(laws, np.float32))

    return draft


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_draft_scored_with_a_law_it_was_not_drawn_from_is_noticed(rule: str) -> None:
    target, draft_table = table(3, 1), table(3, 101)
    law = generated_law(rule, scored_with_q(point_mass(draft_table), draft_table), target, 2, 2)
    assert distance(law, target_law(target, 2, 3)) > 1e-2


def expected_accepted(rule: str, drafter: Drafter, target: Table, k: int) -> float:
    def run(oracle: Oracle) -> int:
        noise = SymbolicNoise(0, 5, oracle)
        return len(step(rule, drafter((), k, noise), (), target, noise)) - 1

    return sum(accepted * weight for accepted, weight, _ in enumerate_runs(run))


def test_block_accepts_at_least_as_many_tokens_as_rejection() -> None:
    gains = []
    for seed in range(8):
        target, drafter = table(3, seed), sampling(table(3, seed + 100))
        gains.append(
            expected_accepted("block", drafter, target, 3) - expected_accepted("rejection", drafter, target, 3)
        )
    assert min(gains) > -1e-9
    assert max(gains) > 0.02


def test_block_accepts_point_masses_as_rejection_does() -> None:
    for seed in range(8):
        target, drafter = table(3, seed), point_mass(table(3, seed + 100))
        accepted = [expected_accepted(rule, drafter, target, 3) for rule in ("block", "rejection")]
        assert accepted[0] == pytest.approx(accepted[1])


def test_rejection_accepts_the_overlap_of_the_laws() -> None:
    for seed in range(8):
        target, draft_table = table(3, seed), table(3, seed + 100)
        accepted = expected_accepted("rejection", sampling(draft_table), target, 1)
        assert accepted == pytest.approx(float(np.minimum(target(()), draft_table(())).sum()))
