"""What the OpenAPI document says about answers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from foredraft.server.responses import ErrorBody

ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request is refused; the message says why."},
    "5XX": {"model": ErrorBody, "description": "The server is stopping, or something is broken."},
}


def responses(whole: type[BaseModel], piece: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """An answer that comes whole, or with `stream` as events that are pieces."""
    name = piece.__name__
    stream = {"schema": {"type": "string", "description": f"Each event's data is a {name}; the last one's is [DONE]."}}
    return {200: {"model": whole, "content": {"text/event-stream": stream}}, **ERRORS}
