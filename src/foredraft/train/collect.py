"""Training data: a target's own answers to prompts, and its hidden states while it wrote them.

The engine answers in a large batch. A proposer that never drafts sees the hidden states of every token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foredraft import ops
from foredraft.core import Context, Draft, FloatArray, SamplingParams, Speculation
from foredraft.engine import memory
from foredraft.engine.engine import Engine
from foredraft.engine.loading import load_target
from foredraft.engine.requests import Request, SequenceMaker
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.errors import ConfigError, RequestError
from foredraft.kv.cache import PAGE_SIZE, PagedKV
from foredraft.models import catalog
from foredraft.models.chat import ChatTemplate
from foredraft.models.compatibility import tokens_sha256
from foredraft.proposers.base import Proposer
from foredraft.provenance import identity
from foredraft.train.prompts import TrainingPrompt
from foredraft.train.shards import Document, Half, Meta, counts, open_folder, write_shard

SHARD_BYTES = 64 << 20  # of features; what a killed run may lose
CONTEXT_LENGTH = 1024  # longer prompts than leave room for an answer are passed over
GREEDY_SHARE = 0.7  # of the answers; the others are drawn at a temperature
TEMPERATURES = (0.6, 1.0)
RECORDER = "recorder"


class Recorder(Proposer):
    """Never drafts, and keeps the features of every sequence until they are taken."""

    name = RECORDER

    def __init__(self, taps: Sequence[int]) -> None:
        self.taps = tuple(taps)
        self._features: dict[int, list[tuple[int, Half]]] = {}

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        return [None] * len(contexts)

    def feed(self, context_id: int, start: int, features: FloatArray) -> None:
        self._features.setdefault(context_id, []).append((start, features.astype(np.float16)))

    def take(self, context_id: int) -> Half:
        """Features of a sequence's tokens from the first on: all but the last one, which was in no pass. A sequence
        that was preempted was read again, with the same numbers."""
        parts = self._features.pop(context_id)
        taken = np.empty((max(start + len(part) for start, part in parts), parts[0][1].shape[1]), np.float16)
        for start, part in parts:
            taken[start : start + len(part)] = part
        return taken


@dataclass(frozen=True)
class Progress:
    """Of a run so far; tokens are those of answers, also of earlier runs in finished shards."""

    num_documents: int
    num_tokens: int
    num_new_tokens: int
    shard: Path | None  # just written


def default_taps(num_layers: int) -> tuple[int, ...]:
    """Where EAGLE-3 reads (low, middle, high; 2503.01840), and the last layer, of which the target's own distribution
    follows. For very few layers, those that there are."""
    return tuple(sorted({min(2, num_layers), num_layers // 2, max(num_layers - 3, 0), num_layers}))


class Collector:
    """Answers prompts with a target. concurrency: answers that are written at once.

    Raises:
        ModelError, TokenizerError, TemplateError: the target's file cannot be used.
        ConfigError: `folder` holds data of another target or made in another way.
    """

    def __init__(
        self,
        target: str,
        folder: Path,
        *,
        max_tokens: int = 256,
        concurrency: int = 32,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        path = catalog.resolve(target)
        decoder, self._tokenizer, source = load_target(path, ops.create("native", threads))
        arch = decoder.arch
        self._template = ChatTemplate.from_source(source, self._tokenizer) if source else None
        taps = default_taps(arch.num_layers)
        self._max_tokens, self._concurrency, self._seed, self._folder = max_tokens, concurrency, seed, folder
        sampling = {
            "max_tokens": max_tokens,
            "seed": seed,
            "greedy_share": GREEDY_SHARE,
            "temperatures": list(TEMPERATURES),
        }
        meta = Meta(
            identity(path),
            arch.hidden,
            arch.num_layers,
            decoder.vocab_size,
            tokens_sha256(self._tokenizer),
            taps,
            sampling,
        )
        open_folder(folder, meta)
        self._shard_tokens = max(SHARD_BYTES // (len(taps) * arch.hidden * 2), 1)
        context_length = min(CONTEXT_LENGTH, arch.context_length)
        shape = (arch.num_layers, arch.num_kv_heads, arch.head_dim)
        pages = memory.num_pages(PagedKV.page_bytes(*shape), context_length, concurrency, None)
        kv = PagedKV(*shape, pages, share_prefixes=False)
        self._recorder = Recorder(taps)
        self._engine = Engine(decoder, kv, {RECORDER: self._recorder}, concurrency)
        self._maker = SequenceMaker(self._tokenizer, context_length, pages * PAGE_SIZE, (RECORDER,))
        self._longest_prompt = context_length - max_tokens
        if self._longest_prompt < 1:
            raise ConfigError(f"max_tokens is {max_tokens}; this target allows up to {context_length - 1}")

    def run(self, prompts: Sequence[TrainingPrompt], limit: int | None, tell: Callable[[Progress], None]) -> Progress:
        """Answer the prompts that no finished shard answers, until the answers have `limit` tokens in all.

        tell: hears of every document. What is finished when the run is interrupted is written first.
        """
        answered, num_old = counts(self._folder)
        asking = self._sequences(prompts, answered)
        progress = Progress(len(answered), num_old, 0, None)
        running: dict[int, tuple[int, EngineSequence]] = {}  # by context: the prompt's number
        done: list[Document] = []
        try:
            while limit is None or progress.num_tokens < limit:
                while len(running) < self._concurrency and (asked := next(asking, None)):
                    running[asked[1].context.id] = asked
                    self._engine.add(asked[1])
                if not running:
                    break
                for chunk in self._engine.step():
                    if chunk.finish_reason is None:
                        continue
                    number, sequence = running.pop(chunk.context_id)
                    done.append(self._document(number, prompts[number].origin, sequence))
                    num_new = progress.num_new_tokens + done[-1].num_answer_tokens
                    shard = None
                    if sum(len(document.tokens) for document in done) >= self._shard_tokens:
                        shard, done = write_shard(self._folder, done), []
                    progress = Progress(progress.num_documents + 1, num_old + num_new, num_new, shard)
                    tell(progress)
        finally:
            if done:
                write_shard(self._folder, done)
            for _, sequence in running.values():
                self._engine.abort(sequence)
        return progress

    def _sequences(self, prompts: Sequence[TrainingPrompt], answered: set[int]) -> Iterator[tuple[int, EngineSequence]]:
        waiting = deque(number for number in range(len(prompts)) if number not in answered)
        while waiting:
            number = waiting.popleft()
            tokens = self._tokens(prompts[number])
            if len(tokens) > self._longest_prompt:
                continue
            rng = np.random.default_rng([self._seed, number])
            temperature = 0.0 if rng.random() < GREEDY_SHARE else float(rng.uniform(*TEMPERATURES))
            params = SamplingParams(max_tokens=self._max_tokens, temperature=temperature, seed=number)
            try:
                [sequence] = self._maker.make([Request(tokens, params, Speculation(mode="on", k=1))])
            except RequestError:
                continue
            yield number, sequence

    def _tokens(self, prompt: TrainingPrompt) -> list[int]:
        if self._template is None:
            return self._tokenizer.encode(prompt.text, parse_special=False)
        return self._template.render(prompt.messages)

    def _document(self, number: int, origin: str, sequence: EngineSequence) -> Document:
        context = sequence.context
        features = self._recorder.take(context.id)
        tokens = np.array(context.tokens[: len(features)], np.int32)
        return Document(number, context.prompt_len, context.params.temperature, origin, tokens, features)
