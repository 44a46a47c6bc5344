import pytest

from foredraft.bench.arms import all_arms, parse_arm, parse_arms, proposers_of
from foredraft.core import Speculation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", Speculation("off")),
        ("on", Speculation("on")),
        ("auto:lookup", Speculation("auto", proposers=("lookup",))),
        ("on:lookup:8", Speculation("on", 8, ("lookup",))),
        ("on:draft_model:8x3", Speculation("on", 8, ("draft_model",), tree_width=3)),
        ("on:lookup+draft_model:4", Speculation("on", 4, ("lookup", "draft_model"))),
    ],
)
def test_arm(text, expected):
    assert parse_arm(text).speculation == expected


def test_proposers_to_load():
    assert proposers_of(parse_arms("off"), ["lookup"]) == []
    assert proposers_of(parse_arms("off,on:x+lookup:2,on:draft_model"), ["lookup"]) == [
        "x",
        "lookup",
        "draft_model",
    ]
    assert proposers_of(parse_arms("on:x,auto"), ["lookup"]) == ["x", "lookup"]
    assert proposers_of(parse_arms("auto"), ["lookup", "draft_model"]) == ["lookup", "draft_model"]


def test_all_arms_are_arms():
    for models in ([], ["draft_model"], ["eagle3", "draft_model"]):
        arms = parse_arms(all_arms(models))
        assert arms[0].speculation.mode == "off"
        assert [arm.speculation.mode for arm in arms[1:]] == ["on"] * (len(arms) - 2) + ["auto"]
        alone = [arm.speculation.proposers for arm in arms[1:-1]]
        assert {name for (name,) in alone} == {"lookup", "suffix", *models} == set(arms[-1].speculation.proposers)
        assert sum(arm.speculation.width_in("on") > 1 for arm in arms) == len(models)
