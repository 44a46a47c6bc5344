"""What clients get: OpenAI's objects, and in them `speculation` beside `usage`, and `seed`, which reproduces them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

FinishReason = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(BaseModel):
    cached_tokens: int
    audio_tokens: int = 0


class CompletionTokensDetails(BaseModel):
    """Tokens that were drafted from the request's prediction, by what the target made of them."""

    audio_tokens: int = 0
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(BaseModel):
    """completion_tokens counts every token that was decided, the one that ended the text included."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class SpeculationReport(BaseModel):
    """What drafting did for a request, over all its choices; `off_reason` says why nothing was drafted."""

    mode: str
    proposer: str | None
    num_drafts: int
    num_draft_tokens: int
    num_accepted: int
    accepted_per_position: list[int]
    tokens_per_step: float | None
    off_reason: Literal["requested", "pool", "no_proposer", "no_draft"] | None


class LikelyToken(BaseModel):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(LikelyToken):
    top_logprobs: list[LikelyToken]


class ChatLogprobs(BaseModel):
    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class CalledFunction(BaseModel):
    """`arguments` is a JSON object as text."""

    name: str
    arguments: str


class ToolCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(BaseModel):
    """`content` is null where there are only tool calls."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ToolCallDelta(ToolCall):
    """A call comes in one piece, when it is complete."""

    index: int


class Delta(BaseModel):
    """Only the fields that are set are sent."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatDelta(BaseModel):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None


class Head(BaseModel):
    """What every object of an answer begins with."""

    id: str
    created: int
    model: str
    seed: int


class Whole(Head):
    usage: Usage
    speculation: SpeculationReport


class Piece(Head):
    """Part of a stream. `usage` and `speculation` are in the last piece alone, and only if asked for."""

    usage: Usage | None = None
    speculation: SpeculationReport | None = None


class ChatCompletion(Whole):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]


class ChatCompletionChunk(Piece):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatDelta]


class Completion(Whole):
    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]


class CompletionChunk(Piece):
    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "foredraft"


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


class Tokens(BaseModel):
    tokens: list[int]
    count: int
    max_model_len: int


class Text(BaseModel):
    prompt: str


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Version(BaseModel):
    version: str


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    error: ErrorDetail
