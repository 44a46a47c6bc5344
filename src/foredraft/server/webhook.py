"""Telling another server what has happened, without ever waiting for it: a queue, and one task that sends."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from foredraft.errors import ConfigError

log = logging.getLogger("foredraft")

TIMEOUT_S = 10.0  # of one attempt
BACKOFF_S = (1.0, 4.0, 16.0)  # before each further attempt: long enough for a receiver that is being restarted
MAX_WAITING = 100  # messages


def check_url(url: str) -> None:
    """Refuse what is not an address of a web server; the message leaves out all that may be secret.

    Raises:
        ConfigError: the scheme is not http or https, or there is no host.
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        is_good = False
    if not is_good or not url.isprintable() or " " in url:
        raise ConfigError("webhook_url is not the address of a web server; allowed is http:// or https:// and a host")


class Webhook:
    """Posts messages as JSON, one after the other. Used by the event loop's thread alone.

    url: one that `check_url` lets pass. on_outcome: hears of every message, "sent", "failed" or "dropped".
    """

    def __init__(self, url: str, on_outcome: Callable[[str], None], backoff_s: tuple[float, ...] = BACKOFF_S) -> None:
        self._url, self._on_outcome, self._backoff_s = url, on_outcome, backoff_s
        self._waiting: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue(MAX_WAITING)
        parts = urlsplit(url)
        self.receiver = f"{parts.scheme}://{parts.hostname}"  # paths and queries of webhooks are often their secrets

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message; it is dropped where too many wait. Returns at once."""
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            self._done("dropped", "too many messages wait")

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
        # Not redirected: a message goes to the address that was configured and to no other.
        async with httpx.AsyncClient(follow_redirects=False, timeout=TIMEOUT_S) as client:
            while True:
                message = await self._waiting.get()
                fault = await self._deliver(client, json.dumps(message).encode())
                self._done("failed" if fault else "sent", fault)

    async def _deliver(self, client: httpx.AsyncClient, body: bytes) -> str | None:
        """What went wrong in the last attempt; None if it arrived. Waits between attempts where another may help."""
        fault: str | None = None
        for pause_s in (0.0, *self._backoff_s):
            await asyncio.sleep(pause_s)
            try:
                status = await self._post(client, body)
            except (httpx.HTTPError, TimeoutError, OSError) as error:
                fault = type(error).__name__  # its text may have the URL
                continue
            if 200 <= status < 300:
                return None
            fault = f"status {status}"
            if status < 500 and status != 429:
                break
        return fault

    async def _post(self, client: httpx.AsyncClient, body: bytes) -> int:
        headers = {"Content-Type": "application/json"}
        async with (
            asyncio.timeout(TIMEOUT_S),  # of the whole: the client's own is for each piece that is read
            client.stream("POST", self._url, content=body, headers=headers) as response,
        ):
            return response.status_code  # whatever else it says is of no interest

    def _done(self, outcome: str, fault: str | None) -> None:
        self._on_outcome(outcome)
        if fault:
            fields = {"receiver": self.receiver, "outcome": outcome, "fault": fault}
            log.warning("a message to the webhook did not arrive", extra={"fields": fields})
