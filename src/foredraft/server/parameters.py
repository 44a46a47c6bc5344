"""From a request's fields to SamplingParams and Speculation. Everything left out gets OpenAI's default."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

from foredraft.core import SamplingParams, Speculation
from foredraft.errors import ForedraftError
from foredraft.server.errors import ApiError
from foredraft.server.requests import ChatRequest, CompletionRequest, GenerationRequest, SpeculationOptions

COMPLETION_MAX_TOKENS = 16  # OpenAI's default, where a chat has none

_SAME_NAMES = (
    "n",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "stop_token_ids",
    "ignore_eos",
)


def sampling_params(body: ChatRequest | CompletionRequest, limit: int) -> SamplingParams:
    """The parameters. A seed is drawn where none is given, of 53 bits, which every reader of JSON keeps.

    limit: the most tokens that the server allows. A chat that leaves them open gets these, a completion 16.

    Raises:
        ApiError: a value is outside its range; its param is the request's own name for the field.
    """
    values: dict[str, Any] = {"temperature": 1.0}
    values |= {name: given for name in _SAME_NAMES if (given := getattr(body, name)) is not None}
    values["seed"] = secrets.randbits(53) if body.seed is None else body.seed
    values["logit_bias"] = _logit_bias(body.logit_bias or {})
    values["stop"] = [body.stop] if isinstance(body.stop, str) else body.stop or ()
    values["logprobs"] = _chat_logprobs(body) if isinstance(body, ChatRequest) else body.logprobs
    name, asked = max_tokens(body)
    if asked is not None and asked > limit:
        raise ApiError(400, f"{name} is {asked}; this server allows up to {limit}", param=name)
    default = limit if isinstance(body, ChatRequest) else min(limit, COMPLETION_MAX_TOKENS)
    values["max_tokens"] = default if asked is None else asked
    try:
        return SamplingParams(**values)
    except ForedraftError as error:
        raise ApiError.refusal(error, own_names(body)) from error


def own_names(body: ChatRequest | CompletionRequest) -> dict[str, str]:
    """What a request calls the fields that have another name elsewhere."""
    names = {"response_format.schema": "response_format.json_schema.schema"}
    if isinstance(body, CompletionRequest):
        return names
    return {**names, "max_tokens": max_tokens(body)[0], "logprobs": "top_logprobs", "prompt": "messages"}


def speculation(body: GenerationRequest, default: Speculation) -> Speculation:
    """How to draft for a request: as it says, else as the server was started.

    Raises:
        ApiError: a value is outside its range.
    """
    asked = SpeculationOptions(mode=body.speculation) if isinstance(body.speculation, str) else body.speculation
    if asked is None:
        return default
    values: dict[str, Any] = asked.model_dump(exclude={"proposer"}, exclude_none=True)
    if asked.proposer is not None:
        values["proposers"] = tuple(name.strip() for name in asked.proposer.split(","))
        if not all(values["proposers"]):
            message = f"speculation.proposer is {asked.proposer!r:.80}; give one name, or several with commas between"
            raise ApiError(400, message, param="speculation.proposer")
    try:
        return replace(default, **values)
    except ForedraftError as error:
        raise ApiError(400, str(error), param="speculation") from error


def max_tokens(body: ChatRequest | CompletionRequest) -> tuple[str, int | None]:
    """The name of the field that a request uses for it, and its value; None where it is left open."""
    if isinstance(body, CompletionRequest) or body.max_completion_tokens is None:
        return "max_tokens", body.max_tokens
    if body.max_tokens is not None:
        raise ApiError(400, "max_tokens is max_completion_tokens' older name; give one", param="max_tokens")
    return "max_completion_tokens", body.max_completion_tokens


def _chat_logprobs(body: ChatRequest) -> int | None:
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs is only there with logprobs: true", param="top_logprobs")
    return (body.top_logprobs or 0) if body.logprobs else None


def _logit_bias(biases: dict[str, float]) -> dict[int, float]:
    # The length first: Python refuses to read numbers of thousands of digits.
    bad = [key for key in biases if not (key.isdecimal() and len(key) < 12)]
    if bad:
        raise ApiError(400, f"logit_bias names {bad[0][:40]!r}; allowed are token ids", param="logit_bias")
    return {int(token): bias for token, bias in biases.items()}
