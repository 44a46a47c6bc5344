"""From what a caller asks for to sequences that the engine can run; all that can be refused is refused here."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from numbers import Integral

from foredraft.constraints.formats import ResponseFormat
from foredraft.constraints.matcher import Compiler, Matcher
from foredraft.core import Context, SamplingParams, Speculation
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.engine.stops import StopMatcher
from foredraft.errors import CapacityError, ConfigError, RequestError
from foredraft.governor.pools import DEFAULT
from foredraft.models.detokenizer import Detokenizer
from foredraft.models.tokenizer import Tokenizer
from foredraft.proposers import ALWAYS, GRAMMAR, PREDICTION
from foredraft.sampling.noise import noise_key

Prompt = str | Sequence[int]
Params = SamplingParams | Sequence[SamplingParams]
Formats = ResponseFormat | Sequence[ResponseFormat | None] | None


@dataclass(frozen=True)
class Request:
    """A prompt and what is wanted of it.

    prompt: text (special tokens in it count as such) or token ids. response_format: what the answer has to match
    (constraints/formats.py lists the types). prediction: what the output is expected to be, drafted from; empty for no
    idea. scope: prompts and outputs are found in the KV cache by requests of the same scope only. route: of which
    kind of traffic this is; what is learned of drafts is learned for each route.
    """

    prompt: Prompt
    params: SamplingParams
    speculation: Speculation
    response_format: ResponseFormat | None = None
    prediction: Prompt = ""
    scope: str = ""
    route: str = DEFAULT


def requests(
    prompts: str | Sequence[Prompt],
    params: Params,
    speculation: Speculation,
    response_format: Formats = None,
    prediction: str | Sequence[Prompt] = "",
    scope: str = "",
    route: str = DEFAULT,
) -> list[Request]:
    """A request for each prompt. Of all but speculation, scope and route there may be one for all, or one for each.

    Raises:
        ConfigError: there are more of them than prompts, or fewer.
    """
    each: Sequence[Prompt] = [prompts] if isinstance(prompts, str) else list(prompts)
    count = len(each)
    each_params = [params] * count if isinstance(params, SamplingParams) else params
    formats = [response_format] * count if isinstance(response_format, Mapping | None) else response_format
    predictions: Sequence[Prompt] = [prediction] * count if isinstance(prediction, str) else prediction
    own: dict[str, Sequence[object]] = {
        "params": each_params,
        "response formats": formats,
        "predictions": predictions,
    }
    for name, values in own.items():
        if len(values) != count:
            raise ConfigError(f"{count} prompts but {len(values)} {name}; give one, or one for each prompt")
    return [
        Request(one, its, speculation, format, expected, scope, route)
        for one, its, format, expected in zip(each, each_params, formats, predictions, strict=True)
    ]


@dataclass(frozen=True)
class _Checked:
    """A request in tokens, with its format compiled."""

    tokens: list[int]
    predicted: tuple[int, ...]
    constraint: Matcher | None


class SequenceMaker:
    """Makes the sequences of one model. Safe to use from any thread.

    context_length: tokens that a sequence may have; capacity: that the KV cache has room for. proposers: those that are
    asked where a request names none.
    """

    def __init__(self, tokenizer: Tokenizer, context_length: int, capacity: int, proposers: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._context_length, self._capacity = context_length, capacity
        self._proposers = tuple(proposers)
        self._compiler = Compiler(tokenizer)
        self._ids = count()

    def make(self, requests: Sequence[Request]) -> list[EngineSequence]:
        """A sequence for every choice of every request, all checked before any is made.

        Raises:
            RequestError, ConfigError: a prompt is empty or too long, or a parameter is not allowed.
        """
        compiled: dict[int, Matcher | None] = {}  # by identity: the prompts of one call may share a format
        checked = [self._check(request, compiled) for request in requests]
        return [
            sequence
            for number, (request, its) in enumerate(zip(requests, checked, strict=True))
            for sequence in self._choices(number, request, its)
        ]

    def _check(self, request: Request, compiled: dict[int, Matcher | None]) -> _Checked:
        prompt, expected, params = request.prompt, request.prediction, request.params
        if not isinstance(prompt, Iterable):
            raise RequestError(f"prompt {prompt!r} is neither text nor a list of token ids; give a list of prompts")
        unknown = set(request.speculation.proposers) - {*self._proposers, *ALWAYS}
        if unknown:
            loaded = ", ".join(dict.fromkeys((*ALWAYS, *self._proposers)))
            raise ConfigError(f"proposer {min(unknown)!r} is not loaded; loaded are {loaded}", "speculation")
        encode = self._tokenizer.encode
        tokens = encode(prompt, parse_special=True) if isinstance(prompt, str) else list(prompt)
        predicted = self._tokenizer.encode_continuation(expected) if isinstance(expected, str) else expected
        self._check_tokens(prompt=tokens, prediction=predicted, stop_token_ids=params.stop_token_ids)
        self._check_tokens(logit_bias=params.logit_bias)
        self._check_length(len(tokens), params)
        if len(predicted) > self._context_length:
            raise RequestError(
                f"the prediction has {len(predicted)} tokens, the context {self._context_length}; shorten it",
                "prediction",
            )
        return _Checked(tokens, tuple(predicted), self._constraint(request, compiled))

    def _check_tokens(self, **given: Iterable[int]) -> None:
        vocab_size = self._tokenizer.vocab_size
        for name, ids in given.items():
            bad = next((t for t in ids if not isinstance(t, Integral) or not 0 <= t < vocab_size), None)
            if bad is not None:
                raise RequestError(f"{name} has token {bad!r}; this model's tokens are 0 to {vocab_size - 1}", name)

    def _check_length(self, num_tokens: int, params: SamplingParams) -> None:
        if not num_tokens:
            raise RequestError("the prompt is empty; give at least one token", "prompt")
        if num_tokens >= self._context_length:
            raise RequestError(
                f"the prompt has {num_tokens} tokens, the context {self._context_length}, and one is needed for the "
                "answer; shorten the prompt or raise the context length",
                "prompt",
            )
        needed = min(num_tokens + params.max_tokens, self._context_length)
        if needed > self._capacity:
            raise CapacityError(
                f"prompt and max_tokens need room for {needed} tokens, the KV cache has {self._capacity}; "
                "lower max_tokens or raise kv_memory",
                "max_tokens",
            )

    def _constraint(self, request: Request, compiled: dict[int, Matcher | None]) -> Matcher | None:
        """What the answer has to match, compiled if it is not yet; every choice takes a copy. None for any text."""
        format = request.response_format
        if format is not None and id(format) not in compiled:
            compiled[id(format)] = self._compiler.compile(format)
        constraint = compiled.get(id(format))
        for name in ("ignore_eos", "min_tokens") if constraint else ():
            if value := getattr(request.params, name):
                raise RequestError(
                    f"{name} is {value}, but an answer with a response_format ends when it is complete", name
                )
        return constraint

    def _choices(self, number: int, request: Request, checked: _Checked) -> list[EngineSequence]:
        params, speculation, tokens = request.params, request.speculation, checked.tokens
        # What came with the request is asked first: it knows the most.
        own = [GRAMMAR] * bool(checked.constraint) + [PREDICTION] * bool(checked.predicted)
        proposers = tuple(dict.fromkeys((*own, *(speculation.proposers or self._proposers))))
        seed = secrets.randbits(64) if params.seed is None else params.seed
        choices: list[EngineSequence] = []
        for choice in range(params.n):
            context = Context(
                next(self._ids),
                list(tokens),
                len(tokens),
                params,
                noise_key(seed, choice),
                speculation.rule,
                prediction=checked.predicted,
                scope=request.scope,
                constraint=checked.constraint.copy() if checked.constraint else None,
            )
            choices.append(
                EngineSequence(
                    context=context,
                    request=number,
                    choice=choice,
                    seed=seed,
                    speculation=speculation,
                    proposers=proposers,
                    eos_ids=self._tokenizer.eos_ids,
                    detokenizer=Detokenizer(self._tokenizer),
                    stops=StopMatcher(params.stop),
                    token_limit=min(len(tokens) + params.max_tokens, self._context_length),
                    route=request.route,
                    leader=choices[0] if choices else None,
                )
            )
        return choices
