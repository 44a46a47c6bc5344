"""Compiles grammars in a process of its own, to see whether that ends in time: one JSON line in, one out.

llguidance bounds the size and the effort of a grammar, but not everywhere: a schema of a hundred characters (six
divisors at once) keeps it busy for ever, and one of some thousand asks for gigabytes, which ends the process. Run as a
script with nothing of foredraft imported; the other end is matcher.py.
"""

from __future__ import annotations

import base64
import json
import resource
import signal
import sys
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

# Large schemas of real services take a tenth of a second.
MAX_CPU_SECONDS = 2.0
MAX_MEMORY_BYTES = 1 << 30


class _Vocabulary:
    """A vocabulary from its JSON. How text is cut into tokens matters little here: the longest token first will do."""

    is_tokenizer_wrapper = True

    def __init__(self, given: dict[str, Any]) -> None:
        self.eos_token_id, self.bos_token_id = given["eos_ids"][0], None
        self.tokens = [base64.b64decode(token) for token in given["tokens"]]
        self.special_token_ids = given["special_ids"]
        vocabulary: Any = self
        self.tokenizer = LLTokenizer(vocabulary, eos_token=given["eos_ids"])

    def __call__(self, text: str) -> list[int]:
        return self.tokenizer.greedy_tokenize(text)


def trial(tokenizer: LLTokenizer, grammar: str, limits: dict[str, Any]) -> str:
    """What is wrong with a grammar; empty if it compiles and text can begin."""
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LLParserLimits(**limits))
    if not matcher.is_error():
        # Some limits are met here first, or that nothing can match.
        matcher.try_consume_tokens(matcher.compute_ff_tokens())
        matcher.compute_bitmask()
    return matcher.get_error()


def main() -> None:
    """Serve requests from standard input: first the vocabulary, then grammars."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; this process ends with its input
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lines = iter(sys.stdin.buffer)
    tokenizer = _Vocabulary(json.loads(next(lines))).tokenizer
    for line in lines:
        request = json.loads(line)
        # SIGPROF ends the process when the time is up, also inside a call that never returns to the interpreter.
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_SECONDS)
        error = trial(tokenizer, **request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps({"error": error}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
