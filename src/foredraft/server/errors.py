"""Errors as OpenAI's clients know them: a status, and {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from foredraft.errors import ForedraftError, UnavailableError

_TYPES = {401: "authentication_error", 408: "timeout_error", 429: "rate_limit_error"}
_LONGEST_PARAM = 100


class ApiError(HTTPException):
    """A request is answered with this instead: a status, a sentence, the field to blame, and a code for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.param, self.code = param, code

    @classmethod
    def refusal(cls, error: ForedraftError, names: Mapping[str, str] | None = None) -> ApiError:
        """What was asked for cannot be done: 400 with the error's own sentence and field, or that field's name here.

        503 where it is this machine that cannot do it.
        """
        if isinstance(error, UnavailableError):
            return cls(503, str(error), code="unavailable")
        field = error.field or ""
        return cls(400, str(error), param=(names or {}).get(field, error.field))

    def body(self) -> bytes:
        """The error as JSON, in ASCII: a name that a client sent may hold what UTF-8 cannot say."""
        kind = _TYPES.get(self.status_code, "invalid_request_error" if self.status_code < 500 else "server_error")
        error = {"message": self.detail, "type": kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()

    def response(self) -> Response:
        return Response(self.body(), self.status_code, self.headers, "application/json")


def install(app: FastAPI) -> None:
    """Give every error of the app this form."""

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _invalid(error.errors()).response()

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return (error if isinstance(error, ApiError) else _http_error(request, error)).response()

    async def bug(_: Request, error: Exception) -> Response:
        return ApiError(500, "the server failed at this request; its log says how", code="internal_error").response()

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, bug)


def _invalid(errors: Sequence[Any]) -> ApiError:
    """What is wrong with a body: the first field that is, with all that was expected of it."""
    # A union has an error for each of its kinds; the one that reached furthest is about the kind that was meant.
    first = max((error for error in errors if error["loc"][:2] == errors[0]["loc"][:2]), key=lambda e: len(e["loc"]))
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}")
    if first["type"] == "string_unicode":
        return ApiError(400, "a field's name is not Unicode text: it holds a lone surrogate")
    param = _param(first)
    if param is None:
        return ApiError(400, "the body has to be a JSON object, sent with Content-Type: application/json")
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{param} is not supported; leave it out", param=param, code="unsupported_field")
    expected = dict.fromkeys(error["msg"] for error in errors if _param(error) == param)
    return ApiError(400, f"{param}: {'; or '.join(expected)}", param=param, code="invalid_value")


def _param(error: Mapping[str, Any]) -> str | None:
    """A field's name as OpenAI writes it (messages.0.content), without what pydantic calls the parts of a union."""
    loc = _without_tag(error["loc"][1:], error["type"].startswith("union_tag"))
    unknown = len(loc) - 1 if error["type"] == "extra_forbidden" else None  # may be called anything
    parts = [str(part) for i, part in enumerate(loc) if i == unknown or not _is_kind(part)]
    return ".".join(parts)[:_LONGEST_PARAM] or None


def _without_tag(loc: Sequence[str | int], is_tag_wrong: bool) -> Sequence[str | int]:
    """A location without what pydantic adds for a union by a field's value, or with that field if it is to blame."""
    depth, field = {"messages": (2, "role"), "response_format": (1, "type")}.get(str(loc[0]) if loc else "", (0, ""))
    if is_tag_wrong:
        return [*loc, field]
    return [*loc[:depth], *loc[depth + 1 :]] if depth else loc


def _is_kind(part: str | int) -> bool:
    """Whether a part of a location is what pydantic calls a kind of a union, such as str or list[TextPart]."""
    return isinstance(part, str) and (part in ("str", "int") or not (part.isidentifier() and part.islower()))


def _http_error(request: Request, error: HTTPException) -> ApiError:
    """What the framework refuses by itself."""
    route = f"{request.method} {request.url.path}"
    sentences = {
        400: "the body cannot be read as JSON: it is nested too deeply, has too long a number or is not UTF-8",
        404: f"there is no {route}; see /openapi.json",
        405: f"{route} is not allowed; the answer's Allow header says what is",
    }
    return ApiError(error.status_code, sentences.get(error.status_code, str(error.detail)), headers=error.headers)
