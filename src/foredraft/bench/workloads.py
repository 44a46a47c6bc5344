"""What the benchmark asks for: kinds of work from copying most of the answer out of the prompt to copying none.

All texts are the project's own. Files of about 200 lines for `edit`, passages for `quote` and the short batch texts of
`enrichment` (extract, classify, summarize) lie in `texts/`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from foredraft.errors import ConfigError


@dataclass(frozen=True)
class Prompt:
    """One request: a user message and the longest answer, in tokens; after the answer, what the user says then."""

    name: str
    text: str
    max_tokens: int
    then: tuple[str, ...] = ()


DEFAULT = ("edit", "quote", "chat", "write", "ideas")  # enrichment is for large batches only

_EDITS = (
    ("inventory", "Rename the class `Reservation` to `Booking`"),
    ("scheduler", "Rename the variable `delay` to `pause`"),
    ("ledger", "Rename the method `transfer` to `move_money`"),
)
_QUOTES = (
    ("lighthouse", "Quote, word for word, every sentence about the keepers and the piano."),
    ("bread", "Quote, word for word, the whole paragraph about mixing and folding the dough."),
    ("lease", "Quote, word for word, the sentences about the deposit and about repairs."),
)
_CHATS = (
    "My basil on the kitchen window keeps dying. What am I doing wrong?",
    "Can you explain to a ten-year-old why the sky is blue and the sunset is red?",
    "I have two days in a city that I do not know. How should I plan them so that I am not tired at the end?",
)
_WRITES = (
    "Write a Python class `LRUCache` with get, put, delete and resize methods, type hints and docstrings.",
    "Write a Python function that merges overlapping intervals, with type hints and five test cases.",
    "Write a SQL schema for a library with books, copies, members and loans, then a query for overdue loans.",
)
_IDEAS = (
    "Brainstorm twelve unusual ideas for a small town summer festival. Write one lively sentence for each.",
    "Invent ten names for a bakery on a houseboat, and say in one sentence what each name promises.",
    "Suggest ten things that a class of teenagers could build from one hundred cardboard boxes.",
)


def _text(name: str) -> str:
    return (files("foredraft.bench") / "texts" / name).read_text(encoding="utf-8")


def _edit(name: str, change: str) -> Prompt:
    code = _text(f"{name}.py.txt")
    question = f"{change} everywhere in this file. Reply with the whole file only."
    return Prompt(f"edit-{name}", f"{question}\n```python\n{code}```", 700)


def _plain(kind: str, texts: Sequence[str], max_tokens: int) -> list[Prompt]:
    return [Prompt(f"{kind}-{number}", text, max_tokens) for number, text in enumerate(texts, 1)]


def workloads() -> dict[str, list[Prompt]]:
    """The built-in workloads by name."""
    return {
        "edit": [_edit(name, change) for name, change in _EDITS],
        "quote": [Prompt(f"quote-{name}", f"{_text(f'{name}.txt')}\n{question}", 200) for name, question in _QUOTES],
        "chat": _plain("chat", _CHATS, 200),
        "write": _plain("write", _WRITES, 300),
        "ideas": _plain("ideas", _IDEAS, 300),
        **parse_prompts(_text("enrichment.jsonl"), "enrichment.jsonl"),
    }


def select(names: Sequence[str]) -> dict[str, list[Prompt]]:
    """The named workloads; those of DEFAULT for no names.

    Raises:
        ConfigError: a name is unknown; the message lists the known ones.
    """
    known = workloads()
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown workload {name!r}; known are {', '.join(known)}")
    return {name: known[name] for name in names or DEFAULT}


def parse_prompts(text: str, source: str) -> dict[str, list[Prompt]]:
    """Workloads from JSON lines {"name", "prompt", "max_tokens"}; lines of one name form one workload.

    Raises:
        ConfigError: a line is not such an object, or there is none; the message names `source` and the line.
    """
    found: dict[str, list[Prompt]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not _is_prompt(row):
            raise ConfigError(
                f"{source}, line {number} is not a prompt; write one JSON object a line, such as "
                '{"name": "greet", "prompt": "Say hello.", "max_tokens": 50}'
            )
        prompts = found.setdefault(row["name"], [])
        prompts.append(Prompt(f"{row['name']}-{len(prompts) + 1}", row["prompt"], row["max_tokens"]))
    if not found:
        raise ConfigError(f"{source} holds no prompts; write one JSON object a line")
    return found


def _is_prompt(row: object) -> bool:
    return (
        isinstance(row, dict)
        and row.keys() == {"name", "prompt", "max_tokens"}
        and all(isinstance(row[key], str) and row[key] for key in ("name", "prompt"))
        and type(row["max_tokens"]) is int
        and row["max_tokens"] >= 1
    )
