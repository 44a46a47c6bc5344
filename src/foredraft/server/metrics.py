"""What a server tells Prometheus: every metric's name, meaning and PromQL. docs/metrics.md is written from this file.

Meanings are vLLM's where the names are (after the prefix). Counters, never ratios: a rate over any window follows in
PromQL. `counting.py` counts.
"""

from __future__ import annotations

from foredraft.server.governor_metrics import GOVERNOR_METRICS
from foredraft.server.metric import DRAFT, ROUTE, Metric, drafting, mean, of_drafts, of_steps, per_second, percentile
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

REQUESTS = Metric(
    "foredraft_requests_total",
    "Requests that have ended, by outcome.",
    (*ROUTE, "outcome"),
    {
        "requests per second": per_second("requests_total", "route, outcome"),
        "share turned away because the queue was full": "sum by (route) "
        '(rate(foredraft_requests_total{outcome="queue_full"}[5m]))'
        f" / {per_second('requests_total')}",
    },
    OUTCOMES,
)
WAITING = Metric(
    "foredraft_num_sequences_waiting",
    "Queue length: sequences (one for each choice of a request) that wait for a place.",
    ROUTE,
    {"longest queue of the last 15 minutes": "max_over_time(foredraft_num_sequences_waiting[15m])"},
)
RUNNING = Metric(
    "foredraft_num_sequences_running",
    "Sequences whose prompt is being read or whose answer is being written.",
    ROUTE,
    {"mean concurrency": "avg_over_time(foredraft_num_sequences_running[5m])"},
)
TIME_TO_FIRST_TOKEN = Metric(
    "foredraft_time_to_first_token_seconds",
    "From a request's arrival to the first token of its answer, waiting included.",
    ROUTE,
    {"95th percentile": percentile(0.95, "time_to_first_token_seconds")},
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
INTER_TOKEN_LATENCY = Metric(
    "foredraft_inter_token_latency_seconds",
    "Time between the tokens of an answer, per token: where a step decides m tokens, t after the one before, that is m "
    "gaps of t / m.",
    ROUTE,
    {
        "median": percentile(0.5, "inter_token_latency_seconds"),
        "95th percentile": percentile(0.95, "inter_token_latency_seconds"),
        "mean": mean("inter_token_latency_seconds"),
    },
    buckets=(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1),
)
PROMPT_TOKENS = Metric(
    "foredraft_prompt_tokens_total",
    "Tokens of prompts that were read, out of the prefix cache or not; once, however many choices continue one.",
    ROUTE,
    {"prompt tokens per second": per_second("prompt_tokens_total")},
)
CACHED_TOKENS = Metric(
    "foredraft_prefix_cache_hits_total",
    "Tokens of prompts that were found in the prefix cache and not computed again.",
    ROUTE,
    {"prefix-cache hit rate": f"{per_second('prefix_cache_hits_total')} / {per_second('prompt_tokens_total')}"},
)
GENERATION_TOKENS = Metric(
    "foredraft_generation_tokens_total",
    "Tokens of answers.",
    ROUTE,
    {
        "tokens per second": per_second("generation_tokens_total"),
        "tokens per step of an answer, the gain of speculation": f"{per_second('generation_tokens_total')} / "
        f"({per_second('spec_decode_num_drafts_total')} + {per_second('spec_decode_num_steps_without_draft_total')})",
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
    DRAFT,
    {
        "share of an answer's steps that had a draft": f"{per_second('spec_decode_num_drafts_total')} / "
        f"({per_second('spec_decode_num_drafts_total')} + {per_second('spec_decode_num_steps_without_draft_total')})"
    },
)
DRAFT_TOKENS = Metric(
    "foredraft_spec_decode_num_draft_tokens_total",
    "Tokens of the drafts that were verified.",
    DRAFT,
    {"mean length of a draft": of_drafts("num_draft_tokens", "num_drafts")},
)
ACCEPTED_TOKENS = Metric(
    "foredraft_spec_decode_num_accepted_tokens_total",
    "Drafted tokens that were accepted and became part of the answer.",
    DRAFT,
    {
        "acceptance rate, accepted / drafted (it falls with k)": of_drafts("num_accepted_tokens", "num_draft_tokens"),
        "mean acceptance length, the bonus token included": f"1 + {of_drafts('num_accepted_tokens', 'num_drafts')}",
    },
)
REJECTED_DRAFTS = Metric(
    "foredraft_spec_decode_num_rejected_drafts_total",
    "Drafts that ended because the target refused a token (others were accepted whole, or the answer ended in them).",
    DRAFT,
    {
        "alpha, the chance that a token is accepted after those before it were": f"{drafting('num_accepted_tokens')}"
        f" / ({drafting('num_accepted_tokens')} + {drafting('num_rejected_drafts')})"
    },
)
ACCEPTED_PER_POSITION = Metric(
    "foredraft_spec_decode_num_accepted_tokens_per_pos_total",
    "Accepted tokens by their position in the draft, from 0.",
    (*DRAFT, "position"),
    {
        "acceptance rate per position, of all drafts (unconditional)": ""
        f"{drafting('num_accepted_tokens_per_pos', 'route, proposer, position')}"
        f" / on (route, proposer) group_left () {drafting('num_drafts')}"
    },
)
STEPS_WITHOUT_DRAFT = Metric(
    "foredraft_spec_decode_num_steps_without_draft_total",
    "Steps of an answer that had no draft, by reason.",
    (*ROUTE, "reason"),
    {
        "why nothing is drafted, as a share of those steps": ""
        f"{per_second('spec_decode_num_steps_without_draft_total', 'route, reason')}"
        f" / on (route) group_left () {per_second('spec_decode_num_steps_without_draft_total')}"
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
        "mean seconds of a step, by phase": of_steps("engine_step_seconds_total", "phase"),
        "share of the time in which an engine works": ""
        "sum without (phase) (rate(foredraft_engine_step_seconds_total[5m]))",
    },
    PHASES,
)
STEP_ROWS = Metric(
    "foredraft_engine_rows_total",
    "Rows of the target's passes, by kind; what a pass costs goes by its rows.",
    ("kind",),
    {"mean rows of a step, by kind": of_steps("engine_rows_total", "kind")},
    ROW_KINDS,
)
OUTPUTS_BYTES = Metric(
    "foredraft_past_outputs_bytes",
    "Memory of the past outputs of a pool that are drafted from.",
    ("pool",),
    {"memory of all pools": "sum (foredraft_past_outputs_bytes)"},
)
OUTPUTS = Metric(
    "foredraft_num_past_outputs",
    "Past outputs of a pool that are drafted from, each of a tenant's once or twice.",
    ("pool",),
    {"mean size": "foredraft_past_outputs_bytes / foredraft_num_past_outputs"},
)
OUTPUTS_HITS = Metric(
    "foredraft_past_outputs_hits_total",
    "Drafts out of past outputs of which a token or more was accepted.",
    ("pool",),
    {"hits per second": per_second("past_outputs_hits_total", "pool")},
)
OUTPUTS_ACCEPTED = Metric(
    "foredraft_past_outputs_accepted_tokens_total",
    "Accepted tokens of such drafts.",
    ("pool",),
    {
        "accepted tokens of a hit": f"{per_second('past_outputs_accepted_tokens_total', 'pool')} / "
        f"{per_second('past_outputs_hits_total', 'pool')}"
    },
)

METRICS = (*(value for value in list(globals().values()) if isinstance(value, Metric)), *GOVERNOR_METRICS)
