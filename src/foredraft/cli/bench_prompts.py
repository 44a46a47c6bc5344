"""What `foredraft bench` asks: its own workloads, the user's prompts, or questions of published benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foredraft.cli.files import read_text
from foredraft.cli.options import split_names
from foredraft.errors import ConfigError

if TYPE_CHECKING:
    from foredraft.bench.runner import Turn
    from foredraft.bench.workloads import Prompt


def asked(options: Mapping[str, Any]) -> dict[str, list[Prompt]]:
    """The prompts by workload or task: those of --questions, --prompts or --workloads.

    Raises:
        ConfigError: more than one of these is given, or a file is missing or something else.
    """
    from foredraft.bench.questions import parse_questions
    from foredraft.bench.workloads import parse_prompts, select

    given = [f"--{name}" for name in ("workloads", "prompts", "questions") if options[name] is not None]
    if len(given) > 1:
        raise ConfigError(f"both {given[0]} and {given[1]} are given; give one of them")
    if options["limit"] and not options["questions"]:
        raise ConfigError("--limit is for --questions; --max-tokens shortens other prompts' answers")
    if options["questions"]:
        return parse_questions(_published(options["questions"]), str(options["questions"]), options["limit"])
    if options["prompts"]:
        return parse_prompts(read_text(options["prompts"]), str(options["prompts"]))
    return select(split_names(options["workloads"]))


def _published(path: Path) -> str:
    """A file of questions, which nobody has who did not fetch it."""
    if not path.exists():
        raise ConfigError(
            f"--questions {path} does not exist; foredraft brings no questions of others: fetch question.jsonl of "
            "Spec-Bench (github.com/hemingkx/Spec-Bench, data/spec_bench) or HumanEvalPack's Python part as JSON lines"
        )
    return read_text(path)


def prompts_of(workloads: Mapping[str, list[Prompt]], turn: Turn, block_size: int) -> list[Prompt]:
    """What a turn runs; nothing where a task has fewer questions than others."""
    prompts = workloads[turn.workload]
    return prompts[(turn.block - 1) * block_size : turn.block * block_size] if turn.block else prompts
