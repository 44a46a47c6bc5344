"""Questions of published benchmarks as workloads, read from files as they are published; foredraft brings none.

Spec-Bench (Xia et al. 2401.07851): JSON lines {"question_id", "category", "turns"}, the turns of one user. Its eight
categories of multi-turn chat are one task. HumanEvalFix (Muennighoff et al. 2308.07124): JSON lines with "prompt",
"buggy_solution" and "entry_point"; the answer is close to what was asked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from foredraft.bench.workloads import Prompt
from foredraft.errors import ConfigError

MULTI_TURN = "multi_turn"
CHATS = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
FIX = "humanevalfix"
MAX_TOKENS = 1024  # of each answer, as in Spec-Bench


def parse_questions(text: str, source: str, limit: int | None = None) -> dict[str, list[Prompt]]:
    """The questions by task, in the file's order.

    limit: how many of each task, spread evenly over the file, the first among them; None: all.

    Raises:
        ConfigError: a line is not a question of either format, or there is none; the message names `source` and line.
    """
    found: dict[str, list[Prompt]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            task, prompt = _question(line, f"{source}, line {number}")
            found.setdefault(task, []).append(prompt)
    if not found:
        raise ConfigError(f"{source} holds no questions; give a file of Spec-Bench or HumanEvalFix")
    return found if limit is None else {task: _spread(prompts, limit) for task, prompts in found.items()}


def _spread(prompts: Sequence[Prompt], limit: int) -> list[Prompt]:
    count = min(limit, len(prompts))
    return [prompts[number * len(prompts) // count] for number in range(count)]


def _question(line: str, where: str) -> tuple[str, Prompt]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if isinstance(row, dict) and _has_turns(row):
        category, (first, *then) = row["category"], row["turns"]
        prompt = Prompt(f"{category}-{row['question_id']}", first, MAX_TOKENS, tuple(then))
        return MULTI_TURN if category in CHATS else category, prompt
    if isinstance(row, dict) and all(_is_text(row.get(key)) for key in ("prompt", "buggy_solution", "entry_point")):
        return FIX, Prompt(f"{FIX}-{row.get('task_id', row['entry_point'])}", _fix(row), MAX_TOKENS)
    raise ConfigError(
        f'{where} is not a question; known are those of Spec-Bench, with "question_id", "category" and "turns", and of '
        'HumanEvalFix, with "prompt", "buggy_solution" and "entry_point"'
    )


def _has_turns(row: dict[str, Any]) -> bool:
    turns = row.get("turns")
    return (
        isinstance(row.get("question_id"), int | str)
        and _is_text(row.get("category"))
        and isinstance(turns, list)
        and len(turns) > 0
        and all(map(_is_text, turns))
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _fix(row: dict[str, Any]) -> str:
    return (
        f"Fix the bug in the function `{row['entry_point']}`. Reply with the whole corrected code only.\n"
        f"```python\n{row['prompt']}{row['buggy_solution']}```"
    )
