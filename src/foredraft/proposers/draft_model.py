"""A smaller model of the same tokenizer drafts (Leviathan et al. 2211.17192, Chen et al. 2302.01318).

Its keys and values live in a paged cache of its own. Rows it drafted stay provisional until the target's verdict is in
`Context.tokens`; those that turned out right are then committed where they lie, the others are written over.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from foredraft.core import Context, Draft, FloatArray
from foredraft.errors import ConfigError
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import SequenceKV
from foredraft.proposers.base import DraftModel, GoesOn, Proposer, Resources, whole
from foredraft.proposers.chains import MAX_ROWS, Chain, Drawing


@dataclass(eq=False)
class _State:
    """`fed` are the tokens of provisional rows, in slot order, that follow `kv.tokens`."""

    kv: SequenceKV
    fed: list[int] = field(default_factory=list)


@dataclass(eq=False)
class _Chain(Chain):
    state: _State = field(kw_only=True)


class DraftModelProposer(Proposer):
    """Drafts chains, batched over sequences: one pass per depth."""

    name = "draft_model"
    ends_drafts = True

    def __init__(self, model: DraftModel, eos_ids: Collection[int]) -> None:
        self._model = model
        self._drawing = Drawing(model.allowed, eos_ids)
        self._states: dict[int, _State] = {}

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        return self.propose_while(contexts, budgets, whole)

    def propose_while(self, contexts: Sequence[Context], budgets: Sequence[int], goes_on: GoesOn) -> list[Draft | None]:
        chains = [self._start(number, *each) for number, each in enumerate(zip(contexts, budgets, strict=True))]
        started = [chain for chain in chains if chain]
        for chain in started:
            self._catch_up(chain, MAX_ROWS // len(started) or 1)
        self._drawing.grow(started, self._logits, goes_on)
        return [chain.draft(self.name) if chain else None for chain in chains]

    def release(self, context_id: int) -> None:
        state = self._states.pop(context_id, None)
        if state:
            self._model.kv.close(state.kv)

    def _start(self, number: int, context: Context, budget: int) -> _Chain | None:
        """Commit what was drafted right, and reserve slots for what is to come; None where there is no room."""
        kv = self._model.kv
        state = self._states.get(context.id)
        if state is None:
            state = self._states[context.id] = _State(kv.open(context.tokens, context.scope))
        ahead = context.tokens[state.kv.length : -1]
        right = 0
        while right < min(len(ahead), len(state.fed)) and ahead[right] == state.fed[right]:
            right += 1
        kv.commit(state.kv, ahead[:right])
        state.fed.clear()
        budget = min(budget, self._model.decoder.arch.context_length - len(context.tokens))
        needed = len(context.tokens) - state.kv.length + budget - 1
        return _Chain(number, context, budget, state=state) if budget > 0 and kv.reserve(state.kv, needed) else None

    def _catch_up(self, chain: _Chain, most_left: int) -> None:
        """Feed most of what came without this proposer; `_logits` feeds the rest together with the others."""
        kv, tokens = chain.state.kv, chain.context.tokens
        while len(tokens) - kv.length > most_left:
            behind = tokens[kv.length : -1][:MAX_ROWS]
            builder = BatchBuilder()
            builder.add(kv, behind)
            self._model.decoder.forward(builder.build(), self._model.kv)
            self._model.kv.commit(kv, behind)

    def _logits(self, chains: Sequence[_Chain]) -> FloatArray:
        """One pass over the chains: logits of the next token of each."""
        builder = BatchBuilder()
        for chain in chains:
            state = chain.state
            rows = chain.tokens[-1:] or chain.context.tokens[state.kv.length :]
            builder.add(state.kv, rows, wanted=[len(rows) - 1], num_fed=len(state.fed))
        logits = self._model.decoder.forward(builder.build(), self._model.kv)
        for chain in chains:
            if chain.tokens:
                chain.state.fed.append(chain.tokens[-1])
            else:
                self._model.kv.commit(chain.state.kv, chain.context.tokens[chain.state.kv.length :])
        return self._to_target(logits)

    def _to_target(self, logits: FloatArray) -> FloatArray:
        """Draft logits [rows, draft vocabulary] over the target's vocabulary, padding at minus infinity."""
        allowed = self._model.allowed
        out = np.full((len(logits), len(allowed)), -np.inf, np.float32)
        shared = min(len(allowed), logits.shape[1])
        np.copyto(out[:, :shared], logits[:, :shared], where=allowed[:shared])
        return out


def create(resources: Resources) -> DraftModelProposer:
    """Raises ConfigError without a draft model."""
    if resources.draft is None:
        raise ConfigError("proposer draft_model needs a draft model; name one with --draft")
    return DraftModelProposer(resources.draft, resources.eos_ids)
