"""A tokenizer built from nothing but a GGUF file's own metadata.

Two kinds are supported: "gpt2", byte-level BPE by merge ranks (run by the `tokenizers` library), and "llama",
SentencePiece-style BPE by scores (spm.py). Token ids are those of llama.cpp for the same file and text, with two
exceptions: text never becomes a control token unless `parse_special` asks for it, and a token that a file calls text,
such as </s> in Qwen and Gemma, stays text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from tokenizers import Tokenizer as ByteLevelBpe
from tokenizers import models as bpe_models

from foredraft.errors import TokenizerError
from foredraft.models.pretokenizers import pretokenization
from foredraft.models.special_tokens import (
    Fragment,
    SpecialTokenFinder,
    TokenType,
    end_of_generation,
    is_filler,
    is_spoken,
    mark_ends,
)
from foredraft.models.spm import SPACE, SpmEncoder

T = TypeVar("T")

KINDS = ("gpt2", "llama")

_BYTE_TOKEN = re.compile("<0x[0-9A-Fa-f]{2}>")
# Plain integers: a vocabulary is filtered by these, and the hash of an enumeration's member is slow.
_NEVER_TEXT = frozenset(map(int, (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.UNUSED)))
_TEXT = frozenset(map(int, (TokenType.NORMAL, TokenType.USER_DEFINED)))


@dataclass(frozen=True)
class _Encoding:
    """One kind's way from plain text to ids, and what it implies for the text around."""

    encode: Callable[[str], list[int]]
    add_bos: bool
    space_after_special: bool


class Tokenizer:
    """Text to token ids and back. Immutable; safe to share between threads.

    kind: one of `KINDS`. tokens: each id's string as the file writes it. eos_ids: ids after which a generation is over.
    bos_id: None if the file has none; add_bos: whether the model wants it before every prompt. special: string -> id of
    the control tokens, which text becomes only on request. named_ids: role in the file ("bos", "eos", "unknown",
    "padding", ...) -> id.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.kind: str = str(metadata.get("tokenizer.ggml.model"))
        if self.kind not in KINDS:
            raise TokenizerError(f"the file's tokenizer is {self.kind!r}; supported are {', '.join(KINDS)}")
        self.tokens = [text or f"[EMPTY_{id}]" for id, text in enumerate(_array(metadata, "tokens", str))]
        ids = {text: id for id, text in enumerate(self.tokens)}
        if len(ids) != len(self.tokens):
            twice = next(text for id, text in enumerate(self.tokens) if ids[text] != id)
            raise TokenizerError(f"the file's vocabulary holds {twice!r} twice; the file is broken")
        self._types = _array(metadata, "token_type", int, [int(TokenType.NORMAL)] * len(ids))
        if len(self._types) < len(ids):
            raise TokenizerError(f"the file has {len(ids)} tokens but {len(self._types)} token types; it is broken")
        mark_ends(ids, self._types)
        self.named_ids = _named_ids(metadata, len(ids))
        self.eos_ids = end_of_generation(ids, self._types, self.named_ids)
        self.bos_id = self.named_ids.get("bos")
        self.special = self._of_type(TokenType.CONTROL, TokenType.UNKNOWN)
        always = self._of_type(TokenType.USER_DEFINED)
        self._always_special = SpecialTokenFinder(always)
        self._all_special = SpecialTokenFinder(always | self.special)
        encoding = (_byte_level if self.kind == "gpt2" else _sentencepiece)(metadata, ids, self._types)
        self._encode_text = encoding.encode
        self._space_after_special = encoding.space_after_special
        self.add_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", encoding.add_bos)) and self.bos_id is not None
        self._bytes: list[bytes | None] = [None] * len(self.tokens)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """The tokenizer that a GGUF file's metadata describes.

        Raises:
            TokenizerError: kind or pre-tokenizer is unknown, or the vocabulary is missing or inconsistent.
        """
        return cls(metadata)

    @property
    def vocab_size(self) -> int:
        """Number of ids, padding included."""
        return len(self.tokens)

    def encode(self, text: str, add_bos: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of `text`, led by the BOS token if the model wants one and `add_bos` allows it.

        With `parse_special`, the strings of control tokens become these tokens; without, they are ordinary text.
        User-defined tokens are matched either way: they are part of the text. A byte that has no token (SmolLM2 lacks
        a few control characters) is dropped.

        Raises:
            TokenizerError: the text holds a lone surrogate, so it is not Unicode text.
        """
        ids = self.encode_fragments(self.cut(text, parse_special))
        return [self.bos_id, *ids] if add_bos and self.add_bos and self.bos_id is not None else ids

    def cut(self, text: str, parse_special: bool) -> list[Fragment]:
        """`text` as fragments: ids of the special tokens found in it (as in `encode`) and the text between them.

        Raises:
            TokenizerError: the text holds a lone surrogate.
        """
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise TokenizerError(f"the text holds a lone surrogate at character {exc.start}; give valid text") from exc
        return (self._all_special if parse_special else self._always_special).cut(text)

    def encode_continuation(self, text: str) -> list[int]:
        """Token ids of `text` as it goes on after other text: without a BOS token and without a space before it."""
        return self.encode_fragments(self.cut(text, parse_special=False), after_special=False)

    def encode_fragments(self, fragments: Iterable[Fragment], after_special: bool = True) -> list[int]:
        """Token ids of fragments whose strings hold no special tokens (see `cut`); never adds a BOS token.

        after_special: whether the first one begins a text or follows a special token.
        """
        ids: list[int] = []
        for fragment in fragments:
            if isinstance(fragment, int):
                ids.append(fragment)
                after_special = True
            else:
                prefix = " " if after_special and self._space_after_special else ""
                ids += self._encode_text(prefix + fragment)
                after_special = False
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD. Control tokens are left out, except for those that
        mark reasoning and tool calls."""
        return b"".join(map(self.token_bytes, ids)).decode(errors="replace")

    def token_bytes(self, token: int, show_special: bool = False) -> bytes:
        """The bytes that a token adds to the text; none for control and unused tokens unless `show_special`.

        Raises:
            TokenizerError: there is no such token.
        """
        if not 0 <= token < len(self.tokens):
            raise TokenizerError(f"token {token} does not exist; ids are 0 to {len(self.tokens) - 1}")
        if self._types[token] in _NEVER_TEXT:
            return self.tokens[token].encode() if show_special or is_spoken(self.tokens[token]) else b""
        known = self._bytes[token]
        if known is None:
            known = self._bytes[token] = self._text_bytes(token)
        return known

    def is_padding(self, token: int) -> bool:
        """Whether a token only fills up the vocabulary; no text becomes it and it must never be emitted."""
        return is_filler(self.tokens[token], self._types[token])

    def _text_bytes(self, token: int) -> bytes:
        text, kind = self.tokens[token], self._types[token]
        if kind == TokenType.BYTE and _BYTE_TOKEN.fullmatch(text):
            return bytes.fromhex(text[3:5])
        if kind == TokenType.USER_DEFINED:
            return text.encode()
        if self.kind == "llama":
            return text.replace(SPACE, " ").encode()
        # A character outside the byte alphabet can only stand for itself.
        return b"".join(bytes((_BYTE_OF[c],)) if c in _BYTE_OF else c.encode() for c in text)

    def _of_type(self, *kinds: TokenType) -> dict[str, int]:
        wanted = frozenset(map(int, kinds))
        return {self.tokens[id]: id for id, kind in enumerate(self._types) if kind in wanted}


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character for each byte: itself if printable Latin-1, else the next one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(rest)}


_BYTE_OF = _byte_alphabet()


def _byte_level(metadata: Mapping[str, Any], ids: Mapping[str, int], types: Sequence[int]) -> _Encoding:
    pre = pretokenization(str(metadata.get("tokenizer.ggml.pre", "default")))
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in _array(metadata, "merges", str))]
    vocabulary = {text: id for text, id in ids.items() if types[id] not in _NEVER_TEXT}
    try:
        bpe = ByteLevelBpe(bpe_models.BPE(vocabulary, merges, ignore_merges=pre.whole_words))
    except Exception as exc:  # the library raises bare Exception for a merge that is malformed or makes no token
        raise TokenizerError(f"the file's merges do not fit its vocabulary ({exc}); the file is broken") from exc
    bpe.pre_tokenizer = pre.split

    def encode(text: str) -> list[int]:
        return bpe.encode(text, add_special_tokens=False).ids

    return _Encoding(encode, add_bos=pre.add_bos, space_after_special=False)


def _sentencepiece(metadata: Mapping[str, Any], ids: Mapping[str, int], types: Sequence[int]) -> _Encoding:
    scores = _array(metadata, "scores", float)
    if len(scores) < len(ids):
        raise TokenizerError(f"the file has {len(ids)} tokens but {len(scores)} scores; it is broken")
    pieces = {text: (-scores[id], id) for text, id in ids.items() if types[id] in _TEXT}
    unknown = _named_ids(metadata, len(ids)).get("unknown")
    byte_ids = [ids.get(f"<0x{byte:02X}>", unknown) for byte in range(256)]
    known = [id for id in byte_ids if id is not None]
    if len(known) < len(byte_ids):
        raise TokenizerError(
            "the file has neither all byte tokens (<0x00> to <0xFF>) nor an unknown token; it is broken"
        )
    encoder = SpmEncoder(pieces, known)

    def encode(text: str) -> list[int]:
        return encoder.encode(text.replace(" ", SPACE))

    return _Encoding(encode, True, bool(metadata.get("tokenizer.ggml.add_space_prefix", True)))


def _array(metadata: Mapping[str, Any], name: str, kind: type[T], default: list[T] | None = None) -> list[T]:
    """An array of the file as a new list of `kind`; `default` None where the tokenizer cannot be without it."""
    array = metadata.get(f"tokenizer.ggml.{name}", default)
    values = array.tolist() if isinstance(array, np.ndarray) else array
    if not isinstance(values, list) or not values or not isinstance(values[0], kind):
        raise TokenizerError(f"the file's tokenizer lacks {name} (an array tokenizer.ggml.{name}); use a complete file")
    return list(values)


def _named_ids(metadata: Mapping[str, Any], num_tokens: int) -> dict[str, int]:
    """Ids of the tokens the file names by role ("eos" -> id); like llama.cpp, ids that do not exist are ignored."""
    keys = {
        key: value for key, value in metadata.items() if key.startswith("tokenizer.ggml.") and key.endswith("_token_id")
    }
    return {
        key.removeprefix("tokenizer.ggml.").removesuffix("_token_id"): value
        for key, value in keys.items()
        if isinstance(value, int) and 0 <= value < num_tokens
    }
