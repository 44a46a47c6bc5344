"""The way of one request: admitted, made into sequences, run, and answered whole or as server-sent events.

It ends early where the client goes away, where its deadline comes, or where the engine fails. Nothing is sent before
the first token is there, so that until then every error has its own status; after that, an error is the stream's last
event.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foredraft.engine.sequence import Chunk, Sequence
from foredraft.errors import ForedraftError
from foredraft.server.engine_thread import Mailbox
from foredraft.server.errors import ApiError
from foredraft.server.service import Service
from foredraft.server.watching import Watch, outcome_of

_LAST_WORD_S = 1.0  # for a stream's error to reach a client that may have stopped reading
_FAULTS = ("engine_failed", "unavailable")  # of the server, where a 503 otherwise says that it stops


class Form(ABC):
    """How the answers to one request are written, by choice: `index` counts a request's sequences."""

    @abstractmethod
    def whole(self, chunks: list[list[Chunk]]) -> BaseModel:
        """The complete answer, from each choice's chunks."""

    @abstractmethod
    def pieces(self, index: int, chunks: list[Chunk]) -> list[BaseModel]:
        """The stream's next events: what one choice has got since the last call. Only fields that are set are sent."""

    @abstractmethod
    def last_piece(self) -> BaseModel:
        """The stream's event with `usage`."""


@dataclass(frozen=True)
class Job:
    """What one request wants done.

    prepare: makes the sequences; may take long, so it runs in a thread of its own, and may raise ForedraftErrors.
    has_format: whether it compiles a format, which a stranger may have made slow; these wait for each other only.
    names: what the request calls fields that have another name in these errors.
    """

    num_sequences: int
    prepare: Callable[[], list[Sequence]]
    has_format: bool
    names: Mapping[str, str]
    form: Callable[[list[Sequence]], Form]
    is_stream: bool
    include_usage: bool


class Answer(Response):
    """Runs a job while it is being sent."""

    def __init__(self, service: Service, job: Job) -> None:
        super().__init__()
        self._service, self._job = service, job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.create_task(self._work(send, scope["watch"]))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _work(self, send: Send, watch: Watch) -> None:
        events = _Events(send)
        deadline_s = self._service.config.deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                await self._run(events, watch)
            return
        except TimeoutError:
            error = ApiError(408, f"the answer took more than {deadline_s:g} s, this server's limit", code="deadline")
        except ForedraftError as refused:
            error = ApiError.refusal(refused, self._job.names)
        except ApiError as failed:
            error = failed
        watch.outcome = "error" if error.code in _FAULTS else outcome_of(error.status_code)
        if not events.are_started:
            raise error
        if not self._job.is_stream:
            return  # nothing can be said any more
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_S):
                await events.send(error.body())
                await events.end()

    async def _run(self, events: _Events, watch: Watch) -> None:
        service, job = self._service, self._job
        service.engine.check_ready()
        ticket = service.admission.take(job.num_sequences)
        try:
            sequences = await self._prepared()
            with service.engine.open(sequences, ticket, watch) as mailbox, self._texts(sequences, watch):
                form = job.form(sequences)
                indices = {sequence.context.id: index for index, sequence in enumerate(sequences)}
                if job.is_stream:
                    await self._stream(mailbox, form, indices, events)
                else:
                    await self._whole(mailbox, form, indices, events)
        finally:
            ticket.give_back()

    async def _prepared(self) -> list[Sequence]:
        executor = self._service.format_executor if self._job.has_format else None
        run = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(executor, run, self._job.prepare)

    @contextlib.contextmanager
    def _texts(self, sequences: list[Sequence], watch: Watch) -> Iterator[None]:
        """At the end, hand over the texts, where the log is asked to show them."""
        try:
            yield
        finally:
            if self._service.config.logs.prompts:
                decode = self._service.llm.tokenizer.decode
                watch.prompt = "\n".join(decode(each.context.prompt) for each in sequences if each.leader is None)
                watch.answer = "\n".join(decode(each.context.output) for each in sequences)

    async def _whole(self, mailbox: Mailbox, form: Form, indices: dict[int, int], events: _Events) -> None:
        chunks: list[list[Chunk]] = [[] for _ in indices]
        while news := await _received(mailbox):
            for chunk in news:
                chunks[indices[chunk.context_id]].append(chunk)
        await events.send_whole(form.whole(chunks).model_dump_json().encode())

    async def _stream(self, mailbox: Mailbox, form: Form, indices: dict[int, int], events: _Events) -> None:
        while news := await _received(mailbox):
            by_choice: dict[int, list[Chunk]] = {}
            for chunk in news:
                by_choice.setdefault(indices[chunk.context_id], []).append(chunk)
            pieces = [piece for index, chunks in by_choice.items() for piece in form.pieces(index, chunks)]
            if pieces:
                await events.send(*(piece.model_dump_json(exclude_unset=True).encode() for piece in pieces))
        if self._job.include_usage:
            await events.send(form.last_piece().model_dump_json().encode())
        await events.send(b"[DONE]")
        await events.end()


class _Events:
    """Server-sent events, or one JSON body in place of them: the response starts with the first that is sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.are_started = False

    async def send(self, *payloads: bytes) -> None:
        if not self.are_started:
            self.are_started = True
            await _start(self._send, b"text/event-stream; charset=utf-8", (b"cache-control", b"no-cache"))
        body = b"".join(b"data: " + payload + b"\n\n" for payload in payloads)
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def send_whole(self, body: bytes) -> None:
        self.are_started = True
        await _start(self._send, b"application/json", (b"content-length", str(len(body)).encode()))
        await self._send({"type": "http.response.body", "body": body})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})


async def _received(mailbox: Mailbox) -> list[Chunk]:
    """What has come.

    Raises:
        ApiError: a choice had to end because nothing fits its response format any more.
    """
    news = await mailbox.receive()
    if any(chunk.finish_reason == "error" for chunk in news):
        raise ApiError(
            400,
            "the answer could not be kept to response_format: it grew too complex, or no token of the model fits; "
            "make it simpler",
            param="response_format",
            code="format_failed",
        )
    return news


async def _start(send: Send, content_type: bytes, *headers: tuple[bytes, bytes]) -> None:
    all_headers = [(b"content-type", content_type), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": all_headers})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
