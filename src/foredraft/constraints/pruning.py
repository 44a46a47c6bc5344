"""Cutting from a draft what its constraint forbids anyway, before a row is spent on it."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.core import Constraint, Draft


def pruned(draft: Draft, constraint: Constraint) -> Draft:
    """The part of a draft that the constraint allows; it may be empty.

    A draft that was drawn at random is returned as it is: leaving out a token because of what it turned out to be would
    change the law of the text under the rules that correct for the drafter's law. There the target refuses it.
    """
    if draft.probs is not None:
        return draft
    if draft.is_chain:
        num_allowed = constraint.num_allowed(draft.tokens)
        return draft.cut(num_allowed)
    kept: dict[int, int] = {-1: -1}  # node: its place among those that are kept
    for node, parent in enumerate(draft.parents):
        if parent in kept and _is_allowed([draft.tokens[i] for i in draft.path(node)], constraint):
            kept[node] = len(kept) - 1
    nodes = list(kept)[1:]
    tokens, parents = [draft.tokens[i] for i in nodes], [kept[draft.parents[i]] for i in nodes]
    grades = [draft.grades[i] for i in nodes] if draft.grades else ()
    return Draft(draft.proposer, tuple(tokens), tuple(parents), grades=tuple(grades))


def _is_allowed(path: Sequence[int], constraint: Constraint) -> bool:
    return constraint.num_allowed(path) == len(path)
