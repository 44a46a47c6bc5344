"""Metadata of small tokenizers of both kinds, complete enough for any text."""

from __future__ import annotations

from typing import Any

from foredraft.models.special_tokens import TokenType

ALPHABET = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100), *range(0x100, 0x144)]


def byte_level(merges: tuple[str, ...] = (), **special: int) -> dict[str, Any]:
    """Metadata of a byte-level tokenizer: the 256 bytes, the merges' results, then `special` tokens of given types."""
    merges = merges or ("a b",)
    tokens = [chr(code) for code in ALPHABET] + [merge.replace(" ", "") for merge in merges] + list(special)
    types = [int(TokenType.NORMAL)] * (len(tokens) - len(special)) + list(special.values())
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": list(merges),
    }


def sentencepiece(pieces: dict[str, float], add_space_prefix: bool = False, **special: int) -> dict[str, Any]:
    """Metadata of a scored tokenizer: <unk>, the 256 byte tokens, `pieces` with their scores, then `special`."""
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *special]
    types = [TokenType.UNKNOWN, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * len(pieces), *special.values()]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [int(kind) for kind in types],
        "tokenizer.ggml.scores": [0.0] * 257 + list(pieces.values()) + [0.0] * len(special),
        "tokenizer.ggml.add_space_prefix": add_space_prefix,
        "tokenizer.ggml.unknown_token_id": 0,
    }
