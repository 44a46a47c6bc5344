"""The arms of a comparison, from their short form on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.core import SPECULATION_MODES, Speculation
from foredraft.errors import ConfigError
from foredraft.proposers import FREE

SYNTAX = (
    "off, auto or on, then :proposers (joined by +), then :k (x and the width of a tree), such as off, on:lookup:8, "
    "on:lookup+draft_model:4 or on:draft_model:8x3"
)
ALL = "all"
FREE_K, CHAIN_K, TREE = 8, 4, "8x3"  # what `all` tries: of the free ones, of models, and of models' trees

_SIZE = re.compile(r"(\d+)(?:x(\d+))?", re.ASCII)


@dataclass(frozen=True)
class Arm:
    """One way to run the same requests."""

    name: str
    speculation: Speculation


def parse_arm(text: str) -> Arm:
    """An arm written MODE[:PROPOSER[+PROPOSER...][:K[xWIDTH]]].

    Raises:
        ConfigError: it is not written so; names of proposers are checked when the model is loaded.
    """
    mode, *rest = text.strip().split(":")
    proposers = tuple(filter(None, rest[0].split("+"))) if rest else ()
    size = _SIZE.fullmatch(rest[1]) if len(rest) == 2 else None
    is_size = len(rest) < 2 or size is not None
    if mode not in SPECULATION_MODES or len(rest) > 2 or not is_size or (mode == "off" and rest):
        raise ConfigError(f"arm {text!r} is not understood; write {SYNTAX}")
    if rest and not proposers:
        raise ConfigError(f"arm {text!r} names no proposer; write {SYNTAX}")
    k, width = (None if number is None else int(number) for number in (size.groups() if size else (None, None)))
    return Arm(text.strip(), Speculation(mode=mode, k=k, proposers=proposers, tree_width=width))


def parse_arms(text: str) -> list[Arm]:
    """Arms from a comma-separated list; the first is what the others are compared with.

    Raises:
        ConfigError: one is not understood, one comes twice, or there is none.
    """
    arms = [parse_arm(part) for part in text.split(",") if part.strip()]
    names = [arm.name for arm in arms]
    if not arms:
        raise ConfigError(f"no arms are given; write a comma-separated list of {SYNTAX}")
    if len(set(names)) < len(names):
        raise ConfigError(f"arms are {text!r}; give each only once")
    return arms


def all_arms(models: Sequence[str]) -> str:
    """The short form of all arms: off, each proposer alone, those that run a model with chains and with trees, and all
    of them as the governor chooses. models: the proposers that run a model here."""
    alone = [f"on:{name}:{FREE_K}" for name in FREE]
    alone += [f"on:{name}:{size}" for name in models for size in (CHAIN_K, TREE)]
    return ",".join(["off", *alone, f"auto:{'+'.join((*FREE, *models))}"])


def proposers_of(arms: Sequence[Arm], defaults: Sequence[str]) -> list[str]:
    """The proposers to load: those that the arms name, and the default ones if an arm that drafts names none."""
    names = [name for arm in arms for name in arm.speculation.proposers]
    if any(arm.speculation.mode != "off" and not arm.speculation.proposers for arm in arms):
        names += defaults
    return list(dict.fromkeys(names))
