"""What a request cost: OpenAI's `usage`, and beside it what drafting did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from foredraft.core import SpeculationStats
from foredraft.engine.sequence import Sequence
from foredraft.governor.governor import Governor
from foredraft.proposers import PREDICTION
from foredraft.server.responses import CompletionTokensDetails, PromptTokensDetails, SpeculationReport, Usage

OffReason = Literal["requested", "pool", "no_proposer", "no_draft"]


def usage(sequences: list[Sequence]) -> Usage:
    """Of all choices together; a prompt counts once however many choices continue it."""
    leaders = [sequence for sequence in sequences if sequence.leader is None]
    num_prompt = sum(leader.context.prompt_len for leader in leaders)
    num_output = sum(len(sequence.context.tokens) - sequence.context.prompt_len for sequence in sequences)
    num_cached = sum(leader.num_cached_tokens or 0 for leader in leaders)
    stats = _total(sequence.stats for sequence in sequences)
    num_accepted = stats.num_accepted_by_proposer[PREDICTION]
    return Usage(
        prompt_tokens=num_prompt,
        completion_tokens=num_output,
        total_tokens=num_prompt + num_output,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=num_cached),
        completion_tokens_details=CompletionTokensDetails(
            accepted_prediction_tokens=num_accepted,
            rejected_prediction_tokens=stats.num_draft_tokens_by_proposer[PREDICTION] - num_accepted,
        ),
    )


def speculation_report(sequences: list[Sequence], governor: Governor) -> SpeculationReport:
    """Of all choices together. `proposer` is the one that drafted most often; `mode` is the one that holds now."""
    mode = governor.mode(sequences[0].route, sequences[0].speculation)
    stats = _total(sequence.stats for sequence in sequences)
    by_proposer = stats.num_drafts_by_proposer
    return SpeculationReport(
        mode=mode,
        proposer=max(by_proposer, key=by_proposer.__getitem__, default=None),
        num_drafts=stats.num_drafts,
        num_draft_tokens=stats.num_draft_tokens,
        num_accepted=stats.num_accepted,
        accepted_per_position=stats.accepted_per_position,
        tokens_per_step=stats.tokens_per_step,
        off_reason=None if stats.num_drafts else _off_reason(sequences[0], mode),
    )


def _off_reason(sequence: Sequence, mode: str) -> OffReason:
    if sequence.speculation.most == 0:
        return "requested"
    if mode == "off":
        return "pool"
    return "no_draft" if sequence.proposers else "no_proposer"


def _total(all_stats: Iterable[SpeculationStats]) -> SpeculationStats:
    total = SpeculationStats()
    for stats in all_stats:
        total.add(stats)
    return total
