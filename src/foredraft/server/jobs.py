"""From a request to a job: what chats and completions have in common."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request as HttpRequest

from foredraft.constraints.formats import ResponseFormat
from foredraft.core import SamplingParams
from foredraft.engine.requests import Request
from foredraft.engine.sequence import Chunk, Sequence
from foredraft.errors import RequestError
from foredraft.server.answer import Form, Job
from foredraft.server.auth import cache_scope
from foredraft.server.errors import ApiError
from foredraft.server.parameters import max_tokens, own_names, sampling_params, speculation
from foredraft.server.requests import ChatRequest, CompletionRequest
from foredraft.server.responses import FinishReason
from foredraft.server.service import Service


@dataclass(frozen=True)
class Wish:
    """What differs between the ways to ask.

    prompts: makes the token ids of this many; called in a thread of its own. form: gets the fields that every object
    begins with. response_format: in place of what the body says of it.
    """

    num_prompts: int
    prompts: Callable[[], list[list[int]]]
    form: Callable[[dict[str, Any], list[Sequence]], Form]
    response_format: ResponseFormat | None = None


def make_job(service: Service, request: HttpRequest, body: ChatRequest | CompletionRequest, wish: Wish) -> Job:
    """The job of a request, which thereby gets its route.

    Raises:
        ApiError: a field has a value that is not allowed here.
    """
    route = service.route(request, body.model)
    service.check_model(body.model)
    if body.stream_options and not body.stream:
        raise ApiError(400, "stream_options are only there with stream: true", param="stream_options")
    params = sampling_params(body, service.max_tokens)
    asked = None if body.response_format is None else body.response_format.as_format()
    prediction = body.prediction.text if body.prediction else ""
    how = speculation(body, service.config.speculation)
    scope = cache_scope(request)
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
        format = wish.response_format or asked
        each = wish.prompts()
        try:
            return service.llm.sequences(
                [Request(tokens, params_for(tokens), how, format, prediction, scope, route) for tokens in each]
            )
        except RequestError as error:
            if format is wish.response_format is not None and error.field == "response_format.grammar":
                message = f"calls with the parameters of these functions cannot be forced: {error}"
                raise ApiError(400, message, param="tools") from error
            raise

    return Job(
        num_sequences=wish.num_prompts * params.n,
        prepare=prepare,
        has_format=(wish.response_format or asked) is not None,
        names=own_names(body),
        form=lambda sequences: wish.form(head, sequences),
        is_stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
    )


def finish_reason(last: Chunk) -> FinishReason:
    """Of a choice's last chunk."""
    return "stop" if last.finish_reason == "stop" else "length"
