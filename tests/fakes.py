"""Small real stand-ins for the engine's tests: a model that is a function of the token path, and many proposers.

The model keeps tokens and positions themselves as keys in a real paged KV cache and reads its path back through the
batch's page tables. Any fault of batching, slots, pages, commit or prefix sharing therefore changes the text.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from types import SimpleNamespace

import numpy as np

from foredraft.core import (
    BoolArray,
    Constraint,
    Context,
    Draft,
    FloatArray,
    IntArray,
    SamplingParams,
    Speculation,
    Verdict,
)
from foredraft.engine.engine import Engine
from foredraft.engine.sequence import Chunk
from foredraft.engine.sequence import Sequence as EngineSequence
from foredraft.engine.stops import StopMatcher
from foredraft.governor.governor import Governor
from foredraft.governor.pools import DEFAULT
from foredraft.kv.cache import PagedKV
from foredraft.models.detokenizer import Detokenizer
from foredraft.ops.base import Batch
from foredraft.proposers.base import Proposer
from foredraft.sampling.noise import noise_key
from foredraft.sampling.processors import process
from foredraft.sampling.sampler import choose

VOCAB = 24
EOS = VOCAB - 1
PAGE_SIZE = 4
CONTEXT_LENGTH = 200


class Letters:
    """A tokenizer's decoding half: letters, the two halves of one character (20, 21), a word (22) and the end (23)."""

    def token_bytes(self, token: int) -> bytes:
        return {20: b"\xc3", 21: b"\xa9", 22: b" abc", EOS: b""}.get(token, bytes([97 + token]))


def logits_after(path: Sequence[int]) -> FloatArray:
    """The model: logits that depend on every token of the path, [VOCAB]. Its text repeats itself now and then."""
    return _logits(len(path) % 3, sum(path) % 5, *path[-2:])


@cache
def _logits(*key: int) -> FloatArray:
    logits = np.random.default_rng(key).normal(0, 2.5, VOCAB).astype(np.float32)
    logits.flags.writeable = False
    return logits


class PathModel:
    """A decoder whose logits are `logits_after` the path it finds in the KV cache. Records the batches it saw.

    kept: the tokens whose logits it gives, as a decoder with a trimmed vocabulary does.
    """

    vocab_size = VOCAB

    def __init__(
        self, context_length: int = CONTEXT_LENGTH, num_padding: int = 0, kept: IntArray | None = None
    ) -> None:
        self.kept = kept
        self.arch = SimpleNamespace(context_length=context_length)
        self.batches: list[Batch] = []
        self._num_padding = num_padding

    def output_rows(self, tokens: IntArray) -> IntArray:
        return tokens

    def forward(self, batch: Batch, kv: PagedKV, more: IntArray | None = None) -> FloatArray:
        self.batches.append(batch)
        keys = kv.layers[0].keys
        places = [self._place(batch, kv, batch.sequences[row], [batch.slots[row]]) for row in range(len(batch.tokens))]
        for row, (page, offset) in enumerate(places):
            keys[page, 0, :, offset] = [[batch.tokens[row], batch.positions[row]]]
        logits = np.array([self._logits(batch, kv, row) for row in batch.wanted], np.float32).reshape(-1, VOCAB)
        if self.kept is not None:
            return logits[:, self.kept if more is None else np.append(self.kept, more)]
        # What padding says must not count.
        return np.pad(logits, ((0, 0), (0, self._num_padding)), constant_values=99.0)

    def _logits(self, batch: Batch, kv: PagedKV, row: int) -> FloatArray:
        own = batch.ancestors[batch.ancestor_offsets[row] : batch.ancestor_offsets[row + 1]]
        assert own[-1] == batch.slots[row]
        slots = [*range(batch.prefixes[row]), *own]
        page, offset = self._place(batch, kv, batch.sequences[row], slots)
        tokens, positions = kv.layers[0].keys[page, 0, :, offset].astype(int).T
        assert positions.tolist() == list(range(len(slots)))
        return logits_after(tokens.tolist())

    def _place(self, batch: Batch, kv: PagedKV, sequence: int, slots: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        slots = np.array(slots)
        return batch.page_tables[sequence, slots // kv.page_size], slots % kv.page_size


def next_token(context: Context, drafted: Sequence[int] = ()) -> int:
    """The token that the model will choose after a context and some drafted tokens, without engine or cache."""
    output = [*context.output, *drafted]
    mask = context.constraint.mask(drafted) if context.constraint else None
    scores = process(logits_after([*context.prompt, *output]), context.params, context.prompt, output, (EOS,), mask)
    return choose(scores, context.params.temperature, context.key, len(context.tokens) + len(drafted))


class Steps:
    """A constraint of `length` tokens at most, by what the tokens before add up to. Every fourth token is forced."""

    def __init__(self, length: int) -> None:
        self.output: list[int] = []
        self._length = length

    @property
    def finish_reason(self) -> str | None:
        return "stop" if len(self.output) >= self._length else None

    def mask(self, path: Sequence[int]) -> BoolArray:
        before = [*self.output, *path]
        mask = np.zeros(VOCAB, np.bool_)
        if len(before) >= self._length or EOS in before:
            mask[EOS] = True
        elif len(before) % 4 == 3:
            mask[sum(before) % 20] = True
        else:
            mask[[token for token in range(EOS) if (token + sum(before)) % 3]] = True
            mask[EOS] = sum(before) % 7 == 0
        return mask

    def num_allowed(self, tokens: Sequence[int]) -> int:
        return next((i for i, token in enumerate(tokens) if not self.mask(tokens[:i])[token]), len(tokens))

    def forced(self) -> list[int]:
        return [int(self.mask([]).argmax())] if self.mask([]).sum() == 1 else []

    def advance(self, token: int) -> None:
        assert self.mask([])[token]
        self.output.append(token)


class FakeProposer(Proposer):
    """Drafts chains whose tokens `pick` chooses, given the right one. Records calls; checks the budgets."""

    def __init__(self, name: str, pick: Callable[[random.Random, int], int], seed: int = 0) -> None:
        self.name = name
        self.calls: list[str] = []
        self.observed: list[tuple[Draft, Verdict]] = []
        self._pick, self._random = pick, random.Random(seed)

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        assert contexts
        assert all(budget >= 1 for budget in budgets)
        self.calls.append("propose")
        return [self.draft(context, budget) for context, budget in zip(contexts, budgets, strict=True)]

    def draft(self, context: Context, budget: int) -> Draft | None:
        tokens: list[int] = []
        for _ in range(budget):
            tokens.append(self._pick(self._random, next_token(context, tokens)))
        return Draft.chain(self.name, tokens)

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        self.calls.append("observe")
        self.observed.append((draft, verdict))

    def release(self, context_id: int) -> None:
        self.calls.append("release")


class TreeProposer(FakeProposer):
    """Random trees, a good part of whose tokens are right; sometimes nothing."""

    def __init__(self, name: str, seed: int = 0) -> None:
        super().__init__(name, lambda rng, right: right, seed)

    def draft(self, context: Context, budget: int) -> Draft | None:
        rng, tokens, parents = self._random, [], []
        for node in range(rng.randint(0, budget)):
            parents.append(rng.randint(-1, node - 1))
            path = Draft(self.name, tuple(tokens), tuple(parents[:-1])).path(parents[-1])
            right = next_token(context, [tokens[i] for i in path])
            tokens.append(right if rng.random() < 0.7 else rng.randrange(VOCAB))
        return Draft(self.name, tuple(tokens), tuple(parents)) if tokens else None


class BrokenProposer(FakeProposer):
    """Fails in the way it is made for: each kind in `FAULTS`."""

    FAULTS = ("raises", "observe", "release", "too long", "unknown token", "negative", "parents", "late", "count")

    def __init__(self, fault: str) -> None:
        super().__init__("broken", lambda rng, right: right)
        self.fault = fault

    def propose(self, contexts: Sequence[Context], budgets: Sequence[int]) -> list[Draft | None]:
        if self.fault == "raises":
            raise RuntimeError("no draft today")
        drafts = super().propose(contexts, budgets)
        return drafts[:-1] if self.fault == "count" else drafts

    def draft(self, context: Context, budget: int) -> Draft | None:
        right = [next_token(context)]
        match self.fault:
            case "too long":
                return Draft.chain(self.name, right * (budget + 40))
            case "unknown token":
                return Draft.chain(self.name, [VOCAB])
            case "negative":
                return Draft.chain(self.name, [-1])
            case "parents":
                return Draft(self.name, (right[0], right[0]), (-1,))
            case "late":
                return Draft(self.name, (right[0], right[0]), (1, -1))
            case _:
                return super().draft(context, budget)

    def observe(self, context: Context, draft: Draft, verdict: Verdict) -> None:
        if self.fault == "observe":
            raise RuntimeError("cannot look")

    def release(self, context_id: int) -> None:
        if self.fault == "release":
            raise RuntimeError("cannot let go")


def proposers(seed: int = 0) -> dict[str, FakeProposer]:
    """Well-behaved ones: always right, always wrong, now and then right, trees, rarely anything."""

    def often_right(rng: random.Random, right: int) -> int:
        return right if rng.random() < 0.7 else rng.randrange(VOCAB)

    return {
        "right": FakeProposer("right", lambda rng, right: right, seed),
        "wrong": FakeProposer("wrong", lambda rng, right: (right + 1) % VOCAB, seed),
        "random": FakeProposer("random", often_right, seed),
        "tree": TreeProposer("tree", seed),
    }


_ids = count()


def new_sequence(
    prompt: Sequence[int],
    params: SamplingParams,
    speculation: Speculation | None = None,
    request: int = 0,
    choice: int = 0,
    leader: EngineSequence | None = None,
    scope: str = "",
    constraint: Constraint | None = None,
    route: str = DEFAULT,
) -> EngineSequence:
    """A sequence as the Python API makes it; speculation None means off."""
    seed = params.seed or 0
    speculation = speculation or Speculation("off")
    key = noise_key(seed, choice)
    context = Context(
        next(_ids), list(prompt), len(prompt), params, key, speculation.rule, constraint=constraint, scope=scope
    )
    return EngineSequence(
        context=context,
        request=request,
        choice=choice,
        seed=seed,
        speculation=speculation,
        proposers=speculation.proposers,
        eos_ids=frozenset({EOS}),
        detokenizer=Detokenizer(Letters()),
        stops=StopMatcher(params.stop),
        token_limit=min(len(prompt) + params.max_tokens, CONTEXT_LENGTH),
        route=route,
        leader=leader,
    )


def new_engine(
    num_pages: int = 400,
    max_sequences: int = 16,
    max_rows: int = 64,
    share_prefixes: bool = True,
    proposers: dict[str, Proposer] | None = None,
    governor: Governor | None = None,
) -> Engine:
    kv = PagedKV(1, 1, 2, num_pages, PAGE_SIZE, share_prefixes)
    return Engine(PathModel(), kv, proposers or {}, max_sequences, max_rows, governor)


def run(engine: Engine, sequences: Sequence[EngineSequence], max_steps: int = 5000) -> dict[int, list[Chunk]]:
    """Queue sequences, step until all have ended, and return each one's chunks by context id."""
    chunks: dict[int, list[Chunk]] = {sequence.context.id: [] for sequence in sequences}
    for sequence in sequences:
        engine.add(sequence)
    for chunk in _steps(engine, max_steps):
        chunks[chunk.context_id].append(chunk)
    return chunks


def _steps(engine: Engine, max_steps: int) -> Iterator[Chunk]:
    for _ in range(max_steps):
        if engine.is_idle:
            return
        yield from engine.step()
    raise AssertionError(f"not done after {max_steps} steps")


def text(chunks: Sequence[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks)


def outcome(chunks: Sequence[Chunk]) -> tuple[object, ...]:
    """What a caller sees and speculation must not change."""
    return (
        [chunk.token_id for chunk in chunks],
        [chunk.text for chunk in chunks],
        [chunk.logprobs for chunk in chunks],
        [chunk.finish_reason for chunk in chunks],
    )


def plain_tokens(sequence: EngineSequence) -> list[int]:
    """The output by the book: one token after the other until the end token, a stop token or a length.

    Stop strings are not looked at.
    """
    context, params = sequence.context, sequence.context.params
    context = Context(-1, context.prompt, context.prompt_len, params, context.key)
    while len(context.tokens) < sequence.token_limit:
        token = next_token(context)
        context.tokens.append(token)
        if (token == EOS and not params.ignore_eos) or token in params.stop_token_ids:
            break
    return context.output


def pages_by_owner(engine: Engine) -> tuple[int, int]:
    """Pages nobody uses, and pages in use by running sequences (each counted once)."""
    in_use = {page for sequence in engine.scheduler.running if sequence.kv for page in sequence.kv.pages}
    return engine.scheduler._kv.num_available_pages, len(in_use)
