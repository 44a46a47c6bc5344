"""A closed loop with a tiny model: as many requests as were asked for, each its own, drafted for as their arm says."""

from __future__ import annotations

from itertools import count

import pytest

import tiny
from foredraft.bench.closed_loop import ClosedLoop
from foredraft.bench.workloads import Prompt
from foredraft.core import Speculation
from foredraft.engine.llm import LLM
from foredraft.errors import RequestError
from foredraft.governor.experiment import Experiment, ExperimentConfig
from foredraft.governor.pools import DEFAULT, PoolConfig

ARMS = {"A": Speculation("off"), "B": Speculation("on", 4, ("lookup",))}
CONFIG = ExperimentConfig(arms=("off", "on:lookup:4"), window_s=70.0, carry_over_s=5.0, blocks=4, seed=2)
PROMPTS = [Prompt("a", "the and the and the and", 12), Prompt("b", "in the end", 90)]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path = tiny.write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf")
    return LLM(path, context_length=128, max_sequences=3, threads=1, prefix_cache=False)


def test_windows_of_a_loop(llm):
    """The clock goes on by a second at each look at it, so this is the same everywhere."""
    ticks = count()
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return llm.tokenizer.encode(text)

    experiment = Experiment(CONFIG, PoolConfig(), [DEFAULT], 0.0)
    windows: list[int] = []
    loop = ClosedLoop(llm, PROMPTS, encode, concurrency=3, max_tokens=40, clock=lambda: float(next(ticks)))
    loop.run(experiment, ARMS, lambda: windows.append(len(experiment.windows)))
    record = experiment.record()
    assert windows == list(range(1, 17))
    assert asked[:3] == [
        "Request 1.\nthe and the and the and",
        "Request 2.\nin the end",
        "Request 3.\nthe and the and the and",
    ]
    assert len(set(asked)) == len(asked)
    assert {window["concurrency"] for window in record["windows"]} == {3.0}
    assert llm.engine.is_idle
    assert all(window["tokens"] for window in record["windows"])
    clean = [window for window in record["windows"] if not window["num_carried_over"]]
    drafted = {arm: [w["num_draft_tokens"] for w in clean if w["arm"] == arm] for arm in "AB"}
    assert len(drafted["A"]) >= 4
    assert not any(drafted["A"])
    assert any(drafted["B"])


def test_a_prompt_that_does_not_fit_leaves_nothing_behind(llm):
    experiment = Experiment(CONFIG, PoolConfig(), [DEFAULT], 0.0)
    prompts = [*PROMPTS, Prompt("long", "x" * 500, 5)]
    with pytest.raises(RequestError, match="context"):
        ClosedLoop(llm, prompts, llm.tokenizer.encode, concurrency=3, max_tokens=20).run(experiment, ARMS, print)
    assert llm.engine.is_idle
