"""Growing drafts node by node, a pass of the drafter for each depth: chains, and trees by confidence.

Trees are those of EAGLE-2 (Li et al. 2406.16858). A node's confidence is the chance that it and all before it are
right, as the drafter sees it. At each depth the surest of the newest nodes get children, and in the end the surest of
all nodes make the draft. No child is surer than its parent, so that the nodes in falling order of confidence have every
parent before its children, and any number of them from the front is the best tree of that size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from foredraft import _native
from foredraft.core import Context, Draft, FloatArray
from foredraft.errors import ForedraftError
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import SequenceKV
from foredraft.proposers.base import GoesOn
from foredraft.sampling.noise import Purpose, Stream, gumbel
from foredraft.sampling.processors import Scores, process
from foredraft.sampling.sampler import BlockNoise, choose_several, draft_token

# By how much a token's logit has to exceed all others for a grade: accepted as often as not below the first lead, and
# nearly always above the last (0.5B drafting for 1.5B).
LEADS = (0.5, 1.0, 2.0, 3.0, 4.5)
MOST_TOKENS = 64  # the most tokens that a draft may have


@dataclass(frozen=True)
class Guess:
    """A token for one place, with its confidence given that all before it are right, its grade, and the law it was
    drawn from; None for one that was chosen deterministically."""

    token: int
    confidence: float
    grade: int
    law: FloatArray | None = None


@dataclass(eq=False)
class Growth:
    """A draft of at most `budget` tokens in the making, with at most `width` children of a node; 1 makes a chain.

    number: of the context in the call. passes_left: of the drafter, fewer for one that sees no further. draws: whether
    a chain is drawn where the rule takes laws; else it is chosen as a tree is. Nodes are numbered as they are found;
    -1 stands for the context's last token. open: nodes whose children come with the next pass, surest first; their
    parents were open before.
    """

    number: int
    context: Context
    budget: int
    width: int = 1
    passes_left: int = MOST_TOKENS
    draws: bool = True
    guesses: list[Guess] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)  # with all before the node
    open: list[int] = field(default_factory=lambda: [-1])

    def path(self, node: int) -> list[Guess]:
        """From the root's child down to `node`, inclusive; empty for -1."""
        path: list[Guess] = []
        while node >= 0:
            path.append(self.guesses[node])
            node = self.parents[node]
        return path[::-1]

    def branch(self, children: Iterable[Sequence[Guess]]) -> None:
        """Take the children of each open node, and open those of them that may have a child in the draft."""
        first = len(self.guesses)
        for node, guesses in zip(self.open, children, strict=True):
            so_far = self.confidences[node] if node >= 0 else 1.0
            self.guesses += guesses
            self.parents += [node] * len(guesses)
            self.confidences += [so_far * guess.confidence for guess in guesses]
        self.passes_left -= 1
        self.open = [node for node in self._best(self.budget - 1) if node >= first][
            : self.width if self.passes_left else 0
        ]

    def draft(self, proposer: str) -> Draft | None:
        """The surest nodes, in falling order of confidence; None where there is none."""
        nodes = self._best(self.budget)
        if not nodes:
            return None
        places = {-1: -1} | {node: place for place, node in enumerate(nodes)}
        guesses = [self.guesses[node] for node in nodes]
        laws = [guess.law for guess in guesses if guess.law is not None]
        return Draft(
            proposer,
            tuple(guess.token for guess in guesses),
            tuple(places[self.parents[node]] for node in nodes),
            np.stack(laws) if laws else None,
            tuple(guess.grade for guess in guesses),
        )

    def _best(self, count: int) -> list[int]:
        """Ties keep the order in which nodes were found, parents before children."""
        return sorted(range(len(self.guesses)), key=lambda node: -self.confidences[node])[:count]


AnyGrowth = TypeVar("AnyGrowth", bound=Growth)


def grow(
    growths: Sequence[AnyGrowth],
    feed: Callable[[Sequence[AnyGrowth]], Iterable[FloatArray]],
    eos_ids: Collection[int],
    goes_on: GoesOn,
    leads: Sequence[float] = LEADS,
) -> None:
    """Grow drafts together until their budgets are used or they are not worth going on; a pass for each depth.

    feed: a pass of the drafter: logits after each open node of each growth, in order, float32 over the target's
    vocabulary. eos_ids, leads: see `guesses`. A row that nothing can be chosen from ends its own branch only.
    """
    active = list(growths)
    while active:
        rows = iter(feed(active))
        for growth in active:
            growth.branch([guesses(next(rows), growth, node, eos_ids, leads) for node in growth.open])
        active = [growth for growth in active if growth.open]
        paths = {g.number: [[guess.grade for guess in g.path(node)] for node in g.open] for g in active}
        going_on = goes_on(paths) if paths else ()
        active = [growth for growth in active if growth.number in going_on]


def most_rows(budget: int, width: int) -> int:
    """How many nodes a draft may feed to its drafter: those at depth d come with d others, and one has to follow."""
    return sum(min(width, budget - depth) for depth in range(1, budget))


def guesses(
    logits: FloatArray, growth: Growth, node: int, eos_ids: Collection[int], leads: Sequence[float]
) -> list[Guess]:
    """What may follow a node, surest first, each token once; nothing where there is nothing to choose from.

    A chain is drawn as the rule wants it (`draft_token`). A tree, and a chain of a growth that does not draw, is
    chosen, so that under `rejection` its tokens are point masses: the likeliest ones. Under `exact` they are those that
    come next in the order in which the target's noise puts them.

    logits: of the drafter, over the target's vocabulary. leads: thresholds of grades. A place's first guess is graded
    by how many of them its logit leads all others by, from 0 up; its siblings by how many the first leads them by, from
    -1 down.
    """
    context, params = growth.context, growth.context.params
    path = [guess.token for guess in growth.path(node)]
    mask = context.constraint.mask(path) if context.constraint else None
    if mask is not None and not (logits[mask] > -np.inf).any():
        mask = None  # a token that the target's mask forbids could only be refused, but no other can be drafted
    try:
        scores = process(logits, params, *context.history(path), eos_ids, mask)
        if growth.width == 1 and growth.draws:
            noise = BlockNoise(context.key, len(context.tokens))
            token, law = draft_token(scores, params.temperature, context.rule, noise, len(path))
            return [Guess(token, 1.0, _grade(scores, token, leads), law)]
        return _siblings(scores, context, len(path), growth.width, leads)
    except ForedraftError:
        return []


def _siblings(scores: Scores, context: Context, depth: int, count: int, leads: Sequence[float]) -> list[Guess]:
    """The tokens that come first, with their confidence: the law's shares, where it knows of the noise of these tokens.

    What parts a drafter's logits from the target's does not depend on the temperature. So with noise N = temperature
    times Gumbel noise, which both add to their logits, the chance that the target chooses x is about exp(logit + N) of
    x over the sum of that, in which tokens that were not chosen count without noise. Without noise this is the softmax.
    """
    temperature, position = context.params.temperature, len(context.tokens) + depth
    noise, heat = np.zeros(1), 1.0
    if context.rule != "exact" and temperature > 0:
        heat = temperature  # the target draws by its law
        tokens = choose_several(scores, 0.0, context.key, position, count)
    else:
        tokens = choose_several(scores, temperature, context.key, position, count)
        if temperature > 0:
            noise = temperature * gumbel(context.key, Stream(Purpose.FINAL, position), np.array(tokens))
    best = int(scores.argmax())
    scaled = scores if heat == 1 else scores / np.float32(heat)
    shares = scaled[tokens].astype(np.float64) - float(scaled[best]) - _native.log_sum_exp(scaled, best)
    rest = max(0.0, 1.0 - float(np.exp(shares).sum()))
    peak = max(0.0, float((shares + noise).max()))
    weights = np.exp(shares + noise - peak)
    confidences = weights / (weights.sum() + rest * np.exp(-peak))
    sums = scores[tokens].astype(np.float64) + noise
    behind = [-1 - bisect_right(leads, lead) for lead in sums[0] - sums[1:]]
    grades = [_grade(scores, tokens[0], leads), *behind]
    return [Guess(*each) for each in zip(tokens, confidences.tolist(), grades, strict=True)]


def _grade(scores: Scores, token: int, leads: Sequence[float]) -> int:
    best, second = _native.highest(scores, 2)
    return bisect_right(leads, float(scores[token] - scores[best if token != best else second]))


@dataclass(eq=False)
class FedRows:
    """Nodes that a drafter has been fed: provisional rows of its cache, in slot order behind the committed tokens."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)  # rows; -1 for the committed tokens
    _rows: dict[int, int] = field(default_factory=lambda: {-1: -1})  # node: its row

    def add(self, builder: BatchBuilder, kv: SequenceKV, growth: Growth) -> None:
        """Feed a growth's open nodes, in order; the logits of all are wanted. -1 is not among them."""
        num_fed = len(self.tokens)
        for node in growth.open:
            self._rows[node] = len(self.tokens)
            self.tokens.append(growth.guesses[node].token)
            self.parents.append(self._rows[growth.parents[node]])
        builder.add(kv, self.tokens[num_fed:], range(len(growth.open)), self.parents, num_fed)

    def matching(self, tokens: Sequence[int]) -> list[int]:
        """Rows that hold the first of these tokens, one below the other from the committed ones on; may be none."""
        path: list[int] = []
        for row, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if len(path) < len(tokens) and parent == (path[-1] if path else -1) and token == tokens[len(path)]:
                path.append(row)
        return path

    def clear(self) -> None:
        self.tokens.clear()
        self.parents.clear()
        self._rows = {-1: -1}
