"""How a trace says what was known before a step, what was decided and what became of it: a JSON object a line. Pure.

Values are written field by field as the types of governor/plan.py and steps.py name them. What repeats is said once:
the costs of passes only where they changed since the step before, a survival only once in a step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from foredraft.governor.plan import Candidate, Plan, Snapshot
from foredraft.steps import PHASES, StepRecord

VERSION = 2  # to be raised with every change of this module's lines or of the types they are made of
COSTS = ("pass_cost", "draft_costs")
MAX_INT = 1 << 53
_PLAIN = frozenset((int, bool, str, type(None)))


@dataclass(frozen=True)
class Between:
    """Steps without a decision, in sum: the governor rested, or nobody left drafts to it."""

    num_steps: int = 0
    num_tokens: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, record: StepRecord) -> Between:
        return cls(1, sum(record.num_tokens.values()), record.seconds)

    def __add__(self, other: Between) -> Between:
        return Between(
            self.num_steps + other.num_steps, self.num_tokens + other.num_tokens, self.seconds + other.seconds
        )


@dataclass(frozen=True)
class TraceStep:
    """A step in which the governor decided.

    record: what became of it; None where it did not come to an end. before: the steps since the last decision.
    """

    snapshot: Snapshot
    plan: Plan
    record: StepRecord | None
    before: Between = Between()


class Encoder:
    """Writes the lines of one trace, in order. Fractions keep six digits: more than any of them is known to."""

    def __init__(self) -> None:
        self._costs: dict[str, Any] = {}

    def line(self, step: TraceStep) -> bytes:
        """The step as a line, its end included."""
        snapshot = {name: getattr(step.snapshot, name) for name in _names(Snapshot) if name not in ("seats", *COSTS)}
        costs = {"pass_cost": step.snapshot.pass_cost, "draft_costs": dict(step.snapshot.draft_costs)}
        changed = {name: cost for name, cost in costs.items() if cost != self._costs.get(name)}
        self._costs |= changed
        survivals: dict[tuple[float, ...], int] = {}
        seats = []
        for seat in step.snapshot.seats:
            candidates = [
                {
                    **{name: getattr(each, name) for name in _names(Candidate)},
                    "survival": survivals.setdefault(each.survival, len(survivals)),
                }
                for each in seat.candidates
            ]
            seats.append({**vars(seat), "candidates": candidates})
        value = {
            "snapshot": {**_packed(snapshot | changed), "seats": seats},
            "survivals": _packed(tuple(survivals)),
            "plan": _packed(step.plan),
            "record": _packed(step.record),
            "before": _packed(step.before),
        }
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"


class Decoder:
    """Reads the lines of one trace, in order."""

    def __init__(self) -> None:
        self._costs: dict[str, Any] = {}

    def step(self, line: bytes) -> TraceStep:
        """The step that a line says.

        Raises:
            ValueError, TypeError, LookupError, RecursionError: it is not the line of a step.
        """
        value = json.loads(line)
        snapshot, survivals = value["snapshot"], value.pop("survivals")
        self._costs |= {name: snapshot[name] for name in COSTS if name in snapshot}
        snapshot |= self._costs
        for seat in snapshot["seats"]:
            for candidate in seat["candidates"]:
                candidate["survival"] = survivals[candidate["survival"]]
        for draft in value["record"]["drafts"] if value["record"] else ():
            if "num_accepted" in draft:  # of version 1, which knew chains only
                draft["path"] = list(range(draft.pop("num_accepted")))
        step: TraceStep = _reader(TraceStep)(value)
        _check(step)
        return step


def _packed(value: Any) -> Any:
    """The value as JSON knows it. An object is its fields, by name."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if kind is tuple:
        return [_packed(each) for each in value]
    if is_dataclass(kind):
        return {name: _packed(getattr(value, name)) for name in _names(kind)}
    return {key: _packed(each) for key, each in value.items()}


@cache
def _reader(type_: Any) -> Callable[[Any], Any]:
    """The inverse of `_packed` for a type, strict: raises TypeError for anything that is not of this type."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is tuple:
        item = _reader(arguments[0])
        return lambda value: tuple([item(each) for each in _of(list, value)])
    if origin is Mapping:
        key, item = arguments[0], _reader(arguments[1])  # JSON's keys are texts, ours also numbers
        return lambda value: {key(name): item(each) for name, each in _of(dict, value).items()}
    if type(None) in arguments:
        some = _reader(arguments[0])
        return lambda value: None if value is None else some(value)
    if isinstance(type_, type) and is_dataclass(type_):
        readers = {name: _reader(hint) for name, hint in get_type_hints(type_).items()}
        return lambda value: type_(**{name: readers[name](each) for name, each in _of(dict, value).items()})
    if type_ is float:
        return lambda value: value if type(value) is float else float(_whole(value))
    return _whole if type_ is int else lambda value: _of(type_, value)


def _of(type_: type, value: Any) -> Any:
    if type(value) is not type_:
        raise TypeError(f"{str(value)[:40]!r} where {type_.__name__} is expected")
    return value


def _whole(value: Any) -> int:
    number: int = _of(int, value)
    if abs(number) > MAX_INT:
        raise ValueError("a number is too large")
    return number


@cache
def _names(type_: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(type_))


def _is_tree(candidate: Candidate) -> bool:
    parents = candidate.parents
    return len(parents) == len(candidate.survival) and all(-1 <= each < place for place, each in enumerate(parents))


def _check(step: TraceStep) -> None:
    """What a step has to hold for a policy to be run on it. Raises ValueError."""
    snapshot = step.snapshot
    seats = {seat.context_id: seat for seat in snapshot.seats}
    for cost in (snapshot.pass_cost, *snapshot.draft_costs.values()):
        if not cost.rows or len(cost.rows) != len(cost.seconds) or sorted(set(cost.rows)) != list(cost.rows):
            raise ValueError("a pass's cost has no rising knots")
    for each in (each for seat in snapshot.seats for each in seat.candidates):
        if not all(0 <= chance <= 1 for chance in each.survival):
            raise ValueError("a survival is no chance")
        if each.parents and not _is_tree(each):
            raise ValueError("a candidate's parents are not those of a tree")
        if not each.is_ready and each.proposer not in snapshot.draft_costs:
            raise ValueError(f"{each.proposer} has no cost")
    for context_id, choice in step.plan.choices.items():
        offer = choice.among(seats[context_id]) if context_id in seats else None
        if offer is None or not 1 <= choice.num_tokens <= len(offer.survival):
            raise ValueError(f"context {context_id} has a draft that nobody offered")
    if step.record and step.record.phase_seconds.keys() != PHASES.keys():
        raise ValueError(f"the phases are not {', '.join(PHASES)}")
