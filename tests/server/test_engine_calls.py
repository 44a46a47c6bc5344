"""Functions that the engine's thread runs for the event loop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from fakes import new_engine
from foredraft.server.engine_thread import EngineThread


def test_calls_run_in_the_engine_s_thread_and_their_faults_are_the_caller_s():
    async def go() -> None:
        thread = EngineThread(SimpleNamespace(engine=new_engine()))  # type: ignore[arg-type]
        thread.start()
        assert await thread.call(lambda: threading.current_thread().name) == "engine"
        with pytest.raises(KeyError, match="nothing"):
            await thread.call(lambda: {}["nothing"])
        assert thread.is_ready
        await thread.stop()

    asyncio.run(go())


def test_a_call_that_nobody_waits_for_any_more_does_no_harm():
    async def go() -> list[int]:
        done: list[int] = []
        thread = EngineThread(SimpleNamespace(engine=new_engine()))  # type: ignore[arg-type]
        call = asyncio.create_task(thread.call(lambda: done.append(1)))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        thread.start()
        await thread.call(lambda: done.append(2))
        assert thread.is_ready
        await thread.stop()
        return done

    assert asyncio.run(go()) == [2]
