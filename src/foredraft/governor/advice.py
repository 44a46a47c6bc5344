"""Rules that turn what a window of time has shown of a route into advice, with the numbers as reasons. Pure.

What holds already stays until it is clearly over: thresholds then have some slack (adviser.py adds that it must last).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

RULES = {
    "turn_on": "the objective for ITL is missed at low concurrency, and speculation is off",
    "turn_off": "the last A/B test found speculation no faster, or drafts are made past the crossover",
    "add_devices": "an objective is missed where speculation cannot help",
    "change_drafter": "every second token of a drafter is refused, or more",
    "quarantine": "a drafter's acceptance has collapsed",
}
CRITICAL = ("add_devices", "quarantine")  # answers are late and no setting helps; something is broken

# Where no crossover is known: a pass of so few rows waits for memory on any machine, so drafted rows cost little.
LOW_CONCURRENCY = 4.0
# At this alpha no draft, however long, gives more than 2 tokens a step: 1 / (1 - alpha).
LOW_ALPHA = 0.5
# Alpha is then known to about 0.05 (one standard error at 0.5), as much as SLACK allows for.
MIN_TRIALS = 100
# Other texts may halve alpha; a drafter that keeps less than a quarter of it no longer drafts for this target.
COLLAPSE = 0.25
# Standard errors to each side of both alphas. The tokens of one answer stand or fall together, so 3 and not 2.
COLLAPSE_ERRORS = 3.0
# Fewer drafts than in this share of the steps are the governor's probing.
FEW_DRAFTS = 0.05
# What holds is over when the figure is better than its threshold by this share: more than a p95 varies in a minute.
SLACK = 0.1

Key = tuple[str, str, str, str | None]  # rule, pool, route, proposer


@dataclass(frozen=True)
class Acceptance:
    """How many tokens of a proposer were tried for a route and accepted: lately, and ever before that."""

    num_accepted: int
    num_trials: int
    num_accepted_before: int = 0
    num_trials_before: int = 0
    is_quarantined: bool = False

    @property
    def alpha(self) -> float:
        return self.num_accepted / max(self.num_trials, 1)

    @property
    def alpha_before(self) -> float:
        return self.num_accepted_before / max(self.num_trials_before, 1)

    @property
    def has_collapsed(self) -> bool:
        """Alpha is below COLLAPSE of what it was, beyond doubt."""
        if self.num_trials_before < MIN_TRIALS:
            return False
        highest = _wilson(self.num_accepted, self.num_trials)[1]
        return highest < COLLAPSE * _wilson(self.num_accepted_before, self.num_trials_before)[0]


@dataclass(frozen=True)
class Ratio:
    """Tokens per second with speculation over those without, by an A/B test, and its 95% interval."""

    value: float
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        return f"{self.value:.3f}" + (f" ({self.interval[0]:.3f} to {self.interval[1]:.3f})" if self.interval else "")


@dataclass(frozen=True)
class Situation:
    """A route over a window of time; None is what is not known.

    mode: of the pool, and off also where the route's requests ask for that. concurrency: answers that one step of the
    engine goes on with, those of other routes included, in the mean. drafts_per_step: share of the route's steps that
    had a draft. tokens_per_step: what a step adds to an answer, 1 without drafts. crossover: the concurrency from which
    on no draft pays. acceptance: by proposer.
    """

    pool: str
    route: str
    mode: str
    concurrency: float | None = None
    itl_p95_ms: float | None = None
    itl_objective_ms: float | None = None
    ttft_p95_ms: float | None = None
    ttft_objective_ms: float | None = None
    drafts_per_step: float | None = None
    tokens_per_step: float | None = None
    crossover: float | None = None
    ratio: Ratio | None = None
    acceptance: Mapping[str, Acceptance] = field(default_factory=dict)


@dataclass(frozen=True)
class Advice:
    """What to do about a route (and one of its proposers), and why."""

    rule: str
    severity: str
    pool: str
    route: str
    proposer: str | None
    reason: str
    action: str

    @property
    def key(self) -> Key:
        return self.rule, self.pool, self.route, self.proposer


def advise(situation: Situation, holding: Collection[Key] = ()) -> list[Advice]:
    """What the rules say of a situation. holding: the keys of advice that stands, which gets SLACK."""
    found = []
    for rule, proposer, says in _rules(situation):
        key = (rule, situation.pool, situation.route, proposer)
        if words := says(SLACK if key in holding else 0.0):
            found.append(Advice(rule, "critical" if rule in CRITICAL else "warning", *key[1:], *words))
    return found


Words = tuple[str, str]  # reason, action
Says = Callable[[float], Words | None]  # of the slack


def _rules(s: Situation) -> Iterator[tuple[str, str | None, Says]]:
    yield "turn_on", None, partial(_turn_on, s)
    yield "turn_off", None, partial(_turn_off, s)
    yield "add_devices", None, partial(_add_devices, s)
    for proposer, acceptance in s.acceptance.items():
        yield "change_drafter", proposer, partial(_change_drafter, s, proposer, acceptance)
        yield "quarantine", proposer, partial(_quarantine, s, proposer, acceptance)


def _turn_on(s: Situation, slack: float) -> Words | None:
    late = _late("ITL", s.itl_p95_ms, s.itl_objective_ms, slack)
    limit = LOW_CONCURRENCY if s.crossover is None else s.crossover
    if s.mode != "off" or not late or s.concurrency is None or _no_gain(s):
        return None
    if s.concurrency >= limit * (1 + slack):
        return None
    return (
        f"{late}; speculation is off, and {s.concurrency:.1f} answers run, where up to {limit:.1f} it should pay",
        f"set the mode of pool {s.pool} to auto before adding devices",
    )


def _turn_off(s: Situation, slack: float) -> Words | None:
    if s.mode == "off":
        return None
    action = f"set the mode of pool {s.pool} to off"
    if _no_gain(s):
        return f"the last A/B test found speculation to run at {s.ratio} of the speed without", action
    if past := _past_crossover(s, slack):
        drafts = s.drafts_per_step or 0.0
        if drafts >= FEW_DRAFTS * (1 - slack):
            how = "" if s.mode == "auto" else ", or to auto, which drafts where it pays"
            return f"{past}, and {drafts:.0%} of the steps have drafts", action + how
    return None


def _add_devices(s: Situation, slack: float) -> Words | None:
    late = _late("ITL", s.itl_p95_ms, s.itl_objective_ms, slack) or _late(
        "TTFT", s.ttft_p95_ms, s.ttft_objective_ms, slack
    )
    past = _past_crossover(s, slack) or (f"speculation does not help (A/B test: {s.ratio})" if _no_gain(s) else None)
    if not (late and past):
        return None
    gain = "" if s.tokens_per_step is None else f"; a step adds {s.tokens_per_step:.2f} tokens to an answer"
    return f"{late}; {past}{gain}", f"add devices for pool {s.pool}, or let fewer answers run at once"


def _change_drafter(s: Situation, proposer: str, acceptance: Acceptance, slack: float) -> Words | None:
    if acceptance.num_trials < MIN_TRIALS or acceptance.alpha >= LOW_ALPHA * (1 + slack):
        return None
    return (
        f"alpha of {proposer} is {acceptance.alpha:.2f} over {acceptance.num_trials} trials; under {LOW_ALPHA} a draft "
        "adds less than one token to a step",
        f"take another drafter for route {s.route}, or leave {proposer} out of the proposers of pool {s.pool}",
    )


def _quarantine(s: Situation, proposer: str, acceptance: Acceptance, slack: float) -> Words | None:
    """Stands as long as the quarantine does; without one, until alpha is back at twice what began it."""
    if acceptance.is_quarantined:
        reason = f"{proposer} is in quarantine"
    elif acceptance.has_collapsed or (
        slack and acceptance.num_trials and acceptance.alpha < 2 * COLLAPSE * acceptance.alpha_before
    ):
        reason = (
            f"alpha of {proposer} is {acceptance.alpha:.2f} over {acceptance.num_trials} trials; it was "
            f"{acceptance.alpha_before:.2f} over {acceptance.num_trials_before}"
        )
    else:
        return None
    return reason, f"see what has changed in {proposer} or in the texts of route {s.route}; requests go on"


def _late(name: str, p95_ms: float | None, objective_ms: float | None, slack: float) -> str | None:
    if p95_ms is None or objective_ms is None or p95_ms <= objective_ms * (1 - slack):
        return None
    return f"{name} p95 is {p95_ms:.1f} ms, the objective {objective_ms:g} ms"


def _past_crossover(s: Situation, slack: float) -> str | None:
    if s.concurrency is None or s.crossover is None or s.concurrency < s.crossover * (1 - slack):
        return None
    return f"{s.concurrency:.1f} answers run, and no draft pays from {s.crossover:.1f} on"


def _no_gain(s: Situation) -> bool:
    return s.ratio is not None and s.ratio.value <= 1


def _wilson(num_accepted: int, num_trials: int) -> tuple[float, float]:
    """Wilson's interval for a share, COLLAPSE_ERRORS standard errors to each side (E. B. Wilson, 1927)."""
    if not num_trials:
        return 0.0, 1.0
    share, weight = num_accepted / num_trials, COLLAPSE_ERRORS**2 / num_trials
    middle = share + weight / 2
    half = math.sqrt(weight * (share * (1 - share) + weight / 4))
    return (middle - half) / (1 + weight), (middle + half) / (1 + weight)
