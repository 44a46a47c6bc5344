"""A language model of one line: after a prompt it says the prompt's letters in capitals. Tokens are bytes.

It has the interface of LLM as the command line and the benchmark use it, drafts, and can be told to go wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from foredraft.core import SamplingParams, Speculation, SpeculationStats
from foredraft.engine.results import Choice, Result
from foredraft.engine.sequence import Chunk, TokenLogprobs
from foredraft.errors import ModelError, RequestError, TemplateError

PROPOSERS = ("lookup", "draft_model")
PERIOD = 3  # the target refuses every third draft's last token


class FakeLLM:
    """`instances` are all that were made. Set on the class (monkeypatch): `has_template`, `interrupt_at` (the token
    before which Ctrl-C comes), `interrupt_after` (the calls before the one that ends so), and `is_wrong_with` (a
    proposer that changes the text's third token)."""

    instances: list[FakeLLM] = []  # noqa: RUF012 (reset by the fixture)
    has_template = True
    interrupt_at: int | None = None
    interrupt_after: int | None = None
    is_wrong_with: str | None = None

    def __init__(self, model: str | Path, draft: str | None = None, **settings: object) -> None:
        if model == "missing":
            raise ModelError("'missing' is neither a file nor a known model; known are smollm2-135m")
        self.model_name, self.settings = str(model), settings
        given = settings.get("proposers")
        self.proposers = tuple(given) if given is not None else PROPOSERS[: 2 if draft else 1]  # type: ignore[call-overload]
        self.tokenizer = SimpleNamespace(encode=lambda text, parse_special=False: list(text.encode()))
        self.governor = SimpleNamespace(curves=None)
        self.context_length = int(settings.get("context_length") or 100_000)  # type: ignore[call-overload]
        self.prompts: list[list[int]] = []
        self.routes: list[str] = []  # of every call
        self.response_format: Mapping[str, object] | None = None
        self.is_closed = False
        self._step = 0
        type(self).instances.append(self)

    @property
    def grows_trees(self) -> tuple[str, ...]:
        return tuple(name for name in self.proposers if name == "draft_model")

    @property
    def has_chat_template(self) -> bool:
        return self.has_template

    def chat_tokens(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        if not self.has_template:
            raise TemplateError(f"{self.model_name} has no chat template")
        return list("".join(f"<{m['role']}>{m['content']}" for m in messages).encode())

    def close(self) -> None:
        self.is_closed = True

    def stream(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] = SamplingParams(),  # noqa: B008
        speculation: Speculation = Speculation(),  # noqa: B008
        *,
        response_format: Mapping[str, object] | None = None,
        route: str = "default",
    ) -> Iterator[Chunk]:
        self.response_format = response_format
        self.routes.append(route)
        if self.interrupt_after is not None and len(self.routes) > self.interrupt_after:
            type(self).interrupt_after = None
            raise KeyboardInterrupt
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else params
        for prompt in prompts:
            if len(prompt) >= self.context_length:
                raise RequestError(f"the prompt has {len(prompt)} tokens, the context {self.context_length}")
            self.prompts.append(list(prompt))
        texts = [self._text(p, s, speculation) for p, s in zip(prompts, each, strict=True)]
        return self._run([(r, c, t) for r, t in enumerate(texts) for c in range(each[r].n)], speculation)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] = SamplingParams(),  # noqa: B008
        speculation: Speculation = Speculation(),  # noqa: B008
    ) -> list[Result]:
        chunks = list(self.stream(prompts, params, speculation))
        results = []
        for request, prompt in enumerate(prompts):
            mine = [chunk for chunk in chunks if chunk.request == request]
            choice = Choice(
                "".join(c.text for c in mine),
                [c.token_id for c in mine],
                "length",
                [c.logprobs for c in mine if c.logprobs],
                mine[-1].stats or SpeculationStats(),
            )
            results.append(Result(list(prompt), [choice], 0, 0))
        return results

    def _text(self, prompt: Sequence[int], params: SamplingParams, how: Speculation) -> bytes:
        letters = bytes(prompt).decode().rpartition(">")[2].upper().encode() or b"?"
        text = (letters * (params.max_tokens // len(letters) + 1))[: params.max_tokens]
        if how.mode != "off" and self.is_wrong_with in (how.proposers or self.proposers):
            return text[:2] + b"#" + text[3:]
        return text

    def _run(self, texts: list[tuple[int, int, bytes]], how: Speculation) -> Iterator[Chunk]:
        width = how.most + 1
        longest = max(len(text) for _, _, text in texts)
        stats = {(request, choice): SpeculationStats() for request, choice, _ in texts}
        for start in range(0, longest, width):
            self._step += 1
            for request, choice, text in texts:
                yield from self._emit(request, choice, text, start, width, stats[request, choice], how)

    def _emit(
        self, request: int, choice: int, text: bytes, start: int, width: int, stats: SpeculationStats, how: Speculation
    ) -> Iterator[Chunk]:
        tokens = text[start : start + width]
        if not tokens:
            return
        is_rejected = len(tokens) == width and (start // width) % PERIOD == PERIOD - 1
        stats.num_steps += 1
        stats.num_tokens += len(tokens)
        if width > 1:
            stats.record((how.proposers or self.proposers)[0], width - 1, len(tokens) - 1, is_rejected)
        for i, token in enumerate(tokens):
            if self.interrupt_at == start + i:
                type(self).interrupt_at = None
                raise KeyboardInterrupt
            is_last = start + i == len(text) - 1
            origin = "plain" if width == 1 else "accepted" if i < width - 1 else "corrected" if is_rejected else "bonus"
            yield Chunk(
                context_id=request,
                request=request,
                choice=choice,
                token_id=token,
                text=chr(token),
                origin=origin,
                step=self._step,
                logprobs=TokenLogprobs(-0.5, ((token, -0.5), (ord("#"), -1.25))),
                finish_reason="length" if is_last else None,
                stats=stats if is_last else None,
            )
