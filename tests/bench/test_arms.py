import pytest

from foredraft.bench.arms import parse_arm, parse_arms, proposers_of
from foredraft.core import Speculation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", Speculation("off")),
        ("on", Speculation("on")),
        ("auto:lookup", Speculation("auto", proposers=("lookup",))),
        ("on:lookup:8", Speculation("on", 8, ("lookup",))),
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
