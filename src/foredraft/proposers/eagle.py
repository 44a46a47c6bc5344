"""An EAGLE head drafts (2401.15077, 2406.16858, 2503.01840): one layer that goes on from the target's hidden states.

Row i of its cache holds token i + 1 and the feature of position i. Rows whose feature is the target's are committed;
those it drafts from its own hidden states are provisional and written over, once the target's features are there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from foredraft.core import Context, Draft, FloatArray
from foredraft.drafters.eagle import EagleHead
from foredraft.errors import ConfigError
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV, SequenceKV
from foredraft.proposers.base import GoesOn, Proposer, Resources, whole
from foredraft.proposers.chains import MAX_ROWS, Chain, Drawing
from foredraft.proposers.features import Features

log = logging.getLogger("foredraft")


@dataclass(eq=False)
class _State:
    """What is known of a sequence. origin: the position of its cache's first row."""

    features: Features = field(default_factory=Features)
    kv: SequenceKV | None = None
    origin: int = 0

    @property
    def num_read(self) -> int:
        """Positions whose features the cache has read, those before its first row among them."""
        return self.origin + (self.kv.length if self.kv else 0)


@dataclass(eq=False)
class _Chain(Chain):
    """hidden: what the head goes on from, [1, hidden]."""

    state: _State = field(kw_only=True)
    hidden: FloatArray | None = None


@dataclass(frozen=True)
class _Rows:
    """Rows of one sequence in a pass: after how many provisional ones they come, and tokens with hidden states."""

    kv: SequenceKV
    num_fed: int
    tokens: Sequence[int]
    hidden: FloatArray  # [tokens, hidden]


class EagleProposer(Proposer):
    """Drafts chains, batched over sequences: one pass of the head per depth.

    Features are kept as they come and read when it is asked. Where some are missing (they were found in the prefix
    cache, or too many came since), the head's cache begins anew behind them, unless it shares these rows itself.
    """

    ends_drafts = True

    def __init__(self, head: EagleHead, kv: PagedKV, eos_ids: Collection[int]) -> None:
        self.name, self.taps = head.kind, head.taps
        self._head, self._kv = head, kv
        allowed = np.ones(head.vocab_size, np.bool_)
        if head.target_ids is not None:
            allowed[:] = False
            allowed[head.target_ids] = True
        self._drawing = Drawing(allowed, eos_ids)
        self._states: dict[int, _State] = {}
        self._has_warned = False

    def feed(self, context_id: int, start: int, features: FloatArray) -> None:
        self._states.setdefault(context_id, _State()).features.add(start, features)

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
        if state and state.kv:
            self._kv.close(state.kv)

    def _start(self, number: int, context: Context, budget: int) -> _Chain | None:
        """Reserve rows for what is to come; None where features, positions or room are lacking."""
        state, num_final = self._states.get(context.id), len(context.tokens) - 1
        if state is None or state.features.end != num_final or state.num_read == num_final:
            return None
        if state.kv is None or state.num_read < state.features.start:
            self._begin(state, context)
        assert state.kv is not None
        # As many rows as final positions, and one for each drafted token but the last.
        budget = min(budget, self._head.max_positions - (num_final - state.origin) + 1)
        if budget < 1:
            self._warn()
            return None
        needed = num_final - state.num_read + budget - 1
        return _Chain(number, context, budget, state=state) if self._kv.reserve(state.kv, needed) else None

    def _begin(self, state: _State, context: Context) -> None:
        """Open a cache at the first position whose features are there, or one that shares all rows before it."""
        if state.kv:
            self._kv.close(state.kv)
        # A row is a function of the tokens up to its own, of which the first is in no row: it is part of the scope.
        kv, origin = self._kv.open(context.tokens[1:], f"{context.tokens[0]} {context.scope}"), 0
        if kv.length < state.features.start:
            self._kv.close(kv)
            origin = state.features.start
            kv = self._kv.open((), f"from {origin} of {context.id}")  # as nobody else's
        state.kv, state.origin = kv, origin

    def _catch_up(self, chain: _Chain, most_left: int) -> None:
        """Read most of what came without this proposer; `_logits` reads the rest together with the others."""
        num_final = len(chain.context.tokens) - 1
        while (behind := num_final - chain.state.num_read) > most_left:
            rows = self._final_rows(chain, min(behind - 1, MAX_ROWS))
            self._pass([rows], wants=False)
            self._commit(chain.state, rows.tokens)

    def _logits(self, chains: Sequence[_Chain]) -> FloatArray:
        """One pass over the chains: logits of the next token of each, [chains, target vocabulary]."""
        rows = []
        for chain in chains:
            kv, num_final = chain.state.kv, len(chain.context.tokens) - 1
            assert kv is not None
            if chain.hidden is None:
                rows.append(self._final_rows(chain, num_final - chain.state.num_read))
            else:
                rows.append(_Rows(kv, len(chain.tokens) - 1, chain.tokens[-1:], chain.hidden))
        logits, hidden = self._pass(rows)
        for chain, own, after in zip(chains, rows, hidden, strict=True):
            if chain.hidden is None:
                self._commit(chain.state, own.tokens)
            chain.hidden = after[None]
        return self._to_target(logits)

    def _final_rows(self, chain: _Chain, count: int) -> _Rows:
        """The next rows with the target's features."""
        state, start = chain.state, chain.state.num_read
        assert state.kv is not None
        hidden = self._head.fuse(state.features.get(start, count))
        return _Rows(state.kv, 0, chain.context.tokens[start + 1 : start + 1 + count], hidden)

    def _pass(self, rows: Sequence[_Rows], wants: bool = True) -> tuple[FloatArray, FloatArray]:
        """Run rows of several sequences; logits and hidden states of each one's last row, if wanted."""
        builder = BatchBuilder()
        for own in rows:
            builder.add(own.kv, own.tokens, wanted=[len(own.tokens) - 1] if wants else (), num_fed=own.num_fed)
        return self._head.forward(builder.build(), np.concatenate([own.hidden for own in rows]), self._kv)

    def _commit(self, state: _State, tokens: Sequence[int]) -> None:
        assert state.kv is not None
        self._kv.commit(state.kv, tokens)
        state.features.drop(state.num_read)

    def _to_target(self, logits: FloatArray) -> FloatArray:
        """Logits over the target's vocabulary, the tokens that the head cannot tell at minus infinity."""
        if self._head.target_ids is None:
            return logits
        out = np.full((len(logits), self._head.vocab_size), -np.inf, np.float32)
        out[:, self._head.target_ids] = logits
        return out

    def _warn(self) -> None:
        if not self._has_warned:
            most = self._head.max_positions
            log.warning("%s was trained for %d positions; it drafts no more for longer sequences", self.name, most)
            self._has_warned = True


def eagle(resources: Resources) -> EagleProposer:
    return _create("eagle", resources)


def eagle3(resources: Resources) -> EagleProposer:
    return _create("eagle3", resources)


def _create(kind: str, resources: Resources) -> EagleProposer:
    """Raises ConfigError where no head of this kind was loaded."""
    loaded = resources.drafters.get(kind)
    if loaded is None:
        raise ConfigError(f"proposer {kind} needs a head of this kind; name one with --drafter")
    assert isinstance(loaded.network, EagleHead)
    assert loaded.kv is not None
    return EagleProposer(loaded.network, loaded.kv, resources.eos_ids)
