"""What `generate` and `chat` return: the sum of what a prompt's sequences emitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foredraft.core import SpeculationStats
from foredraft.engine.sequence import Chunk, Sequence, TokenLogprobs


@dataclass(frozen=True)
class Choice:
    """One generated continuation. `text` ends before the stop string or token; `token_ids` hold every token decided.

    finish_reason: "stop" (end of text, stop string or stop token, or the response format is complete), "length"
    (max_tokens or the context is reached) or "error" (the response format's grammar grew too complex, or no token of
    the model fits it; the text so far is right).
    logprobs: one entry per token where they were asked for.
    """

    text: str
    token_ids: list[int]
    finish_reason: str
    logprobs: list[TokenLogprobs] | None
    stats: SpeculationStats


@dataclass(frozen=True)
class Result:
    """What became of one prompt. `seed` reproduces it; `num_cached_tokens` of the prompt were found in the KV cache."""

    prompt_token_ids: list[int]
    choices: list[Choice]
    seed: int
    num_cached_tokens: int

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def token_ids(self) -> list[int]:
        return self.choices[0].token_ids

    @property
    def finish_reason(self) -> str:
        return self.choices[0].finish_reason

    @property
    def stats(self) -> SpeculationStats:
        return self.choices[0].stats


def results(sequences: list[Sequence], run: Iterable[Chunk]) -> list[Result]:
    """A result for each request, in their order, once all chunks of the run have come."""
    chunks: dict[tuple[int, int], list[Chunk]] = {}
    for chunk in run:
        chunks.setdefault((chunk.request, chunk.choice), []).append(chunk)
    leaders = [sequence for sequence in sequences if sequence.leader is None]
    return [
        Result(
            prompt_token_ids=leader.context.prompt,
            choices=[_choice(s, chunks[s.request, s.choice]) for s in sequences if s.request == leader.request],
            seed=leader.seed,
            num_cached_tokens=leader.num_cached_tokens or 0,
        )
        for leader in leaders
    ]


def _choice(sequence: Sequence, chunks: list[Chunk]) -> Choice:
    assert sequence.finish_reason is not None
    logprobs = [chunk.logprobs for chunk in chunks if chunk.logprobs is not None]
    return Choice(
        text="".join(chunk.text for chunk in chunks),
        token_ids=sequence.context.output,
        finish_reason=sequence.finish_reason,
        logprobs=None if sequence.context.params.logprobs is None else logprobs,
        stats=sequence.stats,
    )
