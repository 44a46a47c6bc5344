"""The governor of an engine: settings of pools, what was learned of costs and acceptance, and a plan for every step.

It is asked before a step and told after it. While no draft pays it rests for some steps (rest.py), in which nobody is
asked and nothing is drafted. Proposers whose drafts are free are judged even if they are not used, by comparing their
drafts with what came; those that run a model are *probed* now and then, paid from an allowance of PROBING of the time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from foredraft.core import Draft, Speculation
from foredraft.errors import ConfigError
from foredraft.governor.acceptance import Acceptance
from foredraft.governor.accounts import Accounts
from foredraft.governor.cost_curve import Curves
from foredraft.governor.plan import Candidate, Choice, Plan, Seat, Snapshot
from foredraft.governor.policy import START_GAIN, decide, turn_s, worth_going_on
from foredraft.governor.pools import DEFAULT, PoolConfig
from foredraft.governor.reach import Reach
from foredraft.governor.report import RouteReport, Switches, crossover
from foredraft.governor.rest import Rest
from foredraft.governor.shadows import Shadows
from foredraft.governor.shape import alphas, likely_tree, num_rows
from foredraft.governor.trials import SIBLING, grades, trials
from foredraft.governor.turns import GoesOn, Load, Run, Turn
from foredraft.governor.variety import Variety
from foredraft.steps import StepRecord

PROBING = 0.005  # share of the time that probes may cost
PROBE_DEPTH = 2
MOST_DEPTH = 8  # tokens that a proposer which runs a model may draft, one after the other
MOST_TOKENS = 16  # the same in all branches of a tree
HORIZON = 16  # steps over which reading up for a proposer has to pay
KEPT_STEPS = 8  # steps without a draft after which drafting counts as stopped
MOST_ALLOWANCE_S = 1.0
RECENT = 0.05  # weight of a step in what is known of the rate
LISTENING = 8  # steps without drafts for one that tells of costs
NO_PLAN = Plan({}, 0.0, 0.0, 0.0)
RECENT_STEPS = 32  # for which a bound on rows is kept


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
        self._measure = measure
        self._curves: Curves | None = None
        self._reach = Reach()
        self._shadows = Shadows()
        self._switches = Switches()
        self._accounts = Accounts()
        self._rest = Rest()
        self._variety = Variety()
        self._read: dict[int, dict[str, int]] = {}  # by context and proposer: tokens when it last ran
        self._step = 0
        self._last_draft = -KEPT_STEPS
        self._known_rows: dict[int, tuple[int, int]] = {}  # by sequences: when it was worked out, and most rows
        self._allowance_s = self._rate = self._turn_s = 0.0
        # Of the step that runs:
        self.is_listening = True  # whether `end` wants to hear of it: of each, but of few in a rest
        self._turns: Sequence[Turn] = ()
        self._snapshot: Snapshot | None = None
        self._plan: Plan | None = None
        self._is_probe = False

    @property
    def curves(self) -> Curves:
        """What passes cost; measured when first asked for."""
        if self._curves is None:
            self._curves = self._measure()
        return self._curves

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
        num_more = 0 if is_resting else self._most_rows(num_running) - num_running
        if not (is_resting or num_more):
            self._rest.begin(self._step)
        self.is_listening = num_more > 0 or self._step % LISTENING == 0
        return num_more

    def pass_over(self) -> None:
        """A step has ended that nobody listened to."""
        self._step += 1

    def _most_rows(self, num_sequences: int) -> int:
        """How many rows a pass for so many sequences may have: as many as would give the most tokens per second if all
        drafts were right. No more than `num_sequences` where even that would not pay."""
        asked, most = self._known_rows.get(num_sequences, (-RECENT_STEPS, 0))
        if self._step - asked >= RECENT_STEPS:
            cost = self.curves.target.cost
            # Between two knots the rate has no maximum, since the cost is a straight line.
            options = [num_sequences, *(rows for rows in cost.rows if rows > num_sequences)]
            most = max(options, key=lambda rows: rows / cost(rows))
            if most / cost(most) <= (1 + START_GAIN) * num_sequences / cost(num_sequences):
                most = num_sequences
            self._known_rows[num_sequences] = self._step, most
        return most

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
        probe = None if plan.choices else self._probe(snapshot, turns)
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
        if drafts or self._step % LISTENING == 0:
            self._learn_costs(record, load, drafts, runs)
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
        self._allowance_s = min(self._allowance_s + PROBING * seconds, MOST_ALLOWANCE_S)
        self._step += 1
        self._rest.step_ended(self._step, seconds)
        self._turns, self._snapshot, self._plan, self._is_probe = (), None, None, False

    def release(self, context_id: int) -> None:
        """A sequence has ended; forget what was its own."""
        self.acceptance.release(context_id)
        self._shadows.release(context_id)
        self._read.pop(context_id, None)

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
        return crossover(alphas, self._curves) if self._curves and alphas else None

    def _look(self, turns: Sequence[Turn], offers: Mapping[int, Sequence[Draft]], load: Load) -> Snapshot:
        return Snapshot(
            step=self._step,
            seats=tuple(self._seat(turn, offers.get(turn.context.id, ())) for turn in turns),
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

    def _seat(self, turn: Turn, offers: Sequence[Draft]) -> Seat:
        context, route = turn.context, turn.route
        survival = self.acceptance.survival
        ready = [
            Candidate(
                draft.proposer,
                survival(context.id, route, draft.proposer, grades(draft), draft.parents),
                is_ready=True,
            )
            for draft in offers
        ]
        return Seat(
            context_id=context.id,
            route=route,
            context_len=len(context.tokens),
            horizon=max(1, min(turn.num_left, HORIZON)),
            candidates=(*ready, *(run for name in turn.runners for run in self._runs(turn, name))),
        )

    def _runs(self, turn: Turn, name: str) -> Iterator[Candidate]:
        """A proposer that would have to run a model, with a chain and, where it may, with a tree."""
        context_id, route, num_tokens = turn.context.id, turn.route, len(turn.context.tokens)
        depth, width = min(turn.budget, MOST_DEPTH), turn.widths.get(name, 1)
        catch_up = max(0, num_tokens - self._num_read(context_id, name) - depth - 1)
        chances = self.acceptance.survival(context_id, route, name, [None] * depth)
        shapes: dict[int, tuple[tuple[float, ...], tuple[int, ...]]] = {1: (chances, ())}
        if width > 1:
            siblings = [self.acceptance.alpha(context_id, route, name, SIBLING, place) for place in range(len(chances))]
            shapes[width] = likely_tree(alphas(chances), siblings, width, min(turn.budget, MOST_TOKENS))
        for width, (survival, parents) in shapes.items():
            reach: tuple[float, ...] = ()
            if turn.runners[name]:
                survival, reach = self._reach.estimate(route, name, width, survival)
            yield Candidate(name, survival, False, reach, catch_up, width, parents)

    def _probe(self, snapshot: Snapshot, turns: Sequence[Turn]) -> Plan | None:
        """Let a proposer that runs a model draft a little although it does not seem to pay, if there is time for it."""
        options = [
            (seat, candidate, turn.budget)
            for seat, turn in zip(snapshot.seats, turns, strict=True)
            for candidate in seat.candidates
            if not candidate.is_ready and candidate.width == 1 and turn.budget
        ]
        if not options:
            return None
        seat, candidate, budget = min(options, key=lambda option: option[1].catch_up)
        cost, num_tokens = snapshot.draft_costs[candidate.proposer], len(snapshot.seats)
        num_drafted = min(PROBE_DEPTH, budget)
        draft_s = num_drafted * cost(1) + candidate.catch_up * cost.row_s
        plain_s, step_s = (
            snapshot.pass_cost(snapshot.num_rows + more, snapshot.sequence_context, snapshot.row_context)
            for more in (0, num_drafted)
        )
        if draft_s + step_s - plain_s > self._allowance_s:
            return None
        self._allowance_s -= draft_s + step_s - plain_s
        choices = {seat.context_id: Choice(candidate.proposer, num_drafted)}
        return Plan(choices, num_tokens + sum(candidate.survival[:num_drafted]), draft_s + step_s, plain_s)

    def _num_read(self, context_id: int, proposer: str) -> int:
        return self._read.get(context_id, {}).get(proposer, 0)

    def _learn_costs(
        self, record: StepRecord, load: Load, drafts: Mapping[int, Draft], runs: Mapping[str, Run]
    ) -> None:
        for name, run in runs.items():
            cost = self.curves.draft(name).cost
            rows = Counter[int]()  # of its passes, by depth
            for context_id in run.num_tokens:
                rows.update(num_rows(drafts[context_id]))
            expected = sum(cost(count) for count in rows.values())
            behind = 0
            for context_id, num_tokens in run.context_lens.items():
                behind += max(0, num_tokens - self._num_read(context_id, name) - 1)
                self._read.setdefault(context_id, {})[name] = num_tokens
            if (expected_s := expected + behind * cost.row_s) > 0:
                self.curves.draft(name).observe_ratio(run.seconds / expected_s)
        if load.has_prompt_rows:
            return  # rows whose logits nobody wants are cheaper
        context_len = {seat.context_id: seat.context_len for seat in self._snapshot.seats} if self._snapshot else {}
        row_context = load.row_context + sum(len(d.tokens) * context_len[id_] for id_, d in drafts.items())
        self.curves.target.observe(
            load.num_rows + sum(len(draft.tokens) for draft in drafts.values()),
            load.sequence_context,
            row_context,
            record.phase_seconds["forward"] + record.phase_seconds["decide"],
        )
