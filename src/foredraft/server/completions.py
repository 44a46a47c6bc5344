"""POST /v1/completions: text, or token ids, continued as they are."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel

from foredraft.engine.sequence import Chunk, Sequence
from foredraft.server import documentation
from foredraft.server.answer import Answer, Form
from foredraft.server.errors import ApiError
from foredraft.server.jobs import Wish, finish_reason, make_job
from foredraft.server.logprobs import CompletionLogprobsForm
from foredraft.server.requests import CompletionRequest
from foredraft.server.responses import Completion, CompletionChoice, CompletionChunk, FinishReason
from foredraft.server.service import Service
from foredraft.server.usage import speculation_report, usage


def router(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/completions", responses=documentation.responses(Completion, CompletionChunk))
    async def completions(body: CompletionRequest, request: Request) -> Answer:
        """Continue one or more prompts. Strings of special tokens in a prompt count as these tokens."""
        prompts = _prompts(body)

        def tokens() -> list[list[int]]:
            encode = service.llm.tokenizer.encode
            return [encode(one, parse_special=True) if isinstance(one, str) else one for one in prompts]

        wish = Wish(len(prompts), tokens, partial(CompletionForm, service))
        return Answer(service, make_job(service, request, body, wish))

    return routes


def _prompts(body: CompletionRequest) -> list[str | list[int]]:
    if isinstance(body.prompt, str):
        return [body.prompt]
    token_ids = [one for one in body.prompt if isinstance(one, int)]
    prompts: list[str | list[int]] = [one for one in body.prompt if not isinstance(one, int)]
    prompts += [token_ids] * bool(token_ids)
    if not prompts:
        raise ApiError(400, "prompt is an empty list; give at least one prompt", param="prompt")
    return prompts


class CompletionForm(Form):
    """Completions. `head` holds the fields that every object begins with."""

    def __init__(self, service: Service, head: dict[str, Any], sequences: list[Sequence]) -> None:
        self._head, self._sequences, self._governor = head, sequences, service.llm.governor
        has_logprobs = sequences[0].context.params.logprobs is not None
        self._logprobs = [CompletionLogprobsForm(service.llm.tokenizer) for _ in sequences] if has_logprobs else None

    def whole(self, chunks: list[list[Chunk]]) -> BaseModel:
        choices = [self._choice(index, own, finish_reason(own[-1])) for index, own in enumerate(chunks)]
        report = speculation_report(self._sequences, self._governor)
        return Completion(**self._head, choices=choices, usage=usage(self._sequences), speculation=report)

    def pieces(self, index: int, chunks: list[Chunk]) -> list[BaseModel]:
        reason = finish_reason(chunks[-1]) if chunks[-1].finish_reason else None
        choice = self._choice(index, chunks, reason)
        return [self._piece([choice])] if choice.text or choice.logprobs or reason else []

    def last_piece(self) -> BaseModel:
        piece = self._piece([])
        piece.usage, piece.speculation = usage(self._sequences), speculation_report(self._sequences, self._governor)
        return piece

    def _piece(self, choices: list[CompletionChoice]) -> CompletionChunk:
        return CompletionChunk(**self._head, object="text_completion", choices=choices)

    def _choice(self, index: int, chunks: list[Chunk], reason: FinishReason | None) -> CompletionChoice:
        return CompletionChoice(
            index=index,
            text="".join(chunk.text for chunk in chunks),
            logprobs=self._logprobs[index].add(chunks) if self._logprobs else None,
            finish_reason=reason,
        )
