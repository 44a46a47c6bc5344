"""What the engine tells the governor of a step: whose turn it is, the pass without drafts, and who ran a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from foredraft.core import Context

# Which drafts in the making are worth another pass, as proposers ask (proposers/base.py): by number, the grades on the
# path down to each token that would get a child.
GoesOn = Callable[[Mapping[int, Sequence[Sequence[int]]]], Collection[int]]


@dataclass(frozen=True)
class Runner:
    """A proposer that has to run a model to draft; see the same names in proposers/base.py."""

    ends_drafts: bool = False
    drafts_at_once: bool = False
    most_catch_up: int | None = None


@dataclass(frozen=True)
class Turn:
    """A sequence that decides a token, whether or not anybody may draft for it.

    budget: most tokens to draft. runners: proposers that may draft for it and would have to run a model. num_left:
    tokens that it may still write. widths: of those of them that may grow trees, most children of a token.
    """

    context: Context
    route: str
    budget: int
    runners: Mapping[str, Runner]
    num_left: int
    widths: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """A pass without the drafts that are being decided about; see Snapshot."""

    num_rows: int
    sequence_context: int
    row_context: int
    other_tokens: float
    has_prompt_rows: bool


@dataclass(frozen=True)
class Run:
    """A call of a proposer that runs a model: by context id, budgets and the contexts' lengths; num_rows: of its
    passes, by depth."""

    runner: Runner
    budgets: Mapping[int, int]
    num_rows: Mapping[int, int]
    context_lens: Mapping[int, int]
    seconds: float
