"""What a verified draft tells: which of its tokens were tried, and what became of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from foredraft.core import Draft

SIBLING = -1000  # the grade of any sibling, as None is that of any first guess


class Trial(NamedTuple):
    """A drafted token whose place the target came to, all before it being accepted.

    is_accepted: it was the target's token there; of siblings, one at most. is_first: it was its place's first guess.
    """

    grade: int | None
    depth: int
    is_accepted: bool
    is_first: bool = True


def grades(draft: Draft) -> list[int | None]:
    """Of each token; where it has none, None for the first guess for its place, and SIBLING for the others."""
    if draft.grades or draft.is_chain:
        return [*draft.grades] or [None] * len(draft.tokens)
    return [SIBLING if parent in draft.parents[:node] else None for node, parent in enumerate(draft.parents)]


def trials(draft: Draft, path: Collection[int], is_rejected: bool) -> Iterator[Trial]:
    """Of the draft's tokens those at `path` were accepted; is_rejected: the target refused those that follow them.

    All siblings of an accepted token were tried: the target's token is known, and it is none of them. What follows the
    last accepted token was not tried where the answer ended with that.
    """
    accepted = set(path)
    reached = {-1, *accepted} if is_rejected else {draft.parents[node] for node in accepted}
    seen = set[int]()
    places = zip(draft.parents, draft.depths, grades(draft), strict=True)
    for node, (parent, depth, grade) in enumerate(places):
        if parent in reached:
            yield Trial(grade, depth, node in accepted, parent not in seen)
        seen.add(parent)
