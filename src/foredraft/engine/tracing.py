"""Writing a trace of what an engine's governor decides."""

from __future__ import annotations

from foredraft.engine.llm import LLM
from foredraft.governor.trace import TraceWriter


def record_into(llm: LLM, writer: TraceWriter) -> None:
    """From the next step on, write what the model's governor decides and what becomes of it."""
    llm.governor.on_plan.append(writer.plan)
    llm.engine.on_step.append(writer.step)
