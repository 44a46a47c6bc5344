"""Which tokens may come next under a grammar: llguidance's Earley parser over the target's own vocabulary.

A parser that reaches one of its limits, or a place where no token of the model fits, is in an error state that it
never leaves; it then allows the tokens that end a text only, and the sequence ends with finish_reason "error".
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foredraft.constraints.formats import ResponseFormat, field_name, to_grammar
from foredraft.core import BoolArray
from foredraft.errors import RequestError, UnavailableError
from foredraft.models.tokenizer import Tokenizer
from foredraft.worker import NoWorkerError, Worker, WorkerError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

log = logging.getLogger("foredraft")

# Tighter than llguidance's own where memory is at stake: a state of the lexer takes up to 2 kB.
_LIMITS: dict[str, Any] = {"max_lexer_states": 50_000, "max_grammar_size": 100_000, "verbose_errors": False}
_SCRIPT = Path(__file__).with_name("trial_worker.py")


class Matcher:
    """What one sequence may still say: a `core.Constraint`. Made by `Compiler.compile` and `copy`."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher, self._vocab_size = matcher, vocab_size
        self._masks: dict[tuple[int, ...], BoolArray] = {}  # drafting and verification ask for the same paths
        self._is_reported = False

    def copy(self) -> Matcher:
        """A matcher in the same state that shares nothing with this one."""
        return Matcher(self._matcher.deep_copy(), self._vocab_size)

    @property
    def finish_reason(self) -> str | None:
        if self._matcher.is_error():
            return "error"
        return "stop" if self._matcher.is_stopped() else None

    def mask(self, path: Sequence[int]) -> BoolArray:
        key = tuple(path)
        if key not in self._masks:
            num_consumed = self._matcher.try_consume_tokens(list(path))
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            self._warn_if_lost()
            self._matcher.rollback(num_consumed)
            self._masks[key] = np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(np.bool_)
        return self._masks[key]

    def num_allowed(self, tokens: Sequence[int]) -> int:
        return self._matcher.validate_tokens(list(tokens))

    def forced(self) -> list[int]:
        return self._matcher.compute_ff_tokens()

    def advance(self, token: int) -> None:
        self._masks.clear()
        self._matcher.consume_token(token)
        self._warn_if_lost()

    def _warn_if_lost(self) -> None:
        if self._matcher.is_error() and not self._is_reported:
            self._is_reported = True
            log.warning("a response format could not be kept to: %s", _reason(self._matcher.get_error()))


class Compiler:
    """Makes matchers for one tokenizer, whose vocabulary is taken in with the first format. Safe to share."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._worker = Worker(_SCRIPT, lambda: self._vocabulary.as_line())

    def compile(self, response_format: ResponseFormat) -> Matcher | None:
        """A matcher at the beginning of the text; None for a format that allows any text.

        Its time and memory are bounded: by a trial in a process of its own (trial_worker.py), by the length of what is
        compiled and by llguidance's own limits. Nothing that a schema refers to is ever fetched.

        Raises:
            RequestError: the format is not valid, not supported, too large, or nothing can match it; the message names
                the field.
            UnavailableError: llguidance is not installed, or no process can be started.
        """
        try:
            import llguidance
        except ImportError as exc:
            raise UnavailableError("response_format needs llguidance; pip install 'foredraft[grammar]'") from exc
        grammar = to_grammar(response_format)
        if grammar is None:
            return None
        if error := self._trial(grammar):
            where = field_name(response_format)
            raise RequestError(f"{where} cannot be used: {error}", where)
        limits = llguidance.LLParserLimits(**_LIMITS)
        parser = llguidance.LLMatcher(self._parser_tokenizer, grammar, log_level=0, limits=limits)
        return Matcher(parser, self._tokenizer.vocab_size)

    def _trial(self, grammar: str) -> str:
        """What is wrong with a grammar; empty if it can be compiled here."""
        request = json.dumps({"grammar": grammar, "limits": _LIMITS}).encode() + b"\n"
        try:
            return _reason(json.loads(self._worker.ask(request))["error"])
        except NoWorkerError as exc:
            raise UnavailableError(f"response_format cannot be compiled now: {exc}; try again later") from exc
        except WorkerError as exc:
            return "it takes too long to compile" if exc.is_too_long else f"it cannot be compiled in bounds ({exc})"

    @cached_property
    def _vocabulary(self) -> _Vocabulary:
        return _Vocabulary(self._tokenizer)

    @cached_property
    def _parser_tokenizer(self) -> LLTokenizer:
        from llguidance import LLTokenizer

        vocabulary: Any = self._vocabulary  # has what is read of a TokenizerWrapper
        return LLTokenizer(vocabulary, eos_token=sorted(self._tokenizer.eos_ids))


class _Vocabulary:
    """A tokenizer as llguidance wants to see it. Tokens that are never text are marked as special."""

    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = range(tokenizer.vocab_size)
        self._tokenizer = tokenizer
        self.eos_token_id = min(tokenizer.eos_ids)
        self.bos_token_id = tokenizer.bos_id
        self.tokens = [tokenizer.token_bytes(id, show_special=True) for id in ids]
        self.special_token_ids = [id for id in ids if tokenizer.is_padding(id) or not tokenizer.token_bytes(id)]

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode_continuation(text)

    def as_line(self) -> bytes:
        """All of it but the encoding of text, for the trial's process."""
        tokens = [base64.b64encode(token).decode() for token in self.tokens]
        eos_ids = sorted(self._tokenizer.eos_ids)
        return (
            json.dumps({"tokens": tokens, "special_ids": self.special_token_ids, "eos_ids": eos_ids}).encode() + b"\n"
        )


def _reason(error: str) -> str:
    """An error as one line, without the dump of the parser that follows it, and the middle of what it quotes."""
    line = " ".join(error.partition("\n<")[0].split())
    if line == "NoExtensionBias":
        return "no text of this model matches it"
    return line if len(line) <= 300 else f"{line[:200]} ... {line[-100:]}"
