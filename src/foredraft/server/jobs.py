"""From a request to a job: what chats and completions have in common."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from foredraft.core import SamplingParams
from foredraft.engine.requests import Request
from foredraft.engine.sequence import Chunk, Sequence
from foredraft.server.answer import Form, Job
from foredraft.server.errors import ApiError
from foredraft.server.parameters import max_tokens, own_names, sampling_params, speculation
from foredraft.server.requests import ChatRequest, CompletionRequest
from foredraft.server.responses import FinishReason
from foredraft.server.service import Service


def make_job(
    service: Service,
    body: ChatRequest | CompletionRequest,
    num_prompts: int,
    prompts: Callable[[], list[list[int]]],
    form: Callable[[Service, dict[str, Any], list[Sequence]], Form],
) -> Job:
    """The job of a request.

    prompts: token ids; called in a thread of its own. form: gets the fields that every object begins with.

    Raises:
        ApiError: a field has a value that is not allowed here.
    """
    service.check_model(body.model)
    if body.stream_options and not body.stream:
        raise ApiError(400, "stream_options are only there with stream: true", param="stream_options")
    params = sampling_params(body, service.max_tokens)
    how = speculation(body, service.config.speculation)
    kind = "chatcmpl" if isinstance(body, ChatRequest) else "cmpl"
    head = {
        "id": f"{kind}-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": service.model_name,
        "seed": params.seed,
    }
    is_open = max_tokens(body)[1] is None

    def params_for(tokens: list[int]) -> SamplingParams:
        room = min(service.llm.context_length, service.llm.capacity) - len(tokens)
        return replace(params, max_tokens=max(1, min(params.max_tokens, room))) if is_open else params

    def prepare() -> list[Sequence]:
        return service.llm.sequences([Request(tokens, params_for(tokens), how) for tokens in prompts()])

    return Job(
        num_sequences=num_prompts * params.n,
        prepare=prepare,
        names=own_names(body),
        form=lambda sequences: form(service, head, sequences),
        is_stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
    )


def finish_reason(last: Chunk) -> FinishReason:
    """Of a choice's last chunk."""
    return "stop" if last.finish_reason == "stop" else "length"
