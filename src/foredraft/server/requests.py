"""What clients may ask for. A field that is not here is refused by name, and so is a value that would not be honored.

Ranges of the sampling parameters are those of SamplingParams, checked there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Work is done for each of these at every token, for everybody who waits.
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_STOP_TOKENS = 128
MAX_BIASES = 1024
MAX_TOOLS = 128
MAX_METADATA = 16

_T = TypeVar("_T")
# The first wrong item is refused: an error for each of a million would take seconds and gigabytes.
List = Annotated[list[_T], Field(fail_fast=True)]


class Strict(BaseModel):
    """No unknown fields, no guessing at types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class SpeculationOptions(Strict):
    """How to draft for this request; what is left out is as the server was started with."""

    mode: str | None = None
    k: int | None = None
    proposer: str | None = Field(default=None, description="Names in order, separated by commas.")
    rule: str | None = None
    tree_width: int | None = None


Stop = Annotated[str, Field(max_length=MAX_STOP_CHARS)]


class StreamOptions(Strict):
    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class TextFormat(Strict):
    type: Literal["text"]

    def as_format(self) -> None:
        """No constraint."""


class JsonObjectFormat(Strict):
    type: Literal["json_object"]

    def as_format(self) -> dict[str, Any]:
        return {"type": self.type}


class JsonSchema(Strict):
    """The answer follows it whatever `strict` says; `name` is a label."""

    name: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(Strict):
    type: Literal["json_schema"]
    json_schema: JsonSchema

    def as_format(self) -> dict[str, Any]:
        return {"type": self.type, "schema": self.json_schema.schema_}


class RegexFormat(Strict):
    type: Literal["regex"]
    regex: str

    def as_format(self) -> dict[str, Any]:
        return {"type": self.type, "regex": self.regex}


class GrammarFormat(Strict):
    """In llguidance's dialect of Lark."""

    type: Literal["grammar"]
    grammar: str

    def as_format(self) -> dict[str, Any]:
        return {"type": self.type, "grammar": self.grammar}


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat | RegexFormat | GrammarFormat, Field(discriminator="type")
]


class TextPart(Strict):
    type: Literal["text"]
    text: str


class Prediction(Strict):
    """What the caller expects the answer to be; text parts are joined as they are."""

    type: Literal["content"]
    content: str | List[TextPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


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
    stop: Stop | Annotated[List[Stop], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[List[int], Field(max_length=MAX_STOP_TOKENS)] | None = None
    ignore_eos: bool | None = None
    seed: int | None = None
    response_format: ResponseFormat | None = None
    prediction: Prediction | None = None
    speculation: str | SpeculationOptions | None = None
    user: str | None = None
    metadata: dict[str, str] | None = Field(default=None, max_length=MAX_METADATA)
    store: Literal[False] | None = None


class CalledFunction(Strict):
    name: str
    arguments: str


class ToolCall(Strict):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class TextMessage(Strict):
    role: Literal["system", "developer", "user"]
    content: str | List[TextPart]


class AssistantMessage(Strict):
    """The fields that can only be null are those that an answer's message has when it is sent back."""

    role: Literal["assistant"]
    content: str | List[TextPart] | None = None
    reasoning_content: str | None = None
    tool_calls: List[ToolCall] | None = None
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if self.content is None and not self.tool_calls:
            raise ValueError("content is required where there are no tool_calls")
        return self


class ToolMessage(Strict):
    """What a function that was called has returned."""

    role: Literal["tool"]
    content: str | List[TextPart]
    tool_call_id: str


ChatMessage = Annotated[TextMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class Function(Strict):
    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = Field(default=None, description="Only with a tool_choice that forces calls.")


class Tool(Strict):
    type: Literal["function"]
    function: Function


class NamedFunction(Strict):
    name: str


class NamedToolChoice(Strict):
    type: Literal["function"]
    function: NamedFunction


class ChatRequest(GenerationRequest):
    messages: List[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: List[Tool] | None = Field(default=None, min_length=1, max_length=MAX_TOOLS)
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: bool | None = None


class CompletionRequest(GenerationRequest):
    prompt: str | List[str] | List[int] | List[List[int]]
    logprobs: int | None = None
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    suffix: Literal[""] | None = None


class TokenizeRequest(Strict):
    """Text as /v1/completions reads it, or messages as /v1/chat/completions does."""

    model: str | None = None
    prompt: str | None = None
    messages: List[ChatMessage] | None = Field(default=None, min_length=1)
    add_special_tokens: bool = Field(
        default=True, description="Begin with the token that the model wants first, if any."
    )


class DetokenizeRequest(Strict):
    model: str | None = None
    tokens: List[int]
