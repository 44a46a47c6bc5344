"""From a draft model's logits to the target's vocabulary, where the draft model keeps a part of its own only.

Of what is left out, most drafts miss what is rare in general and was just said: names, identifiers, the words of the
question. So a context's own tokens are drafted from as well; their rows of the output matrix are gathered as they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foredraft.core import Context, FloatArray, IntArray
from foredraft.ops.base import Batch
from foredraft.proposers.base import DraftModel

SLACK = 256  # rows more than needed that are not worth gathering again


@dataclass(eq=False)
class _Seen:
    """The tokens of a context that are not kept, as far as it was read."""

    tokens: set[int] = field(default_factory=set)
    num_read: int = 0


class Outputs:
    """Runs a draft model's passes. Holds, for each context, its tokens that the model does not keep."""

    def __init__(self, model: DraftModel) -> None:
        self._model, self._seen = model, dict[int, _Seen]()
        kept = model.decoder.kept
        self._is_left_out = np.zeros_like(model.allowed) if kept is None else model.allowed.copy()
        if kept is not None:
            self._is_left_out[kept] = False
        self._tokens = np.empty(0, np.int32)  # rising; those of `_rows`
        self._rows: Any = None

    def see(self, contexts: Sequence[Context]) -> None:
        """Read on in the contexts that the next passes are for, and gather the rows that their drafts may need."""
        if self._model.decoder.kept is None:
            return
        wanted: set[int] = set()
        for context in contexts:
            seen = self._seen.setdefault(context.id, _Seen())
            new = np.unique(np.array(context.tokens[seen.num_read :], np.int32))
            seen.tokens.update(new[self._is_left_out[new]].tolist())
            seen.num_read = len(context.tokens)
            wanted |= seen.tokens
        if not wanted.issubset(self._tokens.tolist()) or len(self._tokens) > len(wanted) + SLACK:
            self._tokens = _sorted(wanted)
            self._rows = self._model.decoder.output_rows(self._tokens) if wanted else None

    def logits(self, batch: Batch, rows: Sequence[tuple[int, int]]) -> FloatArray:
        """A pass: logits [wanted, target vocabulary]; what the draft model does not draft from is at minus infinity, so
        that the law that is drawn from has zeros there.

        rows: of each context in the batch, its id and how many rows it wants, in order.
        """
        decoder, allowed, kept = self._model.decoder, self._model.allowed, self._model.decoder.kept
        logits = decoder.forward(batch, self._model.kv, self._rows)
        out = np.full((len(logits), len(allowed)), -np.inf, np.float32)
        if kept is None:
            shared = min(len(allowed), logits.shape[1])
            np.copyto(out[:, :shared], logits[:, :shared], where=allowed[:shared])
            return out
        out[:, kept] = logits[:, : len(kept)]
        start = 0
        for context_id, count in rows:
            own = _sorted(self._seen[context_id].tokens)
            columns = len(kept) + np.searchsorted(self._tokens, own)
            out[start : start + count, own] = logits[start : start + count, columns]
            start += count
        return out

    def release(self, context_id: int) -> None:
        self._seen.pop(context_id, None)


def _sorted(tokens: Iterable[int]) -> IntArray:
    return np.array(sorted(tokens), np.int32)
