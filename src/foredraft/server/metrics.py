"""What a server tells Prometheus: every metric's name, meaning and PromQL. docs/metrics.md is written from this file.

Meanings are vLLM's where the names are (after the prefix). Counters, never ratios: a rate over any window follows in
PromQL. `counting.py` counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foredraft.governor.advice import RULES
from foredraft.steps import NO_DRAFT_REASONS, PHASES

OUTCOMES = {
    "stop": "the answer came to its end",
    "length": "the answer was cut at max_tokens or the context",
    "invalid": "something in the request is not allowed",
    "queue_full": "too many were waiting",
    "deadline": "it took too long",
    "disconnected": "the client went away",
    "shutdown": "the server was stopped",
    "error": "a fault of the server",
}
ROW_KINDS = {
    "prompt": "tokens of prompts, and of answers that have to be read again after a preemption",
    "decode": "last tokens of answers",
    "draft": "drafted tokens",
}
MODES = {
    "off": "nothing is drafted",
    "auto": "drafts are made where they pay",
    "on": "drafts are always made",
}
DECISIONS = {
    "draft": "a draft was wanted for one of the route's answers or more",
    "no_draft": "for none, because none would have paid, or speculation is off",
}
DELIVERIES = {
    "sent": "the receiver took it",
    "failed": "the receiver refused it, or could not be reached in all attempts",
    "dropped": "too many were waiting",
}

_ROUTE = ("pool", "route")
_DRAFT = ("pool", "route", "proposer")


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric as people and Prometheus know it; a histogram has buckets, a counter's name ends in _total.

    values: what the last of its labels may be, where that is not open. queries: what to ask of it, and the PromQL.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    queries: Mapping[str, str]
    values: Mapping[str, str] | None = None
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> str:
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


def _per_second(name: str, by: str = "route") -> str:
    return f"sum by ({by}) (rate(foredraft_{name}[5m]))"


def _drafting(name: str, by: str = "route, proposer") -> str:
    return _per_second(f"spec_decode_{name}_total", by)


def _of_drafts(part: str, whole: str) -> str:
    return f"{_drafting(part)} / {_drafting(whole)}"


def _of_steps(name: str, by: str) -> str:
    return f"{_per_second(name, by)} / on () group_left () sum (rate(foredraft_engine_steps_total[5m]))"


def _percentile(share: float, name: str) -> str:
    return f"histogram_quantile({share}, {_per_second(f'{name}_bucket', 'route, le')})"


def _mean(name: str) -> str:
    return f"{_per_second(f'{name}_sum')} / {_per_second(f'{name}_count')}"


REQUESTS = Metric(
    "foredraft_requests_total",
    "Requests that have ended, by outcome.",
    (*_ROUTE, "outcome"),
    {
        "requests per second": _per_second("requests_total", "route, outcome"),
        "share turned away because the queue was full": "sum by (route) "
        '(rate(foredraft_requests_total{outcome="queue_full"}[5m]))'
        f" / {_per_second('requests_total')}",
    },
    OUTCOMES,
)
WAITING = Metric(
    "foredraft_num_sequences_waiting",
    "Queue length: sequences (one for each choice of a request) that wait for a place.",
    _ROUTE,
    {"longest queue of the last 15 minutes": "max_over_time(foredraft_num_sequences_waiting[15m])"},
)
RUNNING = Metric(
    "foredraft_num_sequences_running",
    "Sequences whose prompt is being read or whose answer is being written.",
    _ROUTE,
    {"mean concurrency": "avg_over_time(foredraft_num_sequences_running[5m])"},
)
TIME_TO_FIRST_TOKEN = Metric(
    "foredraft_time_to_first_token_seconds",
    "From a request's arrival to the first token of its answer, waiting included.",
    _ROUTE,
    {"95th percentile": _percentile(0.95, "time_to_first_token_seconds")},
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
INTER_TOKEN_LATENCY = Metric(
    "foredraft_inter_token_latency_seconds",
    "Time between the tokens of an answer, per token: where a step decides m tokens, t after the one before, that is m "
    "gaps of t / m.",
    _ROUTE,
    {
        "median": _percentile(0.5, "inter_token_latency_seconds"),
        "95th percentile": _percentile(0.95, "inter_token_latency_seconds"),
        "mean": _mean("inter_token_latency_seconds"),
    },
    buckets=(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1),
)
PROMPT_TOKENS = Metric(
    "foredraft_prompt_tokens_total",
    "Tokens of prompts that were read, out of the prefix cache or not; once, however many choices continue one.",
    _ROUTE,
    {"prompt tokens per second": _per_second("prompt_tokens_total")},
)
CACHED_TOKENS = Metric(
    "foredraft_prefix_cache_hits_total",
    "Tokens of prompts that were found in the prefix cache and not computed again.",
    _ROUTE,
    {"prefix-cache hit rate": f"{_per_second('prefix_cache_hits_total')} / {_per_second('prompt_tokens_total')}"},
)
GENERATION_TOKENS = Metric(
    "foredraft_generation_tokens_total",
    "Tokens of answers.",
    _ROUTE,
    {
        "tokens per second": _per_second("generation_tokens_total"),
        "tokens per step of an answer, the gain of speculation": f"{_per_second('generation_tokens_total')} / "
        f"({_per_second('spec_decode_num_drafts_total')} + {_per_second('spec_decode_num_steps_without_draft_total')})",
    },
)
KV_USE = Metric(
    "foredraft_kv_cache_usage_ratio",
    "Share of the KV cache's pages that sequences hold, 0 to 1. Prefixes kept for later do not count.",
    (),
    {"highest of the last 15 minutes": "max_over_time(foredraft_kv_cache_usage_ratio[15m])"},
)
DRAFTS = Metric(
    "foredraft_spec_decode_num_drafts_total",
    "Drafts that were verified.",
    _DRAFT,
    {
        "share of an answer's steps that had a draft": f"{_per_second('spec_decode_num_drafts_total')} / "
        f"({_per_second('spec_decode_num_drafts_total')} + {_per_second('spec_decode_num_steps_without_draft_total')})"
    },
)
DRAFT_TOKENS = Metric(
    "foredraft_spec_decode_num_draft_tokens_total",
    "Tokens of the drafts that were verified.",
    _DRAFT,
    {"mean length of a draft": _of_drafts("num_draft_tokens", "num_drafts")},
)
ACCEPTED_TOKENS = Metric(
    "foredraft_spec_decode_num_accepted_tokens_total",
    "Drafted tokens that were accepted and became part of the answer.",
    _DRAFT,
    {
        "acceptance rate, accepted / drafted (it falls with k)": _of_drafts("num_accepted_tokens", "num_draft_tokens"),
        "mean acceptance length, the bonus token included": f"1 + {_of_drafts('num_accepted_tokens', 'num_drafts')}",
    },
)
REJECTED_DRAFTS = Metric(
    "foredraft_spec_decode_num_rejected_drafts_total",
    "Drafts that ended because the target refused a token (others were accepted whole, or the answer ended in them).",
    _DRAFT,
    {
        "alpha, the chance that a token is accepted after those before it were": f"{_drafting('num_accepted_tokens')}"
        f" / ({_drafting('num_accepted_tokens')} + {_drafting('num_rejected_drafts')})"
    },
)
ACCEPTED_PER_POSITION = Metric(
    "foredraft_spec_decode_num_accepted_tokens_per_pos_total",
    "Accepted tokens by their position in the draft, from 0.",
    (*_DRAFT, "position"),
    {
        "acceptance rate per position, of all drafts (unconditional)": ""
        f"{_drafting('num_accepted_tokens_per_pos', 'route, proposer, position')}"
        f" / on (route, proposer) group_left () {_drafting('num_drafts')}"
    },
)
STEPS_WITHOUT_DRAFT = Metric(
    "foredraft_spec_decode_num_steps_without_draft_total",
    "Steps of an answer that had no draft, by reason.",
    (*_ROUTE, "reason"),
    {
        "why nothing is drafted, as a share of those steps": ""
        f"{_per_second('spec_decode_num_steps_without_draft_total', 'route, reason')}"
        f" / on (route) group_left () {_per_second('spec_decode_num_steps_without_draft_total')}"
    },
    NO_DRAFT_REASONS,
)
STEPS = Metric(
    "foredraft_engine_steps_total",
    "Passes of the target model.",
    (),
    {"steps per second": "rate(foredraft_engine_steps_total[5m])"},
)
STEP_SECONDS = Metric(
    "foredraft_engine_step_seconds_total",
    "Time spent in steps, by phase.",
    ("phase",),
    {
        "mean seconds of a step, by phase": _of_steps("engine_step_seconds_total", "phase"),
        "share of the time in which an engine works": ""
        "sum without (phase) (rate(foredraft_engine_step_seconds_total[5m]))",
    },
    PHASES,
)
STEP_ROWS = Metric(
    "foredraft_engine_rows_total",
    "Rows of the target's passes, by kind; what a pass costs goes by its rows.",
    ("kind",),
    {"mean rows of a step, by kind": _of_steps("engine_rows_total", "kind")},
    ROW_KINDS,
)
POOL_MODE = Metric(
    "foredraft_pool_mode",
    "1 for the mode that a pool is in, 0 for the others.",
    ("pool", "mode"),
    {"pools that are off": 'foredraft_pool_mode{mode="off"} == 1'},
    MODES,
)
DECIDED_STEPS = Metric(
    "foredraft_governor_decisions_total",
    "Steps in which something was decided about drafts for a route, by what.",
    (*_ROUTE, "decision"),
    {
        "share of a route's steps in which drafts were wanted": "sum by (route) "
        '(rate(foredraft_governor_decisions_total{decision="draft"}[5m]))'
        f" / {_per_second('governor_decisions_total')}"
    },
    DECISIONS,
)
SWITCHES = Metric(
    "foredraft_governor_switches_total",
    "How often the governor began or ended drafting for a route.",
    _ROUTE,
    {"switches per minute": "60 * rate(foredraft_governor_switches_total[5m])"},
)
ALPHA = Metric(
    "foredraft_governor_alpha_ratio",
    "The alpha that the governor expects, 0 to 1; NaN before the first trial.",
    _DRAFT,
    {
        "how far that is from the alpha of the last 5 minutes": "foredraft_governor_alpha_ratio - on (route, proposer) "
        f"{_drafting('num_accepted_tokens')}"
        f" / ({_drafting('num_accepted_tokens')} + {_drafting('num_rejected_drafts')})"
    },
)
CALIBRATION_ERROR = Metric(
    "foredraft_governor_calibration_error_ratio",
    "How far the governor's chances of acceptance and what came of them lie apart, 0 to 1; NaN where it does not know.",
    _DRAFT,
    {"worst of a route": "max by (route) (foredraft_governor_calibration_error_ratio)"},
)
QUARANTINED = Metric(
    "foredraft_quarantined_proposers",
    "1 where a proposer drafts no more for a route because its acceptance collapsed, or somebody said so; else 0.",
    _DRAFT,
    {"who is in quarantine": "foredraft_quarantined_proposers == 1"},
)
ADVICE = Metric(
    "foredraft_advice_active",
    "How many pieces of advice stand for a route (one for each proposer that it is about), by rule.",
    (*_ROUTE, "rule"),
    {"what stands": "foredraft_advice_active > 0"},
    RULES,
)
ALERTS = Metric(
    "foredraft_alerts_total",
    "Advice that has begun, by rule.",
    (*_ROUTE, "rule"),
    {"advice of the last day": "sum by (route, rule) (increase(foredraft_alerts_total[1d]))"},
    RULES,
)
WEBHOOKS = Metric(
    "foredraft_webhook_messages_total",
    "Messages to the webhook, by what became of them.",
    ("outcome",),
    {
        "messages of the last day that did not arrive": ""
        'sum (increase(foredraft_webhook_messages_total{outcome!="sent"}[1d]))'
    },
    DELIVERIES,
)

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
