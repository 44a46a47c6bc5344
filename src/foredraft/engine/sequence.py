"""A sequence: one choice of one request on its way through the engine, and the chunks it emits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from foredraft.core import Context, Speculation, SpeculationStats
from foredraft.engine.stops import StopMatcher
from foredraft.errors import ForedraftError
from foredraft.governor.pools import DEFAULT
from foredraft.kv.cache import SequenceKV
from foredraft.models.detokenizer import Detokenizer


@dataclass(frozen=True)
class TokenLogprobs:
    """Log probabilities by the target's own distribution, before any processing: of the token, and of the likeliest."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Chunk:
    """One emitted token.

    text: what became safe to show with this token; may be empty while a character or a stop string is incomplete.
    origin: "plain" (no draft in this step), "accepted" (drafted and accepted), "corrected" (the target's token where it
    refused a draft) or "bonus" (the target's token after a fully accepted draft).
    step: number of the engine step; tokens of one step share it. finish_reason ("stop", "length" or "error"), stats,
    seed and num_cached_tokens (of the prompt, found in the KV cache) come with the last token.
    """

    context_id: int
    request: int
    choice: int
    token_id: int
    text: str
    origin: str
    step: int
    logprobs: TokenLogprobs | None
    finish_reason: str | None = None
    stats: SpeculationStats | None = None
    seed: int | None = None
    num_cached_tokens: int | None = None


@dataclass(eq=False)
class Sequence:
    """Everything the engine knows about one choice of a request.

    `context.tokens` are final; the KV cache holds all but the last of them once the prompt is read. `leader` is the
    first choice of the same request, whose prompt this one waits for in order to share its pages. `kv` is None while
    the sequence waits. `token_limit` is the length at which max_tokens or the context ends it. `finish_reason` is also
    "abort" or "error", which come without a chunk; the latter says why in `error`.
    """

    context: Context
    request: int
    choice: int
    seed: int
    speculation: Speculation
    proposers: tuple[str, ...]
    eos_ids: Collection[int]
    detokenizer: Detokenizer
    stops: StopMatcher
    token_limit: int
    route: str = DEFAULT
    leader: Sequence | None = None
    kv: SequenceKV | None = None
    num_cached_tokens: int | None = None
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    finish_reason: str | None = None
    error: ForedraftError | None = None

    @property
    def num_pending(self) -> int:
        """Tokens that the KV cache does not hold yet; 1 once the prompt is read."""
        return len(self.context.tokens) - (self.kv.length if self.kv else 0)

    @property
    def is_prefilled(self) -> bool:
        return len(self.context.tokens) > self.context.prompt_len or self.finish_reason is not None

    @property
    def room(self) -> int:
        """How many drafted tokens could still be emitted: the step adds one token of the target's own."""
        return max(0, self.token_limit - len(self.context.tokens) - 1)

    def append(self, token: int) -> str:
        """Take one token as final, decide whether it ends the sequence, and return the text now safe to show."""
        self.context.tokens.append(token)
        params, num_output = self.context.params, len(self.context.tokens) - self.context.prompt_len
        constraint = self.context.constraint
        is_eos = token in self.eos_ids and not params.ignore_eos
        if is_eos or token in params.stop_token_ids:
            self.finish_reason = "error" if constraint and constraint.finish_reason == "error" else "stop"
            return self._flush("")
        text = self.detokenizer.add(token)
        if constraint:
            constraint.advance(token)
            self.finish_reason = constraint.finish_reason
        if num_output >= params.min_tokens:
            text = self.stops.push(text)
        if self.finish_reason is None and self.stops.found is None and len(self.context.tokens) >= self.token_limit:
            self.finish_reason = "length"
        if self.finish_reason is not None:
            text = self._flush(text)
        if self.stops.found is not None:
            self.finish_reason = "stop"
        return text

    def _flush(self, text: str) -> str:
        return text + self.stops.push(self.detokenizer.flush()) + self.stops.flush()
