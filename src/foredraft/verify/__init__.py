"""Acceptance rules: what the target makes of a draft. Pure functions; `reference` is their specification."""

from __future__ import annotations

from collections.abc import Callable

from foredraft.core import RULES, Draft, Verdict
from foredraft.errors import ConfigError
from foredraft.sampling.noise import Float64Array
from foredraft.sampling.processors import Scores, probabilities
from foredraft.sampling.sampler import BlockNoise, choose
from foredraft.verify.block import block
from foredraft.verify.exact import exact
from foredraft.verify.rejection import rejection

SamplingRule = Callable[[Draft, Callable[[int], Float64Array], BlockNoise], Verdict]

_SAMPLING_RULES: dict[str, SamplingRule] = {"rejection": rejection, "block": block}


def verify(
    rule: str, draft: Draft, target_scores: Callable[[int], Scores], temperature: float, noise: BlockNoise
) -> Verdict:
    """Apply an acceptance rule by name to the target's processed scores.

    At temperature 0 the target's law is a point mass, under which every rule is `exact`. A draft without tokens is
    fine: the verdict is the target's own next token.

    Args:
        target_scores: scores after a row (from `process`), [vocabulary]: row 0 is the context's last token, row i + 1
            is draft token i. Called at most once per row, and for no row that cannot matter any more.
        noise: of this step; its start is the length of the context.

    Raises:
        ConfigError: an unknown rule, or `block` with a tree at a temperature above 0.
    """
    if rule not in RULES:
        raise ConfigError(f"rule is {rule!r}; allowed is {', '.join(RULES)}")
    if temperature == 0 or rule == "exact":
        return exact(
            draft, lambda row: choose(target_scores(row), temperature, noise.key, noise.start + _depth(draft, row))
        )
    return _SAMPLING_RULES[rule](draft, lambda row: probabilities(target_scores(row), temperature), noise)


def _depth(draft: Draft, row: int) -> int:
    return len(draft.path(row - 1))


__all__ = ["block", "exact", "rejection", "verify"]
