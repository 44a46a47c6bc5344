"""No request's body is read beyond a limit of size or time."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foredraft.server.errors import ApiError


class BodyLimit:
    """Middleware that answers 413 where a body is announced, or turns out, to be longer than `max_bytes`, and 408 where
    it is not all there after `max_s` seconds.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, max_s: float) -> None:
        self._app, self._max_bytes, self._max_s = app, max_bytes, max_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        end = asyncio.get_running_loop().time() + self._max_s
        num_bytes, is_complete = 0, False

        async def receive_within_limit() -> Message:
            nonlocal num_bytes, is_complete
            self._check(int(announced) if announced.isdigit() else 0)
            if is_complete:
                return await receive()
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                sentence = f"the body was not all here within {self._max_s:g} s, this server's limit"
                raise ApiError(408, sentence, code="deadline") from None
            is_complete = not message.get("more_body", False)
            num_bytes += len(message.get("body", b""))
            self._check(num_bytes)
            return message

        await self._app(scope, receive_within_limit, send)

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            sentence = f"the body has more than {self._max_bytes} bytes, this server's limit; send less"
            raise ApiError(413, sentence, code="body_too_large")
