"""Who drafts in a step: proposers in a fixed order where speculation is on, as the governor plans where it is auto.

A proposer that fails is reported and drafts no more for the sequences it was asked about; their requests go on.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from foredraft.constraints.pruning import pruned
from foredraft.core import Context, Draft, FloatArray, Verdict
from foredraft.engine.scheduler import Slice
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.governor.governor import Governor
from foredraft.governor.plan import Choice
from foredraft.governor.shape import num_rows
from foredraft.governor.turns import Load, Run, Runner, Turn
from foredraft.proposers.base import GoesOn, Proposer, check_draft, whole
from foredraft.steps import StepRecord

log = logging.getLogger("foredraft")


class Drafting:
    """The drafts of one engine. Once a step come `begin`, `budget` for each sequence, `draft` and `end`."""

    def __init__(
        self,
        proposers: Mapping[str, Proposer],
        governor: Governor,
        vocab_size: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._proposers, self._governor, self._vocab_size, self._clock = proposers, governor, vocab_size, clock
        self._broken: set[tuple[int, str]] = set()  # (context, proposer): a proposer that raised drafts no more for it
        self._asked: set[int] = set()  # contexts that a proposer may hold something of
        self._readers = {name for name, proposer in proposers.items() if proposer.taps}
        self._taps = sorted({tap for name in self._readers for tap in proposers[name].taps})
        self._runners = {
            name: Runner(each.ends_drafts, each.drafts_at_once, each.most_catch_up)
            for name, each in proposers.items()
            if not each.is_free
        }
        self.begin(())

    def begin(self, running: Sequence[EngineSequence]) -> None:
        """A step begins, with these sequences running."""
        self._running = running
        self._crowds: Counter[str] | None = None  # running sequences by pool, counted when first asked for
        self._reasons: dict[int, str] = {}  # why there is no budget, where that is known beforehand
        self._governed: set[int] = set()  # contexts that leave their drafts to the governor
        self._num_rows: int | None = None  # that it allows for drafts, where it was asked
        self._load: Load | None = None
        self._planned: dict[int, Draft] = {}
        self._runs: dict[str, Run] = {}
        self._released: list[int] = []  # contexts that ended in this step

    def budget(self, sequence: EngineSequence) -> int:
        """How many tokens may be drafted for a sequence that decides a token in this step."""
        governor, context_id = self._governor, sequence.context.id
        mode, pool_name = governor.mode(sequence.route, sequence.speculation), governor.pool_of(sequence.route)
        pool = governor.pools[pool_name]
        sequence.context.shares = pool_name if pool.share_outputs and mode != "off" else ""
        if mode == "off" or not sequence.proposers:
            self._reasons[context_id] = "off" if mode == "off" else "no_proposer"
            return 0
        most = sequence.speculation.most_in(mode)
        if mode == "auto":
            self._governed.add(context_id)
            if self._num_rows is None:
                self._num_rows = governor.begin(len(self._running))
            if most and not self._num_rows:
                self._reasons[context_id] = "not_worth_it"
                return 0
        if pool.max_concurrency is not None and self._num_running(sequence.route) > pool.max_concurrency:
            self._reasons[context_id] = "crowded"
            return 0
        if pool.k_max is not None:
            most = pool.k_max if sequence.speculation.k is None else min(most, pool.k_max)
        if mode == "auto" and self._num_rows is not None:
            most = min(most, self._num_rows)
        return min(most, sequence.room)

    def draft(self, slices: Sequence[Slice]) -> dict[int, Draft]:
        """Drafts by context id, for those that get one."""
        drafting = [part for part in slices if part.draft_budget]
        governed = [part for part in drafting if part.sequence.context.id in self._governed]
        drafts = self._in_order([part for part in drafting if part.sequence.context.id not in self._governed])
        if self._governed and self._governor.is_listening:
            self._load = _load(slices, drafts)
        if governed:
            deciding = [part for part in slices if part.is_complete and part.sequence.context.id not in drafts]
            drafts |= self._by_plan(governed, deciding)
        return drafts

    def taps(self, slices: Sequence[Slice]) -> Sequence[int]:
        """After which layers a pass has to keep its hidden states: for nobody who reads them, none."""
        return self._taps if any(self._reading(part.sequence) for part in slices) else ()

    def feed(self, sequence: EngineSequence, start: int, features: FloatArray, rows: Sequence[int]) -> None:
        """Rows of a sequence's pass became final, from position `start` on: show them to those who read them.

        features: of all its rows in the pass, [rows, len(taps) * hidden].
        """
        for name in self._reading(sequence) if features.shape[1] else ():
            proposer = self._proposers[name]
            by_tap = features.reshape(len(features), len(self._taps), -1)
            own = by_tap[np.ix_(rows, [self._taps.index(tap) for tap in proposer.taps])]
            self._asked.add(sequence.context.id)
            try:
                proposer.feed(sequence.context.id, start, own.reshape(len(rows), -1))
            except Exception:
                log.exception("proposer %s failed and drafts no more for a sequence", name)
                self._broken.add((sequence.context.id, name))

    def _reading(self, sequence: EngineSequence) -> list[str]:
        """Of a sequence's proposers, those that read the target's hidden states and may draft for it."""
        if not self._readers or self._governor.mode(sequence.route, sequence.speculation) == "off":
            return []
        return [name for name in sequence.proposers if name in self._readers and self._may(sequence, name)]

    def end(self, record: StepRecord) -> None:
        """The step is over; the governor learns from it."""
        if self._load is not None:
            start = self._clock()
            self._governor.end(record, self._load, self._planned, self._runs)
            if not self._planned:
                self._governor.learned(self._clock() - start)
        elif self._governed:
            self._governor.pass_over()
        for context_id in self._released:  # of whose last drafts it has just learned
            self._governor.release(context_id)

    def reason(self, part: Slice) -> str:
        """Why a slice that decided a token had no draft: one of steps.NO_DRAFT_REASONS."""
        sequence, context_id = part.sequence, part.sequence.context.id
        if context_id in self._reasons:
            return self._reasons[context_id]
        if not part.draft_budget:
            return "no_budget"
        if all((context_id, name) in self._broken for name in sequence.proposers):
            return "failed"
        return "no_match"

    def observe(self, draft: Draft, context: Context, verdict: Verdict) -> None:
        """Tell a draft's proposer what became of it."""
        try:
            self._proposers[draft.proposer].observe(context, draft, verdict)
        except Exception:
            log.exception("proposer %s failed and drafts no more for a sequence", draft.proposer)
            self._broken.add((context.id, draft.proposer))

    def learn(self, sequence: EngineSequence) -> None:
        """A sequence has come to its end."""
        for name in sequence.proposers if sequence.context.shares else ():
            try:
                self._proposers[name].learn(sequence.context)
            except Exception:
                log.exception("proposer %s failed to learn from a sequence", name)

    def release(self, sequence: EngineSequence) -> None:
        """A sequence has ended or was preempted."""
        context_id = sequence.context.id
        if context_id not in self._asked:
            return
        self._asked.discard(context_id)
        self._governor.release(context_id)
        self._released.append(context_id)
        for name in sequence.proposers:
            try:
                self._proposers[name].release(context_id)
            except Exception:
                log.exception("proposer %s failed to release a sequence", name)
            self._broken.discard((context_id, name))

    def _num_running(self, route: str) -> int:
        if self._crowds is None:
            self._crowds = Counter(self._governor.pool_of(sequence.route) for sequence in self._running)
        return self._crowds[self._governor.pool_of(route)]

    def _in_order(self, slices: Sequence[Slice]) -> dict[int, Draft]:
        """Ask each sequence's proposers in its order until one has a draft; those who ask the same one ask together."""
        drafts: dict[int, Draft] = {}
        for rank in range(max((len(s.sequence.proposers) for s in slices), default=0)):
            asking: dict[str, list[Slice]] = {}
            for part in slices:
                names = part.sequence.proposers
                if part.sequence.context.id not in drafts and rank < len(names):
                    asking.setdefault(names[rank], []).append(part)
            for name, parts in asking.items():
                able = [part for part in parts if self._may(part.sequence, name)]
                widths = [self._width(part.sequence, "on") for part in able]
                drafts |= self._ask(name, [p.sequence.context for p in able], [p.draft_budget for p in able], widths)
        return drafts

    def _width(self, sequence: EngineSequence, mode: str) -> int:
        """How many children a node of a draft may have."""
        context = sequence.context
        has_chains_only = context.rule == "block" and context.params.temperature > 0
        return 1 if has_chains_only else sequence.speculation.width_in(mode)

    def _by_plan(self, slices: Sequence[Slice], deciding: Sequence[Slice]) -> dict[int, Draft]:
        """Make the drafts that are free, let the governor choose, then make those of the others that it chose.

        slices: that leave their drafts to the governor; deciding: all that have no draft and decide a token.
        """
        start = self._clock()
        assert self._load is not None
        turns = [self._turn(part) for part in deciding]
        self._governor.judge(turns)
        offers: dict[int, list[Draft]] = {}
        for name in dict.fromkeys(name for part in slices for name in part.sequence.proposers):
            if self._proposers[name].is_free:
                able = [s for s in slices if name in s.sequence.proposers and self._may(s.sequence, name)]
                made = self._ask(name, [s.sequence.context for s in able], [s.draft_budget for s in able], ())
                for context_id, draft in made.items():
                    offers.setdefault(context_id, []).append(draft)
        plan = self._governor.plan(turns, offers, self._load)
        self._governor.spent(self._clock() - start)
        running: dict[str, list[Turn]] = {}
        for turn in turns:
            choice = plan.choices.get(turn.context.id)
            if turn.context.id not in self._governed:
                continue
            if choice is None:
                has_candidate = turn.context.id in offers or turn.runners
                self._reasons[turn.context.id] = "not_worth_it" if has_candidate else "no_match"
            elif ready := [d for d in offers.get(turn.context.id, ()) if d.proposer == choice.proposer]:
                self._planned[turn.context.id] = ready[0].cut(choice.num_tokens)
            else:
                running.setdefault(choice.proposer, []).append(turn)
        for name, asking in running.items():
            self._planned |= self._run(name, asking, [plan.choices[turn.context.id] for turn in asking])
        return self._planned

    def _turn(self, part: Slice) -> Turn:
        sequence = part.sequence
        budget = part.draft_budget if sequence.context.id in self._governed else 0
        names = sequence.proposers if budget else ()
        runners = {name: self._runners[name] for name in names if name in self._runners and self._may(sequence, name)}
        width = self._width(sequence, "auto")
        widths = {name: width for name in runners if self._proposers[name].grows_trees}
        return Turn(sequence.context, sequence.route, budget, runners, sequence.room + 1, widths)

    def _run(self, name: str, turns: Sequence[Turn], choices: Sequence[Choice]) -> dict[int, Draft]:
        """Drafts of a proposer that runs a model, timed."""
        contexts = [turn.context for turn in turns]
        budgets, widths = [choice.num_tokens for choice in choices], [choice.width for choice in choices]
        start = self._clock()
        drafts = self._ask(name, contexts, budgets, widths, self._governor.goes_on(name, turns))
        at_once, rows = self._runners[name].drafts_at_once, Counter[int]()
        for draft in drafts.values():
            rows.update({0: 1} if at_once else num_rows(draft))
        self._runs[name] = Run(
            runner=self._runners[name],
            budgets={turn.context.id: budget for turn, budget in zip(turns, budgets, strict=True)},
            num_rows=rows,
            context_lens={context.id: len(context.tokens) for context in contexts},
            seconds=self._clock() - start,
        )
        keep = self._governor.keep
        return {t.context.id: keep(t, drafts[t.context.id]) for t in turns if t.context.id in drafts}

    def _may(self, sequence: EngineSequence, name: str) -> bool:
        governor = self._governor
        allowed = governor.pools[governor.pool_of(sequence.route)].proposers
        return (
            (not allowed or name in allowed)
            and (sequence.context.id, name) not in self._broken
            and (sequence.route, name) not in governor.quarantined
        )

    def _ask(
        self,
        name: str,
        contexts: Sequence[Context],
        budgets: Sequence[int],
        widths: Sequence[int],
        goes_on: GoesOn = whole,
    ) -> dict[int, Draft]:
        """A proposer's drafts, checked, without what a constraint forbids anyway."""
        if not contexts:
            return {}
        self._asked.update(context.id for context in contexts)
        try:
            drafts: dict[int, Draft] = {}
            proposer = self._proposers[name]
            trees = {"widths": widths} if proposer.grows_trees else {}
            offers = proposer.propose_while(contexts, budgets, goes_on, **trees)
            for context, budget, offer in zip(contexts, budgets, offers, strict=True):
                if offer and offer.tokens:
                    check_draft(offer, name, context, budget, self._vocab_size)
                    draft = pruned(offer, context.constraint) if context.constraint else offer
                    if draft.tokens:
                        drafts[context.id] = draft
            return drafts
        except Exception:
            log.exception("proposer %s failed and drafts no more for %d sequences", name, len(contexts))
            self._broken |= {(context.id, name) for context in contexts}
            return {}


def _load(slices: Sequence[Slice], drafts: Mapping[int, Draft]) -> Load:
    """The pass without the drafts that the governor decides about."""
    num_rows = sequence_context = row_context = 0
    has_prompt_rows = False
    for part in slices:
        kv, draft = part.sequence.kv, drafts.get(part.sequence.context.id)
        assert kv is not None
        rows = part.num_tokens + (len(draft.tokens) if draft else 0)
        num_rows += rows
        sequence_context += kv.length
        row_context += rows * kv.length
        has_prompt_rows |= part.num_tokens > 1
    return Load(num_rows, sequence_context, row_context, float(len(drafts)), has_prompt_rows)
