"""No request's body is read beyond a limit."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foredraft.server.errors import ApiError


class BodyLimit:
    """Middleware that answers 413 where a body is announced, or turns out, to be longer than `max_bytes`."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        num_bytes = 0

        async def receive_within_limit() -> Message:
            nonlocal num_bytes
            self._check(int(announced) if announced.isdigit() else 0)
            message = await receive()
            num_bytes += len(message.get("body", b""))
            self._check(num_bytes)
            return message

        await self._app(scope, receive_within_limit, send)

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            sentence = f"the body has more than {self._max_bytes} bytes, this server's limit; send less"
            raise ApiError(413, sentence, code="body_too_large")
