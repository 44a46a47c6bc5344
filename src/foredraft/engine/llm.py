"""The Python API: load a model (and a draft model), generate, chat, stream."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from numbers import Integral
from pathlib import Path
from typing import Self

from foredraft import ops as op_sets
from foredraft import proposers as proposer_registry
from foredraft.core import Context, SamplingParams, Speculation, SpeculationStats
from foredraft.engine import memory
from foredraft.engine.engine import Engine
from foredraft.engine.sequence import Chunk, TokenLogprobs
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.engine.stops import StopMatcher
from foredraft.errors import CapacityError, ConfigError, ModelError, RequestError
from foredraft.kv.cache import PagedKV
from foredraft.models import catalog, gguf
from foredraft.models.architecture import Architecture
from foredraft.models.chat import ChatTemplate, Message
from foredraft.models.compatibility import draftable_tokens
from foredraft.models.decoder import Decoder
from foredraft.models.detokenizer import Detokenizer
from foredraft.models.tokenizer import Tokenizer
from foredraft.ops.base import Ops
from foredraft.proposers.base import DraftModel, Resources
from foredraft.sampling.noise import noise_key

DEFAULT_CONTEXT = 8192  # or less, where the model knows less
MAX_ROWS = 512  # of one pass, drafts not counted: longer prompts are read in chunks

Prompt = str | Sequence[int]
Params = SamplingParams | Sequence[SamplingParams]


@dataclass(frozen=True)
class Choice:
    """One generated continuation. `text` ends before the stop string or token; `token_ids` hold every token decided.

    finish_reason: "stop" (end of text, stop string or stop token) or "length" (max_tokens or the context is reached).
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


class LLM:
    """A target model ready to generate, with its proposers. Use it from one thread at a time.

    model, draft: a catalog name or the path of a GGUF file.
    context_length: tokens a sequence may have; None means the model's own limit, at most 8192.
    max_sequences: how many run at once; more wait. kv_memory: bytes for keys and values of all models; None takes what
        is needed, up to a quarter of the free memory.
    threads: None means the cores really available. ops: "native" or "reference".
    proposers: names to load, in the order in which they are asked; None means lookup, then draft_model where a draft is
        given.

    Raises:
        ModelError, TokenizerError: a file cannot be used, or the draft's tokens differ from the target's.
        ConfigError: a value is not allowed, or there is not enough memory.
    """

    def __init__(
        self,
        model: str | Path,
        draft: str | Path | None = None,
        *,
        context_length: int | None = None,
        max_sequences: int = 16,
        kv_memory: int | None = None,
        threads: int | None = None,
        ops: str = "native",
        prefix_cache: bool = True,
        proposers: Sequence[str] | None = None,
    ) -> None:
        if not 1 <= max_sequences <= 1024:
            raise ConfigError(f"max_sequences is {max_sequences}; allowed is 1 to 1024")
        op_set = op_sets.create(ops, threads)
        target, self.tokenizer, self._template_source = _load(model, op_set)
        loaded_draft = None if draft is None else _load(draft, op_set)
        self.model_name = Path(model).name
        self.max_sequences = max_sequences
        self.context_length = _context_length(target.arch, context_length)

        archs = [target.arch] if loaded_draft is None else [target.arch, loaded_draft[0].arch]
        pages = memory.num_pages(archs, self.context_length, max_sequences, kv_memory)
        caches = [_cache(arch, pages, prefix_cache) for arch in archs]
        self.capacity = pages * memory.PAGE_SIZE
        draft_model = None
        if loaded_draft is not None:
            draft_model = DraftModel(loaded_draft[0], caches[1], draftable_tokens(self.tokenizer, loaded_draft[1]))
        resources = Resources(target, self.tokenizer.eos_ids, draft_model)
        names = (
            ("lookup", *(("draft_model",) if draft else ())) if proposers is None else tuple(dict.fromkeys(proposers))
        )
        self.proposers = names
        self.engine = Engine(
            target,
            caches[0],
            {name: proposer_registry.create(name, resources) for name in names},
            max_sequences,
            MAX_ROWS,
        )
        self._ids = count()
        self._inboxes: dict[int, deque[Chunk]] = {}  # context: where the run that it belongs to finds its chunks

    def generate(
        self,
        prompts: str | Sequence[Prompt],
        params: Params = SamplingParams(),  # noqa: B008 (frozen)
        speculation: Speculation = Speculation(),  # noqa: B008 (frozen)
    ) -> list[Result]:
        """Continue each prompt: text (special tokens in it count as such) or token ids. All run together.

        Raises:
            RequestError, ConfigError: a prompt is empty or too long, or a parameter is not allowed; nothing has run.
            ForedraftError: the model produced logits that are not numbers.
        """
        sequences = self.sequences(prompts, params, speculation)
        chunks: dict[tuple[int, int], list[Chunk]] = {}
        for chunk in self._run(sequences):
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

    def stream(
        self,
        prompts: str | Sequence[Prompt],
        params: Params = SamplingParams(),  # noqa: B008 (frozen)
        speculation: Speculation = Speculation(),  # noqa: B008 (frozen)
    ) -> Generator[Chunk, None, None]:
        """Like `generate`, token by token as they are decided. Closing the iterator ends what still runs."""
        return self._run(self.sequences(prompts, params, speculation))

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams = SamplingParams(),  # noqa: B008 (frozen)
        speculation: Speculation = Speculation(),  # noqa: B008 (frozen)
    ) -> Result:
        """Answer a conversation, a list of {"role", "content"}, by the model's own chat template.

        Raises:
            TemplateError: the file has no template, or it refuses the messages.
        """
        return self.generate([self.chat_tokens(messages)], params, speculation)[0]

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """A conversation as the prompt's token ids. Text of special tokens inside messages stays text."""
        return self._template.render(messages)

    @cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate.from_source(self._template_source, self.tokenizer)

    @property
    def has_chat_template(self) -> bool:
        return self._template_source is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything that still runs."""
        for sequence in [*self.engine.scheduler.running, *self.engine.scheduler.waiting]:
            self.engine.abort(sequence)

    def sequences(
        self, prompts: str | Sequence[Prompt], params: Params, speculation: Speculation
    ) -> list[EngineSequence]:
        """Check everything, as `generate` does; a sequence for every choice of every prompt, ready for `engine.add`.

        For those who drive `engine` themselves. The one thing here that any thread may call.
        """
        each: Sequence[Prompt] = [prompts] if isinstance(prompts, str) else prompts
        each_params = [params] * len(each) if isinstance(params, SamplingParams) else params
        if len(each_params) != len(each):
            raise ConfigError(f"{len(each)} prompts but {len(each_params)} params; give one, or one for each prompt")
        unknown = set(speculation.proposers) - set(self.proposers)
        if unknown:
            raise ConfigError(
                f"proposer {min(unknown)!r} is not loaded; loaded are {', '.join(self.proposers) or 'none'}",
                "speculation",
            )
        sequences: list[EngineSequence] = []
        for request, (prompt, one) in enumerate(zip(each, each_params, strict=True)):
            if not isinstance(prompt, Iterable):
                raise RequestError(f"prompt {prompt!r} is neither text nor a list of token ids; give a list of prompts")
            tokens = self.tokenizer.encode(prompt, parse_special=True) if isinstance(prompt, str) else list(prompt)
            self._check(tokens, one)
            sequences += self._choices(request, tokens, one, speculation)
        return sequences

    def _check(self, tokens: list[int], params: SamplingParams) -> None:
        vocab_size = self.tokenizer.vocab_size
        for name, ids in (
            ("prompt", tokens),
            ("stop_token_ids", params.stop_token_ids),
            ("logit_bias", params.logit_bias),
        ):
            bad = next((t for t in ids if not isinstance(t, Integral) or not 0 <= t < vocab_size), None)
            if bad is not None:
                raise RequestError(f"{name} has token {bad!r}; this model's tokens are 0 to {vocab_size - 1}", name)
        if not tokens:
            raise RequestError("the prompt is empty; give at least one token", "prompt")
        if len(tokens) >= self.context_length:
            raise RequestError(
                f"the prompt has {len(tokens)} tokens, the context {self.context_length}, and one is needed for the "
                "answer; shorten the prompt or raise the context length",
                "prompt",
            )
        needed = min(len(tokens) + params.max_tokens, self.context_length)
        if needed > self.capacity:
            raise CapacityError(
                f"prompt and max_tokens need room for {needed} tokens, the KV cache has {self.capacity}; "
                "lower max_tokens or raise kv_memory",
                "max_tokens",
            )

    def _choices(
        self, request: int, tokens: list[int], params: SamplingParams, speculation: Speculation
    ) -> list[EngineSequence]:
        seed = secrets.randbits(64) if params.seed is None else params.seed
        choices: list[EngineSequence] = []
        for choice in range(params.n):
            key = noise_key(seed, choice)
            choices.append(
                EngineSequence(
                    context=Context(next(self._ids), list(tokens), len(tokens), params, key, speculation.rule),
                    request=request,
                    choice=choice,
                    seed=seed,
                    speculation=speculation,
                    proposers=speculation.proposers or self.proposers,
                    eos_ids=self.tokenizer.eos_ids,
                    detokenizer=Detokenizer(self.tokenizer),
                    stops=StopMatcher(params.stop),
                    token_limit=min(len(tokens) + params.max_tokens, self.context_length),
                    leader=choices[0] if choices else None,
                )
            )
        return choices

    def _run(self, sequences: list[EngineSequence]) -> Generator[Chunk, None, None]:
        """Queue sequences and run them. A step may decide tokens of other runs: each has an inbox."""
        inbox: deque[Chunk] = deque()
        try:
            for sequence in sequences:
                self._inboxes[sequence.context.id] = inbox
                self.engine.add(sequence)
            while inbox or any(sequence.finish_reason is None for sequence in sequences):
                if inbox:
                    yield inbox.popleft()
                    continue
                for chunk in self.engine.step():
                    self._inboxes[chunk.context_id].append(chunk)
            if error := next((sequence.error for sequence in sequences if sequence.error), None):
                raise error
        finally:
            for sequence in sequences:
                self.engine.abort(sequence)
                self._inboxes.pop(sequence.context.id, None)


def _load(name: str | Path, ops: Ops) -> tuple[Decoder, Tokenizer, str | None]:
    file = gguf.read(catalog.resolve(name))
    tokenizer = Tokenizer.from_metadata(file.metadata)
    decoder = Decoder(file, ops)
    if tokenizer.vocab_size != decoder.vocab_size:
        raise ModelError(
            f"{file.path}: the tokenizer has {tokenizer.vocab_size} tokens, the embeddings {decoder.vocab_size}; "
            "the file is damaged, fetch it again"
        )
    return decoder, tokenizer, file.metadata.get("tokenizer.chat_template")


def _context_length(arch: Architecture, asked: int | None) -> int:
    if asked is None:
        return min(arch.context_length, DEFAULT_CONTEXT)
    if not 2 <= asked <= arch.context_length:
        raise ConfigError(f"context_length is {asked}; this model allows 2 to {arch.context_length}")
    return asked


def _cache(arch: Architecture, pages: int, prefix_cache: bool) -> PagedKV:
    return PagedKV(arch.num_layers, arch.num_kv_heads, arch.head_dim, pages, memory.PAGE_SIZE, prefix_cache)


def _choice(sequence: EngineSequence, chunks: list[Chunk]) -> Choice:
    assert sequence.finish_reason is not None
    logprobs = [chunk.logprobs for chunk in chunks if chunk.logprobs is not None]
    return Choice(
        text="".join(chunk.text for chunk in chunks),
        token_ids=sequence.context.output,
        finish_reason=sequence.finish_reason,
        logprobs=None if sequence.context.params.logprobs is None else logprobs,
        stats=sequence.stats,
    )
