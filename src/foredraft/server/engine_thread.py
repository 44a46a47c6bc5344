"""The thread that runs the engine, and the mailboxes through which the event loop hears from it.

The engine is synchronous and belongs to this thread alone. The event loop sends it commands through a queue, which it
obeys between two steps, so that a request that was dropped is gone within one step. After each step all its chunks go
to the loop in one call.

A mailbox holds what its reader has not taken yet: at most max_tokens chunks for each of a request's choices, and no
longer than the request's deadline. The engine never waits for a reader.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from foredraft.engine.llm import LLM
from foredraft.engine.sequence import Chunk, Sequence
from foredraft.server.admission import Ticket
from foredraft.server.errors import ApiError
from foredraft.server.watching import Watch

log = logging.getLogger("foredraft")
T = TypeVar("T")


class Mailbox:
    """Chunks of one request, on their way from the engine to their reader. Used by the event loop's thread alone."""

    def __init__(self, num_sequences: int, ticket: Ticket, watch: Watch) -> None:
        self._num_running, self._ticket, self._watch = num_sequences, ticket, watch
        self._chunks: list[Chunk] = []
        self._error: ApiError | None = None
        self._news = asyncio.Event()

    async def receive(self) -> list[Chunk]:
        """Everything that has come since the last call, waited for if need be; nothing once all sequences have ended.

        Raises:
            ApiError: a sequence ended with an error, or the engine did.
        """
        while self._num_running and not self._chunks and not self._error:
            self._news.clear()
            await self._news.wait()
        if self._error:
            raise self._error
        chunks, self._chunks = self._chunks, []
        return chunks

    def close(self) -> None:
        """The reader is gone: take in nothing more."""
        self._num_running, self._chunks = 0, []
        self._ticket.give_back()

    def deliver(self, chunks: list[Chunk]) -> None:
        if self._num_running:
            self._watch.tokens(chunks)
            self._chunks += chunks
            self._end(sum(chunk.finish_reason is not None for chunk in chunks))

    def fail(self, error: ApiError) -> None:
        """One of the sequences has ended, and not well."""
        if self._num_running:
            self._error = error
            self._end(1)

    def _end(self, count: int) -> None:
        self._num_running -= count
        self._ticket.give_back(count)
        self._news.set()


class EngineThread:
    """Runs an LLM's engine in a thread of its own. `llm.sequences` and its tokenizer may be used by any thread."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.has_failed = False
        self.is_draining = False  # no new requests, those that run go on
        self._is_started = False
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        # Of the engine's thread alone:
        self._open: dict[int, tuple[Sequence, Mailbox]] = {}
        self._refusal: ApiError | None = None
        self._is_stopping = False

    @property
    def is_ready(self) -> bool:
        return self._is_started and not self.has_failed and not self.is_draining

    def start(self) -> None:
        """To be called by the event loop that will open requests."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        self._is_started = True

    def end_all(self) -> None:
        """End everything that runs with an error that says that the server stops."""
        self._commands.put(partial(self._refuse, _stopping()))

    async def stop(self) -> None:
        """End everything and the thread; returns when it is over."""
        self.end_all()
        self._commands.put(self._stop)
        await asyncio.to_thread(self._thread.join)
        self._is_started = False

    def check_ready(self) -> None:
        """Raise the ApiError that a new request has to be answered with, if any."""
        if not self.is_ready:
            raise _failed() if self.has_failed else _stopping()

    def post(self, command: Callable[[], None]) -> None:
        """Have the engine's thread run a command between two steps, after all that was sent before. From any thread."""
        self._commands.put(command)

    async def call(self, function: Callable[[], T]) -> T:
        """What a function returns, or raises, that the engine's thread runs as a command."""
        outcome: Future[T] = Future()

        def command() -> None:
            if outcome.set_running_or_notify_cancel():
                try:
                    outcome.set_result(function())
                except Exception as error:
                    outcome.set_exception(error)

        if not self._thread.is_alive():
            raise _stopping()
        self.post(command)
        return await asyncio.wrap_future(outcome)

    @contextmanager
    def open(self, sequences: list[Sequence], ticket: Ticket, watch: Watch) -> Iterator[Mailbox]:
        """Run sequences; at the end of the context, those that still run are dropped and their pages freed."""
        watch.open(sequences)
        mailbox = Mailbox(len(sequences), ticket, watch)
        self._commands.put(partial(self._add, sequences, mailbox))
        try:
            yield mailbox
        finally:
            mailbox.close()
            self._commands.put(partial(self._drop, sequences))

    # From here on: the engine's thread.

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self._obey()
                if self._has_work:
                    self._step()
            except BaseException:  # also what is no Exception, such as a panic in Rust
                self.has_failed = True
                log.exception("the engine failed; nothing more is served")
                self._refuse(_failed())

    @property
    def _has_work(self) -> bool:
        return not (self._refusal or self.llm.engine.is_idle)

    def _obey(self) -> None:
        """Carry out all commands that have come; wait for one if there is nothing else to do."""
        if not self._has_work:
            self._commands.get()()
        while not self._commands.empty():
            self._commands.get()()

    def _step(self) -> None:
        letters: dict[Mailbox, list[Chunk]] = {}
        for chunk in self.llm.engine.step():
            letters.setdefault(self._open[chunk.context_id][1], []).append(chunk)
            if chunk.finish_reason is not None:
                del self._open[chunk.context_id]
        errors = []
        for sequence, mailbox in [entry for entry in self._open.values() if entry[0].error]:
            log.error("a request failed: %s", sequence.error)
            errors.append((mailbox, ApiError(500, str(sequence.error), code="model_failed")))
            del self._open[sequence.context.id]
        if letters or errors:
            self._loop.call_soon_threadsafe(_hand_out, letters, errors)

    def _add(self, sequences: list[Sequence], mailbox: Mailbox) -> None:
        if self._refusal:
            self._loop.call_soon_threadsafe(_hand_out, {}, [(mailbox, self._refusal)] * len(sequences))
            return
        for sequence in sequences:
            self._open[sequence.context.id] = sequence, mailbox
            self.llm.engine.add(sequence)

    def _drop(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            if self._open.pop(sequence.context.id, None):
                self.llm.engine.abort(sequence)

    def _refuse(self, error: ApiError) -> None:
        """Answer all that is open, and all that will come, with an error."""
        self._refusal = self._refusal or error
        dropped, self._open = self._open, {}
        self._loop.call_soon_threadsafe(_hand_out, {}, [(mailbox, error) for _, mailbox in dropped.values()])
        if self.has_failed:
            return  # and may fail again
        for sequence, _ in dropped.values():
            self.llm.engine.abort(sequence)

    def _stop(self) -> None:
        self._is_stopping = True


def _failed() -> ApiError:
    return ApiError(503, "the engine has failed; the server's log says how, and a restart helps", code="engine_failed")


def _stopping() -> ApiError:
    return ApiError(503, "the server is stopping; try again later", code="stopping", headers={"Retry-After": "5"})


def _hand_out(letters: dict[Mailbox, list[Chunk]], errors: Iterable[tuple[Mailbox, ApiError]]) -> None:
    for mailbox, chunks in letters.items():
        mailbox.deliver(chunks)
    for mailbox, error in errors:
        mailbox.fail(error)
