"""Proposers by name, those of other packages included."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from fakes import FakeProposer, PathModel
from foredraft import proposers
from foredraft.errors import ConfigError
from foredraft.proposers.base import Proposer, Resources
from foredraft.proposers.lookup import Lookup

RESOURCES = Resources(PathModel(), frozenset(), None)


def make(resources: Resources) -> Proposer:
    assert resources is RESOURCES
    return FakeProposer("theirs", lambda rng, right: right)


@pytest.fixture
def registered(monkeypatch):
    point = EntryPoint("theirs", f"{__name__}:make", proposers.GROUP)
    monkeypatch.setattr(proposers, "entry_points", lambda group: [point] if group == "foredraft.proposers" else [])


def test_built_in_names():
    assert proposers.known() == [
        "draft_model",
        "eagle",
        "eagle3",
        "grammar",
        "lookup",
        "medusa",
        "mtp",
        "prediction",
        "suffix",
    ]
    assert isinstance(proposers.create("lookup", RESOURCES), Lookup)


def test_an_unknown_name_lists_the_known_ones():
    known = "draft_model, eagle, eagle3, grammar, lookup, medusa, mtp, prediction, suffix"
    with pytest.raises(ConfigError, match=f"unknown proposer 'magic'; known are {known}"):
        proposers.create("magic", RESOURCES)


def test_a_missing_draft_model_is_said():
    with pytest.raises(ConfigError, match="--draft"):
        proposers.create("draft_model", RESOURCES)


@pytest.mark.usefixtures("registered")
def test_another_package_may_register_one():
    assert proposers.known() == [
        "draft_model",
        "eagle",
        "eagle3",
        "grammar",
        "lookup",
        "medusa",
        "mtp",
        "prediction",
        "suffix",
        "theirs",
    ]
    assert proposers.create("theirs", RESOURCES).name == "theirs"
    with pytest.raises(
        ConfigError, match="draft_model, eagle, eagle3, grammar, lookup, medusa, mtp, prediction, suffix, theirs"
    ):
        proposers.create("ours", RESOURCES)


def test_another_package_that_cannot_be_loaded_is_named(monkeypatch):
    broken = EntryPoint("theirs", "no_such_package:make", proposers.GROUP)
    monkeypatch.setattr(proposers, "entry_points", lambda group: [broken])
    with pytest.raises(ConfigError, match=r"'theirs' \(no_such_package:make\) cannot be loaded"):
        proposers.create("theirs", RESOURCES)
