"""A network drafts that goes on from the target's hidden states: an EAGLE head, an MTP block (drafters/recurrent.py).

Rows of its cache whose hidden state is the target's are committed; those it drafts from its own hidden states are
provisional and written over, once the target's are there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from foredraft.core import Context, Draft, FloatArray
from foredraft.drafters.recurrent import Recurrent
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV, SequenceKV
from foredraft.proposers.base import GoesOn, Proposer, Resources, whole
from foredraft.proposers.features import MOST, Features
from foredraft.proposers.tree import FedRows, Growth, grow, most_rows

log = logging.getLogger("foredraft")

MAX_ROWS = 512  # of one pass, so that catching up with a long prompt needs no more memory than a prefill chunk


@dataclass(eq=False)
class _State:
    """What is known of a sequence.

    origin: the position of its cache's first row. hidden: by node of the draft in the making, what its children go on
    from, [hidden].
    """

    features: Features = field(default_factory=Features)
    kv: SequenceKV = field(default_factory=SequenceKV)
    origin: int = 0
    fed: FedRows = field(default_factory=FedRows)
    hidden: dict[int, FloatArray] = field(default_factory=dict)

    @property
    def num_read(self) -> int:
        """Positions whose features the cache has read, those before its first row among them."""
        return self.origin + self.kv.length


class RecurrentProposer(Proposer):
    """Drafts chains and trees, batched over sequences: one pass of the network per depth.

    Features are kept as they come and read when it is asked. Where some are missing (they were found in the prefix
    cache, or too many came since), its cache begins anew behind them, unless it shares these rows itself.
    """

    ends_drafts = True
    most_catch_up = MOST
    grows_trees = True

    def __init__(self, network: Recurrent, kv: PagedKV, eos_ids: Collection[int]) -> None:
        self.name, self.taps = network.kind, network.taps
        self._network, self._kv, self._eos_ids = network, kv, eos_ids
        self._states: dict[int, _State] = {}
        self._has_warned = False

    def feed(self, context_id: int, start: int, features: FloatArray) -> None:
        self._states.setdefault(context_id, _State()).features.add(start, features)

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
        grow(active, self._feed, self._eos_ids, goes_on)
        return [growth.draft(self.name) if growth else None for growth in growths]

    def release(self, context_id: int) -> None:
        state = self._states.pop(context_id, None)
        if state:
            self._kv.close(state.kv)

    def _start(self, number: int, context: Context, budget: int, width: int) -> Growth | None:
        """Reserve rows for what is to come; None where features, positions or room are lacking."""
        state, num_final = self._states.get(context.id), len(context.tokens) - 1
        if state is None or state.features.end != num_final or num_final in (state.num_read, state.features.start):
            return None
        if state.num_read < state.features.start or not state.num_read:
            self._begin(state, context)
        state.fed.clear()
        state.hidden.clear()
        # As many rows as final positions, and one for each drafted token but the last.
        budget = min(budget, self._network.max_positions - (num_final - state.origin) + 1)
        if budget < 1:
            self._warn()
            return None
        needed = num_final - state.num_read + most_rows(budget, width)
        return Growth(number, context, budget, width) if self._kv.reserve(state.kv, needed) else None

    def _begin(self, state: _State, context: Context) -> None:
        """Open a cache at the first position whose features are there, or one that shares all rows before it."""
        self._kv.close(state.kv)
        # A row is a function of the tokens up to its own, of which the first is in no row: it is part of the scope.
        kv, origin = self._kv.open(context.tokens[1:], f"{context.tokens[0]} {context.scope}"), 0
        if kv.length < state.features.start:
            self._kv.close(kv)
            origin = state.features.start
            kv = self._kv.open((), f"from {origin} of {context.id}")  # shared with nobody
        state.kv, state.origin = kv, origin

    def _catch_up(self, context: Context, most_left: int) -> None:
        """Read most of what came without this proposer; `_feed` reads the rest together with the others."""
        state = self._states[context.id]
        while (behind := len(context.tokens) - 1 - state.num_read) > most_left:
            builder, count = BatchBuilder(), min(behind - 1, MAX_ROWS)
            hidden = self._add_final(builder, context, count)
            self._network.forward(builder.build(), hidden, self._kv)
            self._commit(state, context, count)

    def _feed(self, growths: Sequence[Growth]) -> FloatArray:
        """One pass over the open nodes; what comes before the first of them is committed."""
        builder, inputs = BatchBuilder(), []
        for growth in growths:
            state = self._states[growth.context.id]
            if growth.guesses:
                state.fed.add(builder, state.kv, growth)
                inputs.append(np.stack([state.hidden[growth.parents[node]] for node in growth.open]))
            else:
                behind = len(growth.context.tokens) - 1 - state.num_read
                inputs.append(self._add_final(builder, growth.context, behind, wants_last=True))
        logits, hidden = self._network.forward(builder.build(), np.concatenate(inputs), self._kv)
        rows = iter(hidden)
        for growth in growths:
            state = self._states[growth.context.id]
            state.hidden.update((node, next(rows)) for node in growth.open)
            if not growth.guesses:
                self._commit(state, growth.context, len(growth.context.tokens) - 1 - state.num_read)
        return self._to_target(logits)

    def _add_final(self, builder: BatchBuilder, context: Context, count: int, wants_last: bool = False) -> FloatArray:
        """Add the next rows with hidden states of the target, which are returned."""
        state = self._states[context.id]
        start = state.num_read
        builder.add(state.kv, context.tokens[start + 1 : start + 1 + count], [count - 1] if wants_last else ())
        return self._network.fuse(state.features.get(start, count))

    def _commit(self, state: _State, context: Context, count: int) -> None:
        start = state.num_read
        self._kv.commit(state.kv, context.tokens[start + 1 : start + 1 + count])
        state.features.drop(state.num_read)

    def _to_target(self, logits: FloatArray) -> FloatArray:
        """Logits over the target's vocabulary, the tokens that the network cannot tell at minus infinity."""
        if self._network.target_ids is None:
            return logits
        out = np.full((len(logits), self._network.vocab_size), -np.inf, np.float32)
        out[:, self._network.target_ids] = logits
        return out

    def _warn(self) -> None:
        if not self._has_warned:
            most = self._network.max_positions
            log.warning("%s was trained for %d positions; it drafts no more for longer sequences", self.name, most)
            self._has_warned = True


def eagle(resources: Resources) -> RecurrentProposer:
    return _create("eagle", resources)


def eagle3(resources: Resources) -> RecurrentProposer:
    return _create("eagle3", resources)


def mtp(resources: Resources) -> RecurrentProposer:
    return _create("mtp", resources)


def _create(kind: str, resources: Resources) -> RecurrentProposer:
    loaded = resources.drafter(kind)
    assert isinstance(loaded.network, Recurrent)
    assert loaded.kv is not None
    return RecurrentProposer(loaded.network, loaded.kv, resources.eos_ids)
