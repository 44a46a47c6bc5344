"""What all cells say together, and the sentence at the end."""

import pytest

from foredraft.bench.records import Record
from foredraft.bench.summary import recommendation, summaries
from foredraft.core import SpeculationStats

AUTO, LOOKUP, TREE = "auto:lookup+draft_model", "on:lookup:8", "on:draft_model:8x3"


def record(arm, speed, block=1, workload="w", **more):
    stats = SpeculationStats(num_steps=10, num_tokens=20)
    return Record(1, workload, 1, arm, speed, None, None, None, None, "", stats, 0.0, block, **more)


def speeds(**by_arm):
    """Records of off and others: a speed for each question."""
    names = {"off": "off", "auto": AUTO, "lookup": LOOKUP, "tree": TREE}
    return [record(names[arm], speed, block) for arm, each in by_arm.items() for block, speed in enumerate(each, 1)]


def test_pairs_of_all_cells_count_alike():
    found = summaries(
        [record("off", 10), record(AUTO, 20), record("off", 100, workload="v"), record(AUTO, 50, workload="v")]
    )
    assert [(one.arm, one.num_pairs) for one in found] == [("off", 2), (AUTO, 2)]
    assert found[1].over_first.mean == pytest.approx(1)
    assert found[0].over_first.mean == pytest.approx(1)
    assert found[1].tokens_per_step == 2


def test_what_failed_has_no_speed_and_is_counted():
    found = summaries(
        [record("off", 10), record(AUTO, None, failures={"too long": 2}), record("off", 10, 2), record(AUTO, 15, 2)]
    )
    assert (found[1].num_failed, found[1].num_pairs) == (2, 1)
    assert found[1].over_first.mean == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("by_arm", "sentence"),
    [
        (  # auto is as good as the best
            {"off": [10, 10, 10], "lookup": [16, 16, 16], "tree": [12, 12, 12], "auto": [15.8, 15.8, 15.8]},
            f"use {AUTO}: 1.58 x (1.58 to 1.58); {LOOKUP} 1.60 x, {TREE} 1.20 x",
        ),
        (  # auto is behind
            {"off": [10, 10, 10], "lookup": [20, 20, 20], "auto": [15, 15, 15]},
            f"use {LOOKUP}: 2.00 x (2.00 to 2.00); {AUTO} 1.50 x",
        ),
        (
            {"off": [10, 10, 10], "lookup": [9, 9, 9], "auto": [10, 10.1, 10]},
            f"use off: nothing pays here; {AUTO} comes closest, 1.00 x (0.99 to 1.02)",
        ),
        (
            {"off": [10, 10, 10], "auto": [5, 30, 12]},
            f"use off: nothing is faster by more than the noise; {AUTO} comes closest, 1.22 x (0.13 to 11.27)",
        ),
        (  # one of them seems faster, but it may be noise
            {"off": [10, 10, 10], "lookup": [5, 30, 10], "tree": [11, 11, 11]},
            f"use {TREE}: 1.10 x (1.10 to 1.10); {LOOKUP} 1.14 x",
        ),
        (
            {"off": [10], "lookup": [13]},
            f"use {LOOKUP}: 1.30 x; each ran once, so repeat it (--rounds 3) before you rely on it",
        ),
        ({"off": [10, 10]}, "no recommendation: nothing ran beside the first arm"),
    ],
)
def test_recommendations(by_arm, sentence):
    assert recommendation(summaries(speeds(**by_arm))) == sentence
