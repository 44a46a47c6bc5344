"""The nouns that every other module speaks: sampling parameters, drafts, verdicts, contexts. No I/O, no model.

Words used everywhere: *target* (the model whose text is wanted), *draft* (tokens guessed by a *proposer*), *row* (one
token fed to a model in a pass), *bonus token* (what the target adds after a fully accepted draft).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from foredraft.config import check, option
from foredraft.errors import ConfigError

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]

RULES = ("exact", "rejection", "block")
SPECULATION_MODES = ("off", "auto", "on")
MOST_DRAFTED = {"off": 0, "auto": 31, "on": 4}  # tokens in a step, where nobody says otherwise


def _require(ok: bool, name: str, given: object, allowed: str) -> None:
    if not ok:
        raise ConfigError(f"{name} is {given!r:.80}; allowed is {allowed}", name)


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen from the target's logits, and when a request ends. Validated when made.

    `temperature` 0 is greedy (lowest id on ties). `repetition_penalty` counts prompt and output, the other penalties
    the output only. `logprobs` asks for that many most likely tokens beside the chosen one, by the model's own
    distribution before any processing. `seed` None draws a fresh seed, which the result reports.

    Raises:
        ConfigError: a value is outside its range; the message names the field and the range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    min_tokens: int = 0
    max_tokens: int = 256
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None

    def __post_init__(self) -> None:
        finite = np.isfinite
        _require(finite(self.temperature) and 0 <= self.temperature <= 100, "temperature", self.temperature, "0 to 100")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 (off) or more")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0, up to 1 (off)")
        _require(0 <= self.min_p < 1, "min_p", self.min_p, "0 (off) to below 1")
        # Lower ones could make a logit infinite.
        _require(0.01 <= self.repetition_penalty <= 10, "repetition_penalty", self.repetition_penalty, "0.01 to 10")
        for name in ("presence_penalty", "frequency_penalty"):
            _require(-10 <= getattr(self, name) <= 10, name, getattr(self, name), "-10 to 10")
        for token, bias in self.logit_bias.items():
            _require(
                token >= 0 and abs(bias) <= 100, f"logit_bias[{token}]", bias, "token ids from 0, biases -100 to 100"
            )
        _require(self.min_tokens >= 0, "min_tokens", self.min_tokens, "0 or more")
        _require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "1 or more")
        _require(
            self.min_tokens <= self.max_tokens, "min_tokens", self.min_tokens, f"up to max_tokens ({self.max_tokens})"
        )
        _require(not isinstance(self.stop, str), "stop", self.stop, "a list of strings")
        _require(all(isinstance(s, str) and s for s in self.stop), "stop", self.stop, "strings that are not empty")
        _require(all(t >= 0 for t in self.stop_token_ids), "stop_token_ids", self.stop_token_ids, "ids from 0")
        _require(self.seed is None or 0 <= self.seed < 2**64, "seed", self.seed, "0 to 2**64 - 1")
        _require(1 <= self.n <= 128, "n", self.n, "1 to 128")
        _require(self.logprobs is None or 0 <= self.logprobs <= 20, "logprobs", self.logprobs, "0 to 20")

    @property
    def looks_back(self) -> bool:
        """Whether the scores of a token depend on the tokens before it, or on how many they are."""
        penalties = (self.repetition_penalty - 1, self.presence_penalty, self.frequency_penalty)
        return any(penalties) or self.min_tokens > 0


@dataclass(frozen=True)
class Speculation:
    """What a request wants of speculation.

    Where it is on, `proposers` are tried in order and the first that has a draft for this step is used; where it is
    auto, the governor chooses among them. `k` bounds the drafted tokens, of all branches together, and `tree_width`
    the branches at a place.
    """

    mode: str = option(
        "auto", "Whether to draft: auto drafts where it pays, on always, off never.", choices=SPECULATION_MODES
    )
    k: int | None = option(
        None, "Most tokens to draft in one step; not set: 4 where it is on, 31 where it is auto.", minimum=0, maximum=64
    )
    proposers: tuple[str, ...] = option(
        (), "Who drafts, in the order of asking; none means suffix, lookup, drafters, draft_model."
    )
    rule: str = option(
        "exact",
        "How drafts are accepted. exact: the same bytes as without drafts; the others: the same distribution.",
        choices=RULES,
    )
    tree_width: int | None = option(
        None,
        "Most tokens to draft for one place, as branches of a tree, where a model drafts; 1: chains; not set: 1 where "
        "it is on, 3 where it is auto. The rule block has chains only.",
        minimum=1,
        maximum=8,
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def most(self) -> int:
        """Most tokens to draft in one step."""
        return self.most_in(self.mode)

    def most_in(self, mode: str) -> int:
        """The same in another mode: that of the pool, say."""
        return MOST_DRAFTED[mode] if self.k is None or mode == "off" else self.k

    def width_in(self, mode: str) -> int:
        """Most tokens to draft for one place, in a mode."""
        default = 3 if mode == "auto" else 1
        return default if self.tree_width is None else self.tree_width


class Constraint(Protocol):
    """What a sequence's output has to match. Its state is the output so far; only `advance` changes it.

    One for each choice; the answers depend on the output and on the arguments alone.
    """

    @property
    def finish_reason(self) -> str | None:
        """None while more may follow; "stop" when the output is complete and nothing may; "error" when it is lost."""

    def mask(self, path: Sequence[int]) -> BoolArray:
        """Tokens that may follow the output and then `path`, bool [vocabulary]; not to be changed. Never empty: where
        nothing else may follow, the tokens that end a text may."""

    def num_allowed(self, tokens: Sequence[int]) -> int:
        """How many of `tokens`, from the first on, may follow the output, at most."""

    def forced(self) -> list[int]:
        """Tokens of the text that has to follow the output, as far as it is the only one; may be empty."""

    def advance(self, token: int) -> None:
        """Take a token as part of the output."""


@dataclass
class Context:
    """What a proposer may read of a sequence. Owned and mutated by the engine alone, between steps.

    `tokens` is prompt followed by output; `key` is the noise key of this request and choice (sampling/noise.py).
    `prediction` is what the caller expects the output to be, empty for no idea. Keys and values, and past outputs, are
    shared only between contexts of one `scope`; past outputs only of one pool, `shares`, too: empty for not at all.
    `constraint` has taken in the output.
    """

    id: int
    tokens: list[int]
    prompt_len: int
    params: SamplingParams
    key: int
    rule: str = "exact"
    prediction: tuple[int, ...] = ()
    scope: str = ""
    shares: str = ""
    constraint: Constraint | None = None

    @property
    def prompt(self) -> list[int]:
        return self.tokens[: self.prompt_len]

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_len :]

    def history(self, drafted: Sequence[int]) -> tuple[list[int], list[int]]:
        """Prompt and output as the processors look back at them after some drafted tokens; empty if they do not."""
        return (self.prompt, [*self.output, *drafted]) if self.params.looks_back else ([], [])


@dataclass(frozen=True)
class Draft:
    """Tokens guessed to follow a context, as a tree.

    tokens: k token ids. parents: for each token the index of its parent in `tokens`, -1 for a child of the context's
    last token; a parent comes before its children. A chain has parents -1, 0, 1, ...
    probs: the law each token was really drawn from, [k, target vocabulary] float32, or None for a draft that was
    chosen deterministically (a point mass). grades: for each token how sure its proposer is, in small whole numbers
    whose meaning is its own, the surer the higher; empty for no idea. Siblings of a place's first guess, which are
    rarely right, have grades below 0. How often which grade is right is learned.
    """

    proposer: str
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    probs: FloatArray | None = None
    grades: tuple[int, ...] = ()

    @classmethod
    def chain(
        cls, proposer: str, tokens: Sequence[int], probs: FloatArray | None = None, grades: Sequence[int] = ()
    ) -> Draft:
        return cls(proposer, tuple(tokens), tuple(range(-1, len(tokens) - 1)), probs, tuple(grades))

    def cut(self, count: int) -> Draft:
        """Its first `count` tokens, which make a draft of their own."""
        if count >= len(self.tokens):
            return self
        probs = None if self.probs is None else self.probs[:count]
        return Draft(self.proposer, self.tokens[:count], self.parents[:count], probs, self.grades[:count])

    @property
    def is_chain(self) -> bool:
        return self.parents == tuple(range(-1, len(self.tokens) - 1))

    @property
    def depths(self) -> list[int]:
        """Of each token, from 0."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths

    def path(self, node: int) -> list[int]:
        """Indices from the root's child down to `node`, inclusive; empty for -1."""
        nodes: list[int] = []
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]


@dataclass(frozen=True)
class Verdict:
    """What the target made of a draft: `path`, the indices of accepted draft tokens from the root down, and `token`,
    the target's own next token (the correction, or the bonus after a fully accepted draft)."""

    path: tuple[int, ...]
    token: int


@dataclass
class SpeculationStats:
    """Counters of one request (or, added up, of many). Rates are derived, never stored.

    `num_steps` counts target passes that emitted tokens for this request, with or without a draft.
    `accepted_per_position[i]` counts drafts whose token at depth i was accepted and kept.
    `num_ended_by_rejection` counts drafts in which the target refused a token, `num_rejected_by_proposer` the same for
    each proposer.
    """

    num_steps: int = 0
    num_tokens: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted: int = 0
    num_ended_by_rejection: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    num_drafts_by_proposer: Counter[str] = field(default_factory=Counter)
    num_draft_tokens_by_proposer: Counter[str] = field(default_factory=Counter)
    num_accepted_by_proposer: Counter[str] = field(default_factory=Counter)
    num_rejected_by_proposer: Counter[str] = field(default_factory=Counter)

    @property
    def alpha(self) -> float | None:
        """Chance that a drafted token is accepted given that all before it were; None before any trial."""
        trials = self.num_accepted + self.num_ended_by_rejection
        return self.num_accepted / trials if trials else None

    def alpha_of(self, proposer: str) -> float | None:
        """The same of one proposer's drafts."""
        accepted = self.num_accepted_by_proposer[proposer]
        trials = accepted + self.num_rejected_by_proposer[proposer]
        return accepted / trials if trials else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted tokens (falls with k by construction; alpha does not)."""
        return self.num_accepted / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def tokens_per_step(self) -> float | None:
        return self.num_tokens / self.num_steps if self.num_steps else None

    def record(self, proposer: str, drafted: int, accepted: int, rejected: bool) -> None:
        """Count one draft: tokens drafted, tokens accepted and kept, and whether the target refused one."""
        self.num_drafts += 1
        self.num_draft_tokens += drafted
        self.num_accepted += accepted
        self.num_ended_by_rejection += rejected
        self.num_drafts_by_proposer[proposer] += 1
        self.num_draft_tokens_by_proposer[proposer] += drafted
        self.num_accepted_by_proposer[proposer] += accepted
        self.num_rejected_by_proposer[proposer] += rejected
        missing = accepted - len(self.accepted_per_position)
        self.accepted_per_position += [0] * missing
        for position in range(accepted):
            self.accepted_per_position[position] += 1

    def add(self, other: SpeculationStats) -> None:
        """Add another's counters to these."""
        for name in (
            "num_steps",
            "num_tokens",
            "num_drafts",
            "num_draft_tokens",
            "num_accepted",
            "num_ended_by_rejection",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        longest = max(len(self.accepted_per_position), len(other.accepted_per_position))
        mine, theirs = (c + [0] * (longest - len(c)) for c in (self.accepted_per_position, other.accepted_per_position))
        self.accepted_per_position = [a + b for a, b in zip(mine, theirs, strict=True)]
        self.num_drafts_by_proposer.update(other.num_drafts_by_proposer)
        self.num_draft_tokens_by_proposer.update(other.num_draft_tokens_by_proposer)
        self.num_accepted_by_proposer.update(other.num_accepted_by_proposer)
        self.num_rejected_by_proposer.update(other.num_rejected_by_proposer)

    def as_dict(self) -> dict[str, Any]:
        return {
            "num_steps": self.num_steps,
            "num_tokens": self.num_tokens,
            "num_drafts": self.num_drafts,
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted": self.num_accepted,
            "accepted_per_position": list(self.accepted_per_position),
            "alpha": self.alpha,
            "acceptance_rate": self.acceptance_rate,
            "tokens_per_step": self.tokens_per_step,
            "num_drafts_by_proposer": dict(self.num_drafts_by_proposer),
            "num_draft_tokens_by_proposer": dict(self.num_draft_tokens_by_proposer),
            "num_accepted_by_proposer": dict(self.num_accepted_by_proposer),
        }
