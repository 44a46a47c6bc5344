"""Speculative decoding that never changes the output. The public names load what they need when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foredraft.core import SamplingParams, Speculation, SpeculationStats
    from foredraft.engine.llm import LLM
    from foredraft.engine.results import Choice, Result
    from foredraft.engine.sequence import Chunk, TokenLogprobs
    from foredraft.errors import ForedraftError

__version__ = "0.1.0"

_HOMES = {
    "LLM": "foredraft.engine.llm",
    "Choice": "foredraft.engine.results",
    "Result": "foredraft.engine.results",
    "Chunk": "foredraft.engine.sequence",
    "TokenLogprobs": "foredraft.engine.sequence",
    "SamplingParams": "foredraft.core",
    "Speculation": "foredraft.core",
    "SpeculationStats": "foredraft.core",
    "ForedraftError": "foredraft.errors",
}

__all__ = [
    "LLM",
    "Choice",
    "Chunk",
    "ForedraftError",
    "Result",
    "SamplingParams",
    "Speculation",
    "SpeculationStats",
    "TokenLogprobs",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
