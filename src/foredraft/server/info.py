"""The routes that run nothing: what is served, how it is, and text to tokens and back."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from foredraft import __version__
from foredraft.errors import ForedraftError
from foredraft.server import documentation
from foredraft.server.counting import CONTENT_TYPE
from foredraft.server.errors import ApiError
from foredraft.server.requests import DetokenizeRequest, TokenizeRequest
from foredraft.server.responses import Health, Model, ModelList, Text, Tokens, Version
from foredraft.server.service import Service


def router(service: Service) -> APIRouter:
    errors: dict[str, Any] = {"responses": documentation.ERRORS}
    routes = APIRouter()

    @routes.get("/health", **errors)
    async def health() -> Health:
        """200 while requests are taken; 503 before, after, and where the engine has failed."""
        service.engine.check_ready()
        return Health()

    @routes.get("/version", **errors)
    async def version() -> Version:
        return Version(version=__version__)

    @routes.get("/metrics", response_class=Response, **errors)
    async def metrics() -> Response:
        """For Prometheus (docs/metrics.md)."""
        service.metrics.outputs(service.llm.suffixes)
        service.metrics.load(*service.load(), service.llm.engine.scheduler.kv_use)
        return Response(service.metrics.render(), media_type=CONTENT_TYPE)

    @routes.get("/v1/models", **errors)
    async def models() -> ModelList:
        return ModelList(data=[_model(service, name) for name in service.model_names])

    @routes.get("/v1/models/{name:path}", **errors)
    async def model(name: str) -> Model:
        service.check_model(name)
        return _model(service, name)

    @routes.post("/tokenize", **errors)
    async def tokenize(body: TokenizeRequest) -> Tokens:
        service.check_model(body.model)
        tokens = await _in_thread(_tokens, service, body)
        return Tokens(tokens=tokens, count=len(tokens), max_model_len=service.llm.context_length)

    @routes.post("/detokenize", **errors)
    async def detokenize(body: DetokenizeRequest) -> Text:
        service.check_model(body.model)
        return Text(prompt=await _in_thread(service.llm.tokenizer.decode, body.tokens))

    return routes


def _model(service: Service, name: str) -> Model:
    return Model(id=name, created=service.started)


def _tokens(service: Service, body: TokenizeRequest) -> list[int]:
    if body.messages is not None and body.prompt is None:
        return service.llm.chat_tokens([message.model_dump(exclude_none=True) for message in body.messages])
    if body.prompt is None or body.messages is not None:
        raise ApiError(400, "give either prompt or messages", param="prompt")
    return service.llm.tokenizer.encode(body.prompt, add_bos=body.add_special_tokens, parse_special=True)


async def _in_thread(function: Any, *arguments: Any) -> Any:
    """Run what may take long for a long text beside the event loop; its refusals become answers."""
    try:
        return await asyncio.to_thread(function, *arguments)
    except ForedraftError as error:
        raise ApiError.refusal(error) from error
