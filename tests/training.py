"""Prompts for tests of training."""

from __future__ import annotations

from foredraft.train.prompts import TrainingPrompt

QUESTIONS = ("the end", "and then", "an other thing", "in here", "on", "there are", "hand in", "again")


def asked(count: int) -> list[TrainingPrompt]:
    texts = [f"{QUESTIONS[number % len(QUESTIONS)]} {number}" for number in range(count)]
    return [TrainingPrompt("test", ({"role": "user", "content": text},), "tests", "Apache-2.0") for text in texts]
