"""Putting the streamed chunks of requests back together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from foredraft.core import SpeculationStats
from foredraft.engine.sequence import Chunk, TokenLogprobs


@dataclass
class Answer:
    """One choice of one request, as far as it has come; `finish_reason` and `stats` are set by its last chunk."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stats: SpeculationStats | None = None

    def add(self, chunk: Chunk) -> None:
        self.text += chunk.text
        self.token_ids.append(chunk.token_id)
        if chunk.logprobs is not None:
            self.logprobs.append(chunk.logprobs)
        self.finish_reason, self.stats = chunk.finish_reason, chunk.stats


def collected(chunks: Iterable[Chunk], answers: dict[tuple[int, int], Answer]) -> Iterator[Chunk]:
    """Pass chunks on, adding each to `answers` under (request, choice)."""
    for chunk in chunks:
        answers.setdefault((chunk.request, chunk.choice), Answer()).add(chunk)
        yield chunk
