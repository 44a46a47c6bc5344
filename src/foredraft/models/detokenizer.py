"""Tokens to text, one at a time, without ever showing half a character."""

from __future__ import annotations

import codecs

from foredraft.models.tokenizer import Tokenizer


class Detokenizer:
    """Turns a stream of tokens into a stream of text. One per sequence.

    The pieces returned by `add` and `flush` joined together are `Tokenizer.decode` of all tokens, however they arrive.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token: int) -> str:
        """Text that is certain now: complete characters, and U+FFFD for bytes that can no longer become one."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """At the end of a sequence: U+FFFD if it broke off inside a character, else nothing."""
        return self._decoder.decode(b"", final=True)
