"""Many streaming clients at once, some of which leave early or ask for nonsense; every answer is checked.

Run as a program (`make load-test`), it keeps 64 clients busy for five minutes with SmolLM2.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from foredraft.core import SamplingParams
from foredraft.engine.llm import LLM
from foredraft.models.pull import pull
from serving import Served, serving

NUM_CLIENTS = 64
MINUTES = 5
MAX_GROWTH_MB = 32  # of resident memory, from the end of the first fifth to the end
TEXT = "One two three four five six seven eight nine ten, and the rain came down on the old stone bridge. "
NONSENSE = (
    (400, b"{"),
    (400, b'{"prompt": "x", "magic": 1}'),
    (400, b'{"prompt": "x", "max_tokens": "many"}'),
    (400, b'{"prompt": "' + b"word " * 4000 + b'"}'),
    (404, b'{"prompt": "x", "model": "gpt"}'),
)


@dataclass(frozen=True)
class Question:
    """What a client asks for. The same number always makes the same question."""

    number: int

    @property
    def body(self) -> dict[str, object]:
        rng = random.Random(self.number)
        return {
            "prompt": TEXT * rng.choice((1, 1, 2, 6)) + str(rng.randrange(5)),
            "max_tokens": rng.choice((4, 8, 16, 48)),
            "temperature": rng.choice((0, 0.7, 1)),
            "seed": rng.randrange(1000),
            "speculation": rng.choice(("off", "auto", "on")),
        }


@dataclass
class Outcome:
    """What came of it: how requests ended, answers by question, and resident memory in MB over time."""

    ends: Counter[str] = field(default_factory=Counter)
    answers: dict[Question, set[str]] = field(default_factory=dict)
    memory_mb: list[float] = field(default_factory=list)

    @property
    def growth_mb(self) -> float:
        return self.memory_mb[-1] - self.memory_mb[len(self.memory_mb) // 5]


def run_load(served: Served, num_clients: int, questions: Iterator[Question]) -> Outcome:
    """Let clients ask until there are no more questions; every tenth leaves early, every tenth asks for nonsense."""
    outcome = Outcome()

    async def work() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=served.url, timeout=None, limits=limits) as client:
            await asyncio.gather(*(_client(client, questions, outcome) for _ in range(num_clients)))

    asyncio.run(work())
    return outcome


async def _client(client: httpx.AsyncClient, questions: Iterator[Question], outcome: Outcome) -> None:
    for question in questions:
        kind = question.number % 10
        if kind == 3:
            status, body = random.Random(question.number).choice(NONSENSE)
            headers = {"Content-Type": "application/json"}
            response = await client.post("/v1/completions", content=body, headers=headers)
            outcome.ends["refused" if response.status_code == status else f"status {response.status_code}"] += 1
        else:
            num_events = question.number // 10 % 6 if kind == 7 else None
            end, text = await _ask(client, question, num_events)
            outcome.ends[end] += 1
            if end == "answered":
                outcome.answers.setdefault(question, set()).add(text)
        outcome.memory_mb.append(_resident_mb())


async def _ask(client: httpx.AsyncClient, question: Question, num_events: int | None) -> tuple[str, str]:
    """How the answer's stream ended, and its text; with `num_events`, leave after so many."""
    body = {**question.body, "stream": True}
    text = ""
    async with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            return f"status {response.status_code}", ""
        lines = (line.removeprefix("data: ") async for line in response.aiter_lines() if line)
        async for line in lines:
            if num_events == 0:
                return "left", ""
            if line == "[DONE]":
                return ("answered" if num_events is None else "left"), text
            event = json.loads(line)
            if "error" in event:
                return f"error {event['error']['code']}", ""
            text += event["choices"][0]["text"]
            num_events = None if num_events is None else num_events - 1
    return "cut short", ""


def wrong_answers(offline: LLM, outcome: Outcome) -> list[Question]:
    """Questions that were not always answered as the Python API answers them, without drafts."""
    questions = sorted(outcome.answers, key=lambda question: question.number)
    fields = [question.body for question in questions]
    params = [
        SamplingParams(temperature=body["temperature"], max_tokens=body["max_tokens"], seed=body["seed"])  # type: ignore[arg-type]
        for body in fields
    ]
    results = offline.generate([str(body["prompt"]) for body in fields], params)
    return [q for q, result in zip(questions, results, strict=True) if outcome.answers[q] != {result.text}]


def _resident_mb() -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _questions(is_over: Callable[[], bool]) -> Iterator[Question]:
    """500 different ones, again and again."""
    number = 0
    while not is_over():
        yield Question(number % 500)
        number += 1


def main(arguments: Sequence[str]) -> int:
    minutes = float(arguments[0]) if arguments else MINUTES
    model = pull("smollm2-135m")
    with serving(LLM(model, context_length=1024, kv_memory=256 << 20)) as served:
        end = time.monotonic() + 60 * minutes
        outcome = run_load(served, NUM_CLIENTS, _questions(lambda: time.monotonic() > end))
        served.wait_until_idle()
    wrong = wrong_answers(LLM(model, context_length=1024), outcome)
    ends = ", ".join(f"{count} {end}" for end, count in sorted(outcome.ends.items()))
    print(f"{NUM_CLIENTS} clients, {minutes:g} minutes: {ends}; {len(wrong)} of {len(outcome.answers)} answers wrong")
    print(f"every page of the KV cache is free again; memory grew by {outcome.growth_mb:.1f} MB after warm-up")
    is_good = not wrong and outcome.ends.keys() <= {"answered", "left", "refused"} and outcome.growth_mb < MAX_GROWTH_MB
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
