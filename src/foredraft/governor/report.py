"""What a governor can tell about its decisions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RouteReport:
    """What is known of a proposer on a route, and what was decided there.

    alpha: chance that a token is accepted after those before it were, as lately seen (None before any trial), and the
    number of trials behind it, at most a few dozen since older ones are forgotten. calibration_error: mean distance
    between the chances that were given and what came of them. num_switches: how often the route went from drafting to
    not drafting or back.
    """

    route: str
    pool: str
    proposer: str
    alpha: float | None
    num_trials: float
    calibration_error: float | None
    num_switches: int
    is_quarantined: bool
