"""A smaller model of the same tokenizer drafts (Leviathan et al. 2211.17192, Chen et al. 2302.01318).

Its keys and values live in a paged cache of its own. Rows it drafted stay provisional until the target's verdict is in
`Context.tokens`; those that turned out right are then committed where they lie, the others are written over.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from foredraft.core import Context, Draft, FloatArray
from foredraft.errors import ConfigError
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import SequenceKV
from foredraft.proposers.base import DraftModel, GoesOn, Proposer, Resources, whole
from foredraft.proposers.tree import FedRows, Growth, grow, most_rows
from foredraft.proposers.trimmed import Outputs

MAX_ROWS = 512  # of one pass, so that catching up with a long prompt needs no more memory than a prefill chunk


@dataclass(eq=False)
class _State:
    kv: SequenceKV
    fed: FedRows = field(default_factory=FedRows)


class DraftModelProposer(Proposer):
    """Drafts greedily from its own law perturbed by the noise the target will use, so that under the exact rule it
    agrees as often as its law allows. Batched over sequences: one pass per depth."""

    name = "draft_model"
    ends_drafts = True
    grows_trees = True

    def __init__(self, model: DraftModel, eos_ids: Collection[int]) -> None:
        self._model = model
        self._eos_ids = eos_ids
        self._outputs = Outputs(model)
        self._states: dict[int, _State] = {}

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        return self.propose_while(contexts, budgets, whole)

    def propose_while(
        self, contexts: Sequence[Context], budgets: Sequence[int], goes_on: GoesOn, widths: Sequence[int] = ()
    ) -> list[Draft | None]:
        asked = zip(contexts, budgets, widths or [1] * len(contexts), strict=True)
        growths = [self._start(number, *each) for number, each in enumerate(asked)]
        active = [growth for growth in growths if growth]
        for growth in active:
            self._catch_up(growth.context, MAX_ROWS // len(active) or 1)
        self._outputs.see([growth.context for growth in active])
        grow(active, self._feed, self._eos_ids, goes_on)
        return [growth.draft(self.name) if growth else None for growth in growths]

    def release(self, context_id: int) -> None:
        state = self._states.pop(context_id, None)
        if state:
            self._model.kv.close(state.kv)
        self._outputs.release(context_id)

    def _start(self, number: int, context: Context, budget: int, width: int) -> Growth | None:
        """Commit what was drafted right, and reserve slots for what is to come; None where there is no room."""
        kv = self._model.kv
        state = self._states.get(context.id)
        if state is None:
            state = self._states[context.id] = _State(kv.open(context.tokens, context.scope))
        ahead = context.tokens[state.kv.length : -1]
        right = state.fed.matching(ahead)
        kv.commit(state.kv, ahead[: len(right)], right)
        state.fed.clear()
        budget = min(budget, self._model.decoder.arch.context_length - len(context.tokens))
        needed = len(context.tokens) - state.kv.length + most_rows(budget, width)
        return Growth(number, context, budget, width) if budget > 0 and kv.reserve(state.kv, needed) else None

    def _catch_up(self, context: Context, most_left: int) -> None:
        """Feed most of what came without this proposer; `_feed` takes the rest together with the others'."""
        kv = self._states[context.id].kv
        while len(context.tokens) - kv.length > most_left:
            behind = context.tokens[kv.length : -1][:MAX_ROWS]
            builder = BatchBuilder()
            builder.add(kv, behind)
            self._model.decoder.forward(builder.build(), self._model.kv)
            self._model.kv.commit(kv, behind)

    def _feed(self, growths: Sequence[Growth]) -> FloatArray:
        """One pass over the open nodes; what comes before the first of them is committed."""
        builder = BatchBuilder()
        for growth in growths:
            state = self._states[growth.context.id]
            if growth.guesses:
                state.fed.add(builder, state.kv, growth)
            else:
                behind = growth.context.tokens[state.kv.length :]
                builder.add(state.kv, behind, wanted=[len(behind) - 1])
        logits = self._outputs.logits(builder.build(), [(growth.context.id, len(growth.open)) for growth in growths])
        for growth in growths:
            if not growth.guesses:
                kv = self._states[growth.context.id].kv
                self._model.kv.commit(kv, growth.context.tokens[kv.length :])
        return logits


def create(resources: Resources) -> DraftModelProposer:
    """Raises ConfigError without a draft model."""
    if resources.draft is None:
        raise ConfigError("proposer draft_model needs a draft model; name one with --draft")
    return DraftModelProposer(resources.draft, resources.eos_ids)
