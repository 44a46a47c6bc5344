"""The Python API: load a model (and a draft model), generate, chat, stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

from foredraft import _native
from foredraft import ops as op_sets
from foredraft import proposers as proposer_registry
from foredraft.constraints.formats import ResponseFormat
from foredraft.core import SamplingParams, Speculation
from foredraft.engine import memory
from foredraft.engine.engine import Engine
from foredraft.engine.loading import Models
from foredraft.engine.requests import Formats, Params, Prompt, Request, SequenceMaker, requests
from foredraft.engine.results import Result, results
from foredraft.engine.sequence import Chunk
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.errors import ConfigError
from foredraft.governor.cost_curve import Curves
from foredraft.governor.governor import Governor
from foredraft.governor.measure import curves
from foredraft.governor.pools import DEFAULT, PoolConfig
from foredraft.kv.cache import PAGE_SIZE
from foredraft.models.architecture import Architecture
from foredraft.models.chat import ChatTemplate
from foredraft.models.conversation import Message, Tool
from foredraft.models.vocabulary import Vocabulary
from foredraft.proposers import ALWAYS
from foredraft.proposers.suffix_file import fingerprint
from foredraft.proposers.suffix_memory import DEFAULT_BYTES, SuffixMemory

DEFAULT_CONTEXT = 8192  # or less, where the model knows less
MAX_ROWS = 512  # of one pass, drafts not counted: longer prompts are read in chunks


class LLM:
    """A target model ready to generate, with its proposers. Use it from one thread at a time.

    model, draft: a catalog name or the path of a GGUF file.
    draft_vocabulary: which tokens the draft model computes logits for, beside those of the context: so many of the
        lowest ids, or those in a file that `foredraft train vocabulary` has made; None means all. A smaller output
        matrix makes its passes cheaper.
    drafters: paths of learned drafters for the model (docs/drafters.md), at most one of each kind.
    context_length: tokens a sequence may have; None means the model's own limit, at most 8192.
    max_sequences: how many run at once; more wait. kv_memory: bytes for keys and values of all models; None takes what
        is needed, up to a quarter of the free memory.
    threads: None means the cores really available. ops: "native" or "reference".
    proposers: names to load, in the order in which they are asked; None means suffix, lookup, the drafters, then
        draft_model where a draft is given. Requests with a response format or a prediction ask grammar or prediction
        before, which are always there.
    suffix_memory: bytes for past outputs, which the proposer suffix drafts from in pools with `share_outputs`.
        suffix_directory: where they are kept until the next time; None for nowhere.
    pools: how the requests of each pool are drafted for; routes: the pool of each route. What is not there is in the
        pool "default".

    Raises:
        ModelError, TokenizerError: a file cannot be used, or is not for this model.
        ConfigError: a value is not allowed, or there is not enough memory.
    """

    def __init__(
        self,
        model: str | Path,
        draft: str | Path | None = None,
        *,
        draft_vocabulary: Vocabulary | None = None,
        drafters: Sequence[str | Path] = (),
        context_length: int | None = None,
        max_sequences: int = 16,
        kv_memory: int | None = None,
        threads: int | None = None,
        ops: str = "native",
        prefix_cache: bool = True,
        proposers: Sequence[str] | None = None,
        suffix_memory: int = DEFAULT_BYTES,
        suffix_directory: str | Path | None = None,
        pools: Mapping[str, PoolConfig] | None = None,
        routes: Mapping[str, str] | None = None,
    ) -> None:
        if not 1 <= max_sequences <= 1024:
            raise ConfigError(f"max_sequences is {max_sequences}; allowed is 1 to 1024")
        op_set = op_sets.create(ops, threads)
        self._isa = _native.isa() if ops == "native" else ops
        models = self._models = Models(model, draft, draft_vocabulary, drafters, op_set)
        self.tokenizer, self.chat_template = models.tokenizer, models.chat_template
        self.model_name = Path(model).name
        self.max_sequences = max_sequences
        self.context_length = _context_length(models.target.arch, context_length)

        names = self.proposers = models.proposers if proposers is None else tuple(dict.fromkeys(proposers))
        for pool in (pools or {}).values():
            pool.check_sharing(names)
        self.suffixes = SuffixMemory(suffix_memory)
        if suffix_directory and "suffix" in names:
            self.suffixes.keep(Path(suffix_directory), fingerprint(self.tokenizer.tokens))
        pages = memory.num_pages(models.page_bytes, self.context_length, max_sequences, kv_memory)
        self.capacity = pages * PAGE_SIZE
        kv, resources = models.resources(pages, prefix_cache, self.suffixes)
        self.engine = Engine(
            models.target,
            kv,
            {name: proposer_registry.create(name, resources) for name in (*ALWAYS, *names)},
            max_sequences,
            MAX_ROWS,
            Governor(pools, routes, self._measure),
        )
        self._maker = SequenceMaker(self.tokenizer, self.context_length, self.capacity, names)
        self._inboxes: dict[int, deque[Chunk]] = {}  # context: where the run that it belongs to finds its chunks

    def generate(
        self,
        prompts: str | Sequence[Prompt],
        params: Params = SamplingParams(),  # noqa: B008 (frozen)
        speculation: Speculation = Speculation(),  # noqa: B008 (frozen)
        *,
        response_format: Formats = None,
        prediction: str | Sequence[Prompt] = "",
        scope: str = "",
        route: str = DEFAULT,
    ) -> list[Result]:
        """Continue each prompt: text (special tokens in it count as such) or token ids. All run together.

        response_format: what every answer has to match (constraints/formats.py lists the types), or one for each
            prompt, None among them for no constraint.
        prediction: what the output is expected to be, for each prompt (a single text holds for all); it is drafted from
            before the model's proposers are asked. Empty for no idea.
        scope: prompts and outputs are found in the KV cache by requests of the same scope only.
        route: of which kind of traffic these are; what is learned of drafts is learned for each route.

        Raises:
            RequestError, ConfigError: a prompt is empty or too long, or a parameter is not allowed; nothing has run.
            ForedraftError: the model produced logits that are not numbers.
        """
        sequences = self.sequences(requests(prompts, params, speculation, response_format, prediction, scope, route))
        return results(sequences, self._run(sequences))

    def stream(
        self,
        prompts: str | Sequence[Prompt],
        params: Params = SamplingParams(),  # noqa: B008 (frozen)
        speculation: Speculation = Speculation(),  # noqa: B008 (frozen)
        *,
        response_format: Formats = None,
        prediction: str | Sequence[Prompt] = "",
        scope: str = "",
        route: str = DEFAULT,
    ) -> Generator[Chunk, None, None]:
        """Like `generate`, token by token as they are decided. Closing the iterator ends what still runs."""
        asked = requests(prompts, params, speculation, response_format, prediction, scope, route)
        return self._run(self.sequences(asked))

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams = SamplingParams(),  # noqa: B008 (frozen)
        speculation: Speculation = Speculation(),  # noqa: B008 (frozen)
        *,
        tools: Sequence[Tool] = (),
        response_format: ResponseFormat | None = None,
        prediction: str = "",
        scope: str = "",
        route: str = DEFAULT,
    ) -> Result:
        """Answer a conversation, a list of {"role", "content"}, by the model's own chat template.

        tools: functions that the model may call, as in the OpenAI API; a call is part of the answer's text.

        Raises:
            TemplateError: the file has no template, it refuses the messages, or it does not know tools.
        """
        [result] = self.generate(
            [self.chat_tokens(messages, tools)],
            params,
            speculation,
            response_format=response_format,
            prediction=prediction,
            scope=scope,
            route=route,
        )
        return result

    def chat_tokens(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """A conversation as the prompt's token ids. Text of special tokens in messages and tools stays text."""
        return self._template.render(messages, tools=tools)

    @cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate.from_source(self.chat_template, self.tokenizer)

    @property
    def has_chat_template(self) -> bool:
        return self.chat_template is not None

    @property
    def grows_trees(self) -> tuple[str, ...]:
        """Those of its proposers that draft trees where they are asked to."""
        return tuple(name for name in self.proposers if self.engine.proposers[name].grows_trees)

    @property
    def governor(self) -> Governor:
        """Decides how far to draft where that is left open (mode auto). Belongs to the thread that runs the engine."""
        return self.engine.governor

    @property
    def files(self) -> dict[str, Path]:
        """The models' files by role: "model", and where there is one "draft" and "drafter KIND"."""
        return self._models.files

    def _measure(self) -> Curves:
        roles = {"model": self._models.target, "draft": self._models.draft}
        decoders = {role: decoder for role, decoder in roles.items() if decoder}
        return curves(decoders, self.files, _native.num_threads(), self._isa, self._models.drafters)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything that still runs, and save the past outputs that are to be kept."""
        for sequence in [*self.engine.scheduler.running, *self.engine.scheduler.waiting]:
            self.engine.abort(sequence)
        self.suffixes.close()

    def sequences(self, requests: Sequence[Request]) -> list[EngineSequence]:
        """A sequence for every choice of every request, ready for `engine.add`, for those who drive it themselves.

        The one thing here that any thread may call.

        Raises:
            RequestError, ConfigError: a prompt is empty or too long, or a parameter is not allowed.
        """
        return self._maker.make(requests)

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


def _context_length(arch: Architecture, asked: int | None) -> int:
    if asked is None:
        return min(arch.context_length, DEFAULT_CONTEXT)
    if not 2 <= asked <= arch.context_length:
        raise ConfigError(f"context_length is {asked}; this model allows 2 to {arch.context_length}")
    return asked
