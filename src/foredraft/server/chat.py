"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel

from foredraft.engine.sequence import Chunk, Sequence
from foredraft.errors import TemplateError
from foredraft.server import documentation
from foredraft.server.answer import Answer, Form
from foredraft.server.errors import ApiError
from foredraft.server.jobs import Wish, finish_reason, make_job
from foredraft.server.logprobs import chat_logprobs
from foredraft.server.parsers.events import Content, Event, Reasoning, ToolCallArguments, ToolCallStart
from foredraft.server.parsers.output import OutputParser
from foredraft.server.requests import AssistantMessage, ChatMessage, ChatRequest, ToolMessage
from foredraft.server.responses import (
    CalledFunction,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatLogprobs,
    Delta,
    FinishReason,
    Message,
    ToolCall,
    ToolCallDelta,
)
from foredraft.server.service import Service
from foredraft.server.tools import ToolUse, tool_use
from foredraft.server.usage import speculation_report, usage

_NUM_LAST_TOKENS = 16  # of a prompt, to see whether it opens the model's reasoning


def router(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/chat/completions", responses=documentation.responses(ChatCompletion, ChatCompletionChunk))
    async def chat_completions(body: ChatRequest, request: Request) -> Answer:
        """Answer a conversation."""
        tools = tool_use(body, service.llm.chat_template)
        _check_calls_are_known(body.messages)
        messages = [message.model_dump(exclude_none=True) for message in body.messages]

        def prompts() -> list[list[int]]:
            try:
                return [service.llm.chat_tokens(messages, tools.shown)]
            except TemplateError as error:
                raise ApiError.refusal(error, {"": "messages"}) from error

        wish = Wish(
            num_prompts=1,
            prompts=prompts,
            form=lambda head, sequences: ChatForm(service, head, sequences, tools),
            response_format=tools.response_format,
        )
        return Answer(service, make_job(service, request, body, wish))

    return routes


def _check_calls_are_known(messages: list[ChatMessage]) -> None:
    """A tool's message answers a call that was made before it."""
    known: set[str] = set()
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            known.update(call.id for call in message.tool_calls or ())
        if isinstance(message, ToolMessage) and message.tool_call_id not in known:
            param = f"messages.{index}.tool_call_id"
            raise ApiError(400, f"{param} names no call of a message before it", param=param)


class ChatForm(Form):
    """Chat answers. `head` holds the fields that every object begins with."""

    def __init__(self, service: Service, head: dict[str, Any], sequences: list[Sequence], tools: ToolUse) -> None:
        self._tokenizer, self._head, self._sequences = service.llm.tokenizer, head, sequences
        self._governor = service.llm.governor
        self._begun: set[int] = set()
        self._parsers = [_parser(service, sequence, tools) for sequence in sequences]

    def whole(self, chunks: list[list[Chunk]]) -> BaseModel:
        return ChatCompletion(
            **self._head,
            choices=[self._choice(index, own) for index, own in enumerate(chunks)],
            usage=usage(self._sequences),
            speculation=speculation_report(self._sequences, self._governor),
        )

    def pieces(self, index: int, chunks: list[Chunk]) -> list[BaseModel]:
        parser, is_last = self._parsers[index], chunks[-1].finish_reason is not None
        events = [event for chunk in chunks for event in parser.push(chunk.text)]
        events += parser.flush() if is_last else []
        delta, logprobs = _delta(events), self._logprobs(chunks)
        if index not in self._begun:
            self._begun.add(index)
            delta.role = "assistant"
        pieces: list[ChatDelta] = []
        if delta.model_fields_set or logprobs:
            pieces.append(ChatDelta(index=index, delta=delta, logprobs=logprobs, finish_reason=None))
        if is_last:
            reason = self._finish_reason(index, chunks[-1])
            pieces.append(ChatDelta(index=index, delta=Delta(), logprobs=None, finish_reason=reason))
        return [self._piece([piece]) for piece in pieces]

    def last_piece(self) -> BaseModel:
        piece = self._piece([])
        piece.usage, piece.speculation = usage(self._sequences), speculation_report(self._sequences, self._governor)
        return piece

    def _choice(self, index: int, chunks: list[Chunk]) -> ChatChoice:
        found = self._parsers[index].parse("".join(chunk.text for chunk in chunks))
        calls = [
            ToolCall(id=call.id, function=CalledFunction(name=call.name, arguments=call.arguments))
            for call in found.tool_calls
        ]
        return ChatChoice(
            index=index,
            message=Message(
                content=found.content or (None if calls else ""),
                reasoning_content=found.reasoning or None,
                tool_calls=calls or None,
            ),
            logprobs=self._logprobs(chunks),
            finish_reason=self._finish_reason(index, chunks[-1]),
        )

    def _finish_reason(self, index: int, last: Chunk) -> FinishReason:
        reason = finish_reason(last)
        parser = self._parsers[index]
        return "tool_calls" if parser.num_calls and (reason == "stop" or parser.is_full) else reason

    def _piece(self, choices: list[ChatDelta]) -> ChatCompletionChunk:
        return ChatCompletionChunk(**self._head, object="chat.completion.chunk", choices=choices)

    def _logprobs(self, chunks: list[Chunk]) -> ChatLogprobs | None:
        is_asked = self._sequences[0].context.params.logprobs is not None
        return chat_logprobs(chunks, self._tokenizer) if is_asked else None


def _parser(service: Service, sequence: Sequence, tools: ToolUse) -> OutputParser:
    context = sequence.context
    # A format holds from the first token on, so that there is no reasoning before it, whatever the prompt has opened.
    end = "" if context.constraint else service.llm.tokenizer.decode(context.prompt[-_NUM_LAST_TOKENS:])
    return OutputParser(service.llm.chat_template or "", end, tools.names, tools.max_calls)


def _delta(events: list[Event]) -> Delta:
    """All that was found since the last piece. A parser tells of a call when it is complete."""
    content = "".join(event.text for event in events if isinstance(event, Content))
    reasoning = "".join(event.text for event in events if isinstance(event, Reasoning))
    arguments = {event.index: event.text for event in events if isinstance(event, ToolCallArguments)}
    calls = [
        ToolCallDelta(
            index=event.index,
            id=event.id,
            type="function",
            function=CalledFunction(name=event.name, arguments=arguments[event.index]),
        )
        for event in events
        if isinstance(event, ToolCallStart)
    ]
    found: dict[str, Any] = {"content": content, "reasoning_content": reasoning, "tool_calls": calls}
    return Delta(**{name: value for name, value in found.items() if value})
