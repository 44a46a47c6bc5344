"""Prompts for training data: tasks over the code and docs of installed Python packages, and generated general ones.

Which prompts come out depends on the seed and on what is installed. A prompt that shares ten words in a row with a text
that is to be kept out, such as a benchmark's, is dropped.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from foredraft.errors import ConfigError
from foredraft.train.general import general_tasks
from foredraft.train.packages import Excerpt, excerpts
from foredraft.train.tasks import code_task, docs_task

SHARED_WORDS = 10  # as many words in a row are no accident
# How often each kind is asked for: what people ask a chat model is mostly not code.
_SHARES = {"code": 0.4, "docs": 0.15, "general": 0.45}
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class TrainingPrompt:
    """A conversation that ends with the user's message.

    kind: of task. messages: {"role", "content"}, oldest first. source: the package that its text is from, or
    "generated"; license: of that text.
    """

    kind: str
    messages: tuple[dict[str, str], ...]
    source: str
    license: str

    @property
    def text(self) -> str:
        return "\n".join(message["content"] for message in self.messages)

    @property
    def origin(self) -> str:
        return f"{self.source} ({self.license})"


def make_prompts(count: int, seed: int, never: Iterable[str]) -> list[TrainingPrompt]:
    """`count` different prompts, or fewer where the installed packages do not give as many.

    never: texts of which no prompt may hold ten words in a row.
    """
    forbidden = set().union(*map(runs, never))
    made: dict[str, TrainingPrompt] = {}
    for prompt in islice(_stream(random.Random(seed)), count * 4):
        if not forbidden & runs(prompt.text):
            made.setdefault(prompt.text, prompt)
        if len(made) == count:
            break
    return list(made.values())


def runs(text: str) -> set[tuple[str, ...]]:
    """All runs of ten words in a text, in small letters."""
    words = _WORD.findall(text.lower())
    return {tuple(words[i : i + SHARED_WORDS]) for i in range(len(words) - SHARED_WORDS + 1)}


def _stream(rng: random.Random) -> Iterator[TrainingPrompt]:
    """Prompts of all kinds in a random order, until one kind has no more."""
    general = general_tasks(rng)
    found: dict[str, list[Excerpt]] = {"code": [], "docs": []}
    source = excerpts(rng)
    while True:
        [kind] = rng.choices(list(_SHARES), list(_SHARES.values()))
        if kind == "general":
            task, messages = next(general)
            yield TrainingPrompt(task, tuple(messages), "generated", "Apache-2.0")
            continue
        while not found[kind]:
            excerpt = next(source, None)
            if excerpt is None:
                return
            found[excerpt.kind].append(excerpt)
        excerpt = found[kind].pop()
        task, messages = (code_task if kind == "code" else docs_task)(excerpt, rng)
        yield TrainingPrompt(task, tuple(messages), excerpt.source, excerpt.license)


def write_prompts(path: Path, prompts: Iterable[TrainingPrompt]) -> None:
    """One JSON object a line."""
    lines = (json.dumps(asdict(prompt), ensure_ascii=False) + "\n" for prompt in prompts)
    path.write_text("".join(lines), encoding="utf-8")


def read_prompts(paths: Iterable[Path]) -> list[TrainingPrompt]:
    """All prompts of some files, in order. A line may also be {"prompt": TEXT}.

    Raises:
        ConfigError: a file cannot be read, or a line is not a prompt.
    """
    return [
        _parse(line, f"{path}, line {number}")
        for path in paths
        for number, line in enumerate(_lines(path), 1)
        if line.strip()
    ]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; convert it first") from None


def _parse(line: str, where: str) -> TrainingPrompt:
    try:
        row: Any = json.loads(line)
    except ValueError:
        row = None
    if isinstance(row, dict) and isinstance(row.get("prompt"), str) and row["prompt"]:
        row["messages"] = [{"role": "user", "content": row["prompt"]}]
    messages = row.get("messages") if isinstance(row, dict) else None
    if not (isinstance(messages, list) and messages and all(map(_is_message, messages))):
        raise ConfigError(f'{where} is not a prompt; write one JSON object a line, such as {{"prompt": "Say hello."}}')
    told = {name: str(row.get(name, "unknown")) for name in ("kind", "source", "license")}
    return TrainingPrompt(messages=tuple(messages), **told)


def _is_message(given: object) -> bool:
    return isinstance(given, dict) and all(isinstance(given.get(key), str) for key in ("role", "content"))


def texts_in(value: Any) -> Iterator[str]:
    """All strings in a JSON value, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts_in(inner)
