"""What a server tells Prometheus of its governor: modes, decisions, what was learned, advice. See metrics.py."""

from __future__ import annotations

from foredraft.governor.advice import RULES
from foredraft.server.metric import DRAFT, ROUTE, Metric, drafting, per_second

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
    (*ROUTE, "decision"),
    {
        "share of a route's steps in which drafts were wanted": "sum by (route) "
        '(rate(foredraft_governor_decisions_total{decision="draft"}[5m]))'
        f" / {per_second('governor_decisions_total')}"
    },
    DECISIONS,
)
SWITCHES = Metric(
    "foredraft_governor_switches_total",
    "How often the governor began or ended drafting for a route.",
    ROUTE,
    {"switches per minute": "60 * rate(foredraft_governor_switches_total[5m])"},
)
ALPHA = Metric(
    "foredraft_governor_alpha_ratio",
    "The alpha that the governor expects, 0 to 1; NaN before the first trial.",
    DRAFT,
    {
        "how far that is from the alpha of the last 5 minutes": "foredraft_governor_alpha_ratio - on (route, proposer) "
        f"{drafting('num_accepted_tokens')}"
        f" / ({drafting('num_accepted_tokens')} + {drafting('num_rejected_drafts')})"
    },
)
CALIBRATION_ERROR = Metric(
    "foredraft_governor_calibration_error_ratio",
    "How far the governor's chances of acceptance and what came of them lie apart, 0 to 1; NaN where it does not know.",
    DRAFT,
    {"worst of a route": "max by (route) (foredraft_governor_calibration_error_ratio)"},
)
QUARANTINED = Metric(
    "foredraft_quarantined_proposers",
    "1 where a proposer drafts no more for a route because its acceptance collapsed, or somebody said so; else 0.",
    DRAFT,
    {"who is in quarantine": "foredraft_quarantined_proposers == 1"},
)
ADVICE = Metric(
    "foredraft_advice_active",
    "How many pieces of advice stand for a route (one for each proposer that it is about), by rule.",
    (*ROUTE, "rule"),
    {"what stands": "foredraft_advice_active > 0"},
    RULES,
)
ALERTS = Metric(
    "foredraft_alerts_total",
    "Advice that has begun, by rule.",
    (*ROUTE, "rule"),
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

GOVERNOR_METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
