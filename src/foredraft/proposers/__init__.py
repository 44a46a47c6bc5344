"""Proposers by name: those of this package, and any that another package registers.

A factory is called with `Resources` and returns a `Proposer`. Other packages name theirs as an entry point in the group
"foredraft.proposers".
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points

from foredraft.errors import ConfigError
from foredraft.proposers.base import Proposer, Resources

GROUP = "foredraft.proposers"
GRAMMAR, PREDICTION = "grammar", "prediction"
ALWAYS = (GRAMMAR, PREDICTION)  # draft from what comes with a request, so they are loaded for every model
FREE = ("suffix", "lookup")  # need no model, so they are loaded where nothing else is said
BUILT_IN = {
    GRAMMAR: "foredraft.proposers.grammar:create",
    "lookup": "foredraft.proposers.lookup:create",
    "suffix": "foredraft.proposers.suffix:create",
    "draft_model": "foredraft.proposers.draft_model:create",
    "eagle": "foredraft.proposers.recurrent:eagle",
    "eagle3": "foredraft.proposers.recurrent:eagle3",
    "mtp": "foredraft.proposers.recurrent:mtp",
    "medusa": "foredraft.proposers.medusa:create",
    PREDICTION: "foredraft.proposers.prediction:create",
}
Factory = Callable[[Resources], Proposer]


def create(name: str, resources: Resources) -> Proposer:
    """The proposer called `name`.

    Raises:
        ConfigError: no such proposer (the message lists the known ones), its package cannot be loaded, or it needs a
            draft model or a drafter and there is none.
    """
    return _factory(name)(resources)


def known() -> list[str]:
    """Names of all proposers that `create` can make."""
    return sorted(BUILT_IN.keys() | {point.name for point in entry_points(group=GROUP)})


def _factory(name: str) -> Factory:
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        built_in: Factory = getattr(import_module(module), attribute)
        return built_in
    for point in entry_points(group=GROUP):
        if point.name == name:
            try:
                registered: Factory = point.load()
            except Exception as exc:  # another package's import, whatever is wrong with it
                raise ConfigError(f"proposer {name!r} ({point.value}) cannot be loaded: {exc}") from exc
            return registered
    raise ConfigError(f"unknown proposer {name!r}; known are {', '.join(known())}")
