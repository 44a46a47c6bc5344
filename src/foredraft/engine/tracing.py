"""Writing a trace of what an engine's governor decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foredraft.engine.llm import LLM
from foredraft.governor.trace import TraceWriter


def record_into(llm: LLM, writer: TraceWriter) -> None:
    """From the next step on, write what the model's governor decides and what becomes of it.

    Whoever listens to the governor and to steps already goes on to do so.
    """
    engine = llm.engine
    engine.governor.on_plan = _both(writer.plan, engine.governor.on_plan)
    engine.on_step = _both(writer.step, engine.on_step)


def _both(first: Callable[..., None], second: Callable[..., None] | None) -> Callable[..., None]:
    def both(*values: Any) -> None:
        first(*values)
        if second:
            second(*values)

    return both
