"""The card of a trained head: what it was trained on, how, and how well it guesses; a function of its record alone."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foredraft.errors import ConfigError

RECORD, CARD = "training.json", "README.md"
NAMED_SOURCES = 12


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a finished run.

    Raises:
        ConfigError: there is none.
    """
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_bytes())
    except (OSError, ValueError):
        raise ConfigError(f"{folder} holds no finished training (no {RECORD}); train there first") from None
    return record


def card(record: Mapping[str, Any], bench: Mapping[str, Any] | None) -> str:
    """Markdown. bench: what `foredraft bench --json` has written of a benchmark with this head, or None."""
    target, best, schedule, data = (record[key] for key in ("target", "best", "schedule", "data"))
    name = f"{target['file'].removesuffix('.gguf')}-{record['kind']}"
    sections = [
        f"# {name}",
        f"A drafter of kind `{record['kind']}` for `{target['file']}` ({target['size']:,} bytes), trained by "
        f"foredraft {record['provenance']['foredraft']} on {record['provenance']['date'][:10]}. It is of use with this "
        "target only; what the target writes is the same with and without it.",
        "## How well it guesses",
        f"Measured on {data['held_out']} answers that were held out, as drafts from every position of answers that the "
        "target wrote greedily:",
        _acceptance(best),
        f"Chance that a guess is right where all before it were (alpha): {best['alpha']:.3f}. Tokens for each pass of "
        f"the target with {len(best['acceptance'])} drafted tokens: {1 + sum(best['acceptance']):.2f}.",
        _speedup(bench),
        "## What it was trained on",
        f"{data['num_documents']:,} answers of the target itself to prompts of `foredraft train prompts`: "
        f"{data['num_answer_tokens']:,} answer tokens ({data['num_tokens']:,} with their prompts), up to "
        f"{record['sampling']['max_tokens']} tokens each, {record['sampling']['greedy_share']:.0%} of them greedy.",
        "The prompts hold text of these:",
        _origins(data["origins"]),
        "## How it was trained",
        f"{best['step']:,} steps over {best['tokens']:,} answer tokens (epochs: {schedule['epochs']:g}, batches of "
        f"about {schedule['batch_tokens']} answer tokens, learning rate {schedule['learning_rate']:g}, seed "
        f"{schedule['seed']}) in {record['points'][-1]['seconds'] / 60:.0f} minutes on "
        f"{record['provenance']['cpu']} ({record['provenance']['cores']} cores). {record['num_parameters']:,} trained "
        "parameters. The weights are those of the evaluation with the best acceptance.",
        "`training.json` holds all evaluations.",
    ]
    return "\n\n".join(sections) + "\n"


def _acceptance(best: Mapping[str, Any]) -> str:
    rows = ["| position | accepted |", "|--:|--:|"]
    rows += [f"| {position} | {share:.1%} |" for position, share in enumerate(best["acceptance"], 1)]
    return "\n".join(rows)


def _speedup(bench: Mapping[str, Any] | None) -> str:
    """A table of the benchmark's cells, each beside the first arm's."""
    if bench is None:
        return "The speed-up was not measured."
    rows = ["| workload | requests at a time | arm | tokens/s | of the first arm's |", "|---|--:|---|--:|--:|"]
    first: dict[tuple[str, int], float] = {}
    for cell in bench["cells"]:
        speed = cell["tokens_per_s"]
        base = first.setdefault((cell["workload"], cell["concurrency"]), speed)
        rows.append(
            f"| {cell['workload']} | {cell['concurrency']} | `{cell['arm']}` | {speed:.1f} | {speed / base:.2f} |"
        )
    where = f"As `foredraft bench` measured it on {bench['provenance']['cpu']}, medians over rounds:"
    return "\n".join([where, "", *rows])


def _origins(origins: Mapping[str, int]) -> str:
    """The most used sources by name, and all licenses."""
    named = list(origins.items())
    lines = [f"- {origin}: {count} prompts" for origin, count in named[:NAMED_SOURCES]]
    rest = named[NAMED_SOURCES:]
    if rest:
        licenses = Counter(re.sub(r".*\((.*)\)$", r"\1", origin) for origin, _ in rest)
        lines.append(f"- {len(rest)} more ({', '.join(licenses)}): {sum(count for _, count in rest)} prompts")
    return "\n".join(lines)
