"""What clients may ask for. A field that is not here is refused by name, and so is a value that would not be honored.

Ranges of the sampling parameters are those of SamplingParams, checked there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# Work is done for each of these at every token, for everybody who waits.
MAX_STOPS = 16
MAX_STOP_TOKENS = 128
MAX_BIASES = 1024


class Strict(BaseModel):
    """No unknown fields, no guessing at types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class SpeculationOptions(Strict):
    """How to draft for this request; what is left out is as the server was started with."""

    mode: str | None = None
    k: int | None = None
    proposer: str | None = Field(default=None, description="Names in order, separated by commas.")
    rule: str | None = None


class StreamOptions(Strict):
    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class TextFormat(Strict):
    type: Literal["text"]


class GenerationRequest(Strict):
    """What both ways to ask have in common. The fields after `seed` ask for nothing and are taken as they are."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = Field(default=None, max_length=MAX_BIASES)
    stop: str | Annotated[list[str], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=MAX_STOP_TOKENS)] | None = None
    ignore_eos: bool | None = None
    seed: int | None = None
    speculation: str | SpeculationOptions | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: Literal[False] | None = None


class TextPart(Strict):
    type: Literal["text"]
    text: str


class ChatMessage(Strict):
    """The fields that can only be null are those that an answer's message has when it is sent back."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart]
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: None = None

    def as_template_input(self) -> dict[str, Any]:
        content = self.content
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        return {"role": self.role, "content": text}


class ChatRequest(GenerationRequest):
    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: TextFormat | None = None


class CompletionRequest(GenerationRequest):
    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = None
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    suffix: Literal[""] | None = None


class TokenizeRequest(Strict):
    """Text as /v1/completions reads it, or messages as /v1/chat/completions does."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = Field(default=None, min_length=1)
    add_special_tokens: bool = Field(
        default=True, description="Begin with the token that the model wants first, if any."
    )


class DetokenizeRequest(Strict):
    model: str | None = None
    tokens: list[int]
