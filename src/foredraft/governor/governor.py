"""The governor of an engine: settings of pools, what was learned of costs and acceptance, and a plan for every step.

It is asked before a step and told after it. While no draft pays it rests for some steps (rest.py), in which nobody is
asked and nothing is drafted. Proposers whose drafts are free are judged even if they are not used, by comparing their
drafts with what came; those that run a model are *probed* now and then, for a small share of the time (probes.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from foredraft.core import Draft, Speculation
from foredraft.errors import ConfigError
from foredraft.governor.acceptance import Acceptance
from foredraft.governor.accounts import Accounts
from foredraft.governor.cost_curve import Curves
from foredraft.governor.costs import Costs
from foredraft.governor.plan import Plan, Snapshot
from foredraft.governor.policy import decide, turn_s, worth_going_on, worth_of_row
from foredraft.governor.pools import DEFAULT, PoolConfig
from foredraft.governor.probes import Probes
from foredraft.governor.reach import Reach
from foredraft.governor.report import RouteReport, Switches, crossover
from foredraft.governor.rest import Rest
from foredraft.governor.seating import Seating
from foredraft.governor.shadows import Shadows
from foredraft.governor.trials import grades, trials
from foredraft.governor.turns import GoesOn, Load, Run, Turn
from foredraft.governor.variety import Variety
from foredraft.steps import StepRecord

KEPT_STEPS = 8  # steps without a draft after which drafting counts as stopped
RECENT = 0.05  # weight of a step in what is known of the rate
LISTENING = 8  # steps without drafts for one that tells of costs
NO_PLAN = Plan({}, 0.0, 0.0, 0.0)


class Governor:
    """Used by the engine's thread alone, like the engine.

    pools: settings by name; an entry may be replaced between steps and holds from the next one on. routes: the pool of
    each route; a route that is not there belongs to the default pool. measure: makes the cost curves, called before the
    first decision. quarantined: (route, proposer) pairs that draft no more until they are taken out again. on_plan:
    hear of every decision, before the step runs.

    Raises:
        ConfigError: a route leads to a pool that is not there.
    """

    def __init__(
        self,
        pools: Mapping[str, PoolConfig] | None = None,
        routes: Mapping[str, str] | None = None,
        measure: Callable[[], Curves] = Curves.unmeasured,
    ) -> None:
        self.pools = {DEFAULT: PoolConfig(), **(pools or {})}
        self.routes = {DEFAULT: DEFAULT, **(routes or {})}
        for route, pool in self.routes.items():
            if pool not in self.pools:
                raise ConfigError(f"route {route} leads to pool {pool}; known are {', '.join(self.pools)}", route)
        self.quarantined: set[tuple[str, str]] = set()
        self.on_plan: list[Callable[[Snapshot, Plan], None]] = []
        self.acceptance = Acceptance()
        self._costs = Costs(measure)
        self._reach = Reach()
        self._seating = Seating(self.acceptance, self._reach, self._costs)
        self._shadows = Shadows()
        self._switches = Switches()
        self._accounts = Accounts()
        self._rest = Rest()
        self._probes = Probes()
        self._variety = Variety()
        self._step = 0
        self._last_draft = -KEPT_STEPS
        self._rate = self._turn_s = 0.0
        # Of the step that runs:
        self.is_listening = True  # whether `end` wants to hear of it: of each, but of few in a rest
        self._turns: Sequence[Turn] = ()
        self._snapshot: Snapshot | None = None
        self._plan: Plan | None = None
        self._is_probe = False

    @property
    def curves(self) -> Curves:
        """What passes cost; measured when first asked for."""
        return self._costs.curves

    def pool_of(self, route: str) -> str:
        return self.routes.get(route, DEFAULT)

    def mode(self, route: str, asked: Speculation) -> str:
        """How a sequence is drafted for now: off where its pool is off, as its pool is where it leaves that open, else
        as it asks itself."""
        mode = self.pools[self.pool_of(route)].mode
        return mode if mode == "off" or asked.mode == "auto" else asked.mode

    def begin(self, num_running: int) -> int:
        """A step begins in which somebody leaves drafts to the governor. num_running: sequences that run.

        Returns how many rows drafts may add to theirs: none where it rests, or where not even right drafts would pay.
        """
        is_resting = self._rest.is_on(self._step)
        num_more = 0 if is_resting else self._costs.most_rows(num_running, self._step) - num_running
        if not (is_resting or num_more):
            self._rest.begin(self._step)
        self.is_listening = num_more > 0 or self._step % LISTENING == 0
        return num_more

    def pass_over(self) -> None:
        """A step has ended that nobody listened to."""
        self._step += 1

    def judge(self, turns: Sequence[Turn]) -> None:
        """Before anybody is asked: learn from the drafts of earlier steps that were not used."""
        for turn in turns:
            self._shadows.judge(turn.context, self.acceptance)

    def plan(self, turns: Sequence[Turn], offers: Mapping[int, Sequence[Draft]], load: Load) -> Plan:
        """Decide about a step. offers: by context id, drafts that are there already because they are free."""
        self._turns, self._snapshot, self._plan = turns, None, None
        if not offers and not self.on_plan and not any(turn.runners for turn in turns):
            return NO_PLAN  # which is the most frequent case where text is free, and so not looked at any closer
        snapshot = self._look(turns, offers, load)
        self._turn_s = turn_s(snapshot)
        plan = decide(snapshot)
        probe = None if plan.choices else self._probes.plan(snapshot)
        self._is_probe, plan = probe is not None, probe or self._variety.vary(snapshot, plan)
        for turn in turns:
            if turn.context.id not in plan.choices:
                for draft in offers.get(turn.context.id, ()):
                    self._shadows.keep(turn.context, turn.route, draft)
        self._snapshot, self._plan = snapshot, plan
        for hear in self.on_plan:
            hear(snapshot, plan)
        return plan

    def goes_on(self, proposer: str, turns: Sequence[Turn]) -> GoesOn:
        """For drafts that are being made for these turns: which of them are worth another pass."""
        snapshot, plan = self._snapshot, self._plan
        assert snapshot is not None
        assert plan is not None
        chance = self.acceptance.chance

        def survival(number: int, grades: Sequence[int]) -> float:
            context_id, route = turns[number].context.id, turns[number].route
            chances = (chance(context_id, route, proposer, grade, depth) for depth, grade in enumerate((*grades, None)))
            return math.prod(chances)

        return lambda drafts: worth_going_on(
            snapshot,
            plan,
            proposer,
            {number: [survival(number, grades) for grades in paths] for number, paths in drafts.items()},
        )

    def keep(self, turn: Turn, draft: Draft) -> Draft:
        """As much of a tree that was made for a turn as is worth its rows; chains end as they grow."""
        if draft.is_chain or draft.probs is not None:
            return draft
        assert self._snapshot is not None
        assert self._plan is not None
        least = worth_of_row(self._snapshot, self._plan)
        survival: list[float] = []
        for parent, depth, grade in zip(draft.parents, draft.depths, grades(draft), strict=True):
            # The mean, not a cautious chance: a sibling that is cut before it is known would never be known.
            alpha = self.acceptance.alpha(turn.context.id, turn.route, draft.proposer, grade, depth)
            survival.append(alpha * (survival[parent] if parent >= 0 else 1.0))
        return draft.cut(max(place for place, chance in enumerate(survival, 1) if place == 1 or chance >= least))

    def spent(self, seconds: float) -> None:
        """Deciding took so long, asking for free drafts included."""
        plan, num_seats = self._plan, len(self._turns)
        saved_s = plan.expected_tokens / num_seats * plan.plain_s - plan.step_s if plan and plan.choices else 0.0
        num_new = sum(turn.context.prompt_len == len(turn.context.tokens) for turn in self._turns)
        self._rest.decided(seconds, saved_s, num_new / num_seats, self._turn_s)

    def learned(self, seconds: float) -> None:
        """`end` took so long, after a step without drafts."""
        self._rest.owe(seconds)

    def end(self, record: StepRecord, load: Load, drafts: Mapping[int, Draft], runs: Mapping[str, Run]) -> None:
        """Learn from a step in which some sequences left their drafts to the governor.

        load: of the pass; drafts: those that the plan led to; runs: of the proposers that ran a model.
        """
        seconds = record.seconds
        num_tokens = sum(record.num_tokens.values())
        self._costs.learn_runs(runs)
        if drafts or self._step % LISTENING == 0:
            self._costs.learn_pass(record, load, drafts, self._snapshot)
        for outcome in record.drafts:
            draft = drafts.get(outcome.context_id)
            if draft is not None:
                context_id, route, name = outcome.context_id, record.routes[outcome.context_id], draft.proposer
                tried = list(trials(draft, outcome.path, outcome.is_rejected))
                self.acceptance.observe(context_id, route, name, tried)
                if name in runs and self._plan:
                    choice = self._plan.choices[context_id]
                    budget = runs[name].budgets[context_id]
                    self._reach.observe(route, name, choice.width, budget, len(draft.tokens), outcome.path)
        drafted = () if self._is_probe else record.drafts  # a probe decides nothing
        drafting = {record.routes[outcome.context_id] for outcome in drafted if outcome.context_id in drafts}
        for route in set(record.routes.values()):
            self._switches.step(route, self._step, route in drafting)
        if drafting:
            self._last_draft = self._step
        plan = self._plan
        if plan and plan.choices:
            self._accounts.settle(self._turns, record.num_tokens, plan.step_s - plan.plain_s, self._turn_s)
        self._rate += (RECENT if self._rate else 1.0) * (num_tokens / seconds - self._rate)
        self._probes.earn(seconds)
        self._step += 1
        self._rest.step_ended(self._step, seconds)
        self._turns, self._snapshot, self._plan, self._is_probe = (), None, None, False

    def release(self, context_id: int) -> None:
        """A sequence has ended; forget what was its own."""
        self.acceptance.release(context_id)
        self._shadows.release(context_id)
        self._costs.release(context_id)

    def report(self) -> list[RouteReport]:
        """What is known of every proposer on every route that has been drafted for. Any thread may ask."""
        return [
            RouteReport(
                route=route,
                pool=self.pool_of(route),
                proposer=proposer,
                alpha=self.acceptance.mean(route, proposer),
                num_trials=self.acceptance.trials(route, proposer),
                calibration_error=calibration.error,
                num_switches=self._switches.count.get(route, 0),
                is_quarantined=(route, proposer) in self.quarantined,
            )
            for (route, proposer), calibration in list(self.acceptance.calibration.items())
        ]

    def crossover(self, route: str) -> float | None:
        """How many sequences have to run for no draft to pay on a route, by what is known of its proposers; None where
        nothing is known yet, or drafting always pays. Measures nothing."""
        names = [name for other, name in self.acceptance.calibration if other == route]
        alphas = {name: alpha for name in names if (alpha := self.acceptance.mean(route, name)) is not None}
        return crossover(alphas, self._costs.known) if self._costs.known and alphas else None

    def _look(self, turns: Sequence[Turn], offers: Mapping[int, Sequence[Draft]], load: Load) -> Snapshot:
        return Snapshot(
            step=self._step,
            seats=tuple(self._seating.seat(turn, offers.get(turn.context.id, ())) for turn in turns),
            credits_s=self._accounts.of(turns),
            num_rows=load.num_rows,
            sequence_context=load.sequence_context,
            row_context=load.row_context,
            other_tokens=load.other_tokens,
            has_prompt_rows=load.has_prompt_rows,
            pass_cost=self.curves.target.cost,
            draft_costs={
                name: self.curves.draft(name).cost for name in sorted({name for turn in turns for name in turn.runners})
            },
            overhead_s=self._rest.overhead_s,
            rate=self._rate,
            is_drafting=self._step - self._last_draft < KEPT_STEPS,
        )
