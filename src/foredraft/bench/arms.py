"""The arms of a comparison, from their short form on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.core import SPECULATION_MODES, Speculation
from foredraft.errors import ConfigError

SYNTAX = "off, auto or on, then :proposers (joined by +), then :k, such as off, on:lookup:8 or on:lookup+draft_model:4"


@dataclass(frozen=True)
class Arm:
    """One way to run the same requests."""

    name: str
    speculation: Speculation


def parse_arm(text: str) -> Arm:
    """An arm written MODE[:PROPOSER[+PROPOSER...][:K]].

    Raises:
        ConfigError: it is not written so; names of proposers are checked when the model is loaded.
    """
    mode, *rest = text.strip().split(":")
    proposers = tuple(filter(None, rest[0].split("+"))) if rest else ()
    is_number = len(rest) < 2 or rest[1].isdecimal()
    if mode not in SPECULATION_MODES or len(rest) > 2 or not is_number or (mode == "off" and rest):
        raise ConfigError(f"arm {text!r} is not understood; write {SYNTAX}")
    if rest and not proposers:
        raise ConfigError(f"arm {text!r} names no proposer; write {SYNTAX}")
    k = int(rest[1]) if len(rest) == 2 else None
    return Arm(text.strip(), Speculation(mode=mode, k=k, proposers=proposers))


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


def proposers_of(arms: Sequence[Arm], defaults: Sequence[str]) -> list[str]:
    """The proposers to load: those that the arms name, and the default ones if an arm that drafts names none."""
    names = [name for arm in arms for name in arm.speculation.proposers]
    if any(arm.speculation.mode != "off" and not arm.speculation.proposers for arm in arms):
        names += defaults
    return list(dict.fromkeys(names))
