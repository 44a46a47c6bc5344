"""Drafts that were made and not used, kept until it shows whether they would have been right."""

from __future__ import annotations

from dataclasses import dataclass

from foredraft.core import Context, Draft
from foredraft.governor.acceptance import Acceptance
from foredraft.governor.trials import trials


@dataclass(frozen=True)
class _Shadow:
    """A draft for the tokens from position `start` on."""

    draft: Draft
    route: str
    start: int


class Shadows:
    """At most one for each context: the newest replaces the one before it, which has been judged by then."""

    def __init__(self) -> None:
        self._shadows: dict[int, _Shadow] = {}

    def keep(self, context: Context, route: str, draft: Draft) -> None:
        self._shadows[context.id] = _Shadow(draft, route, len(context.tokens))

    def judge(self, context: Context, acceptance: Acceptance) -> None:
        """Compare what was kept for a context with what it has written since, and learn from it."""
        shadow = self._shadows.pop(context.id, None)
        if shadow is None:
            return
        draft, came = shadow.draft, context.tokens[shadow.start :]
        path: list[int] = []
        for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            is_next = parent == (path[-1] if path else -1)
            if is_next and len(path) < len(came) and token == came[len(path)]:
                path.append(node)
        found = list(trials(draft, path, is_rejected=len(path) < len(came)))
        acceptance.observe(context.id, shadow.route, draft.proposer, found)

    def release(self, context_id: int) -> None:
        self._shadows.pop(context_id, None)
