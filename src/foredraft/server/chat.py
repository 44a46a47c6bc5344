"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from foredraft.engine.sequence import Chunk, Sequence
from foredraft.server import documentation
from foredraft.server.answer import Answer, Form
from foredraft.server.jobs import finish_reason, make_job
from foredraft.server.logprobs import chat_logprobs
from foredraft.server.requests import ChatRequest
from foredraft.server.responses import (
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatLogprobs,
    Delta,
    Message,
)
from foredraft.server.service import Service
from foredraft.server.usage import speculation_report, usage


def router(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/chat/completions", responses=documentation.responses(ChatCompletion, ChatCompletionChunk))
    async def chat_completions(body: ChatRequest) -> Answer:
        """Answer a conversation."""
        messages = [message.as_template_input() for message in body.messages]
        job = make_job(service, body, 1, lambda: [service.llm.chat_tokens(messages)], ChatForm)
        return Answer(service, job)

    return routes


class ChatForm(Form):
    """Chat answers. `head` holds the fields that every object begins with."""

    def __init__(self, service: Service, head: dict[str, Any], sequences: list[Sequence]) -> None:
        self._tokenizer, self._head, self._sequences = service.llm.tokenizer, head, sequences
        self._begun: set[int] = set()

    def whole(self, chunks: list[list[Chunk]]) -> BaseModel:
        return ChatCompletion(
            **self._head,
            choices=[
                ChatChoice(
                    index=index,
                    message=Message(content="".join(chunk.text for chunk in own)),
                    logprobs=self._logprobs(own),
                    finish_reason=finish_reason(own[-1]),
                )
                for index, own in enumerate(chunks)
            ],
            usage=usage(self._sequences),
            speculation=speculation_report(self._sequences),
        )

    def pieces(self, index: int, chunks: list[Chunk]) -> list[BaseModel]:
        text, logprobs = "".join(chunk.text for chunk in chunks), self._logprobs(chunks)
        is_first = index not in self._begun
        self._begun.add(index)
        pieces: list[ChatDelta] = []
        if text or logprobs or is_first:
            delta = Delta(role="assistant", content=text) if is_first else Delta(content=text)
            pieces.append(ChatDelta(index=index, delta=delta, logprobs=logprobs, finish_reason=None))
        if chunks[-1].finish_reason:
            reason = finish_reason(chunks[-1])
            pieces.append(ChatDelta(index=index, delta=Delta(), logprobs=None, finish_reason=reason))
        return [self._piece([piece]) for piece in pieces]

    def last_piece(self) -> BaseModel:
        piece = self._piece([])
        piece.usage, piece.speculation = usage(self._sequences), speculation_report(self._sequences)
        return piece

    def _piece(self, choices: list[ChatDelta]) -> ChatCompletionChunk:
        return ChatCompletionChunk(**self._head, object="chat.completion.chunk", choices=choices)

    def _logprobs(self, chunks: list[Chunk]) -> ChatLogprobs | None:
        is_asked = self._sequences[0].context.params.logprobs is not None
        return chat_logprobs(chunks, self._tokenizer) if is_asked else None
