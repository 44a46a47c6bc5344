"""Which tokens are not ordinary text: token types of a GGUF file, tokens that end a generation, and finding special
tokens in a text. The lists and the matching order are those of llama.cpp (src/llama-vocab.cpp), except that it takes
</s> and other texts for end tokens even where they are ordinary text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import groupby

# Text, or the id of a special token found in it.
Fragment = str | int


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type` of the GGUF format."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Files name only one end token; chat models end a turn with another, which only its text gives away. These texts are
# never anything else, so they count (and become control tokens) even in files that mark them as text.
_ENDS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<end_of_utterance>", "<|tool_response>", "<turn|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|fim_pad|>", "<|fim_repo|>", "<|repo_name|>", "<|file_sep|>",
})  # fmt: skip
# These may be text (</s> closes struck-out text in HTML, and Qwen has it as such): they count as control tokens only.
# The fill-in-the-middle padding and repository separators among them begin another document.
_ENDS_IF_CONTROL = frozenset({
    "</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "[e~[",
    "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<fim-repo>", "<REPO>", "<reponame>",
})  # fmt: skip
# Control tokens in some files, but part of what a model says: its reasoning and its tool calls.
_SPOKEN = frozenset({"<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>"})
_END_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_FILLER = re.compile(r"\[PAD\d+\]")


def mark_ends(tokens: Mapping[str, int], types: list[int]) -> None:
    """Make unmistakable end tokens control tokens in `types` (changed in place), where a file calls them text."""
    for text in _ENDS & tokens.keys():
        types[tokens[text]] = TokenType.CONTROL


def end_of_generation(tokens: Mapping[str, int], types: Sequence[int], named: Mapping[str, int]) -> frozenset[int]:
    """Ids after which a generation is over: known by their text, or `named` by the file ("eos" -> id, ...)."""
    present = _ENDS & tokens.keys()
    present |= {text for text in _ENDS_IF_CONTROL & tokens.keys() if types[tokens[text]] == TokenType.CONTROL}
    # Harmony's and Solar's <|end|> closes a message, not the answer.
    if {"<|return|>", "<|call|>"} <= present or {"<|flush|>", "<|calls|>"} <= present:
        present -= {"<|end|>"}
    return frozenset(tokens[text] for text in present) | {named[key] for key in _END_KEYS if key in named}


def is_spoken(text: str) -> bool:
    """Whether a token's text is shown although the file may call it a control token."""
    return text in _SPOKEN


def is_filler(text: str, kind: int) -> bool:
    """Whether a token only pads the vocabulary: no text ever becomes it and no model should emit it."""
    return (
        kind == TokenType.UNUSED
        or (kind == TokenType.CONTROL and "unused" in text)
        or (_FILLER.fullmatch(text) is not None)
    )


class SpecialTokenFinder:
    """Cuts text at given tokens: the longest token first, each at every place it occurs in what is still text."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self._rank = {
            text: rank for rank, text in enumerate(sorted(tokens, key=lambda text: -len(text.encode()))) if text
        }
        self._ids = dict(tokens)
        # Vocabularies hold thousands of <unused..>: a shared beginning that is absent rules them all out at once.
        by_start = groupby(sorted(self._rank), key=lambda text: text[:4])
        self._by_start: Sequence[tuple[str, list[str]]] = [(start, list(group)) for start, group in by_start]

    def cut(self, text: str) -> list[Fragment]:
        """The non-empty fragments of `text` in order."""
        if not text:
            return []
        groups = (group for start, group in self._by_start if start in text)
        present = sorted((token for group in groups for token in group if token in text), key=self._rank.__getitem__)
        fragments: list[Fragment] = [text]
        for token in present:
            fragments = [piece for fragment in fragments for piece in self._cut_at(token, fragment)]
        return fragments

    def _cut_at(self, token: str, fragment: Fragment) -> Sequence[Fragment]:
        if isinstance(fragment, int) or token not in fragment:
            return (fragment,)
        pieces: list[Fragment] = []
        for index, text in enumerate(fragment.split(token)):
            if index:
                pieces.append(self._ids[token])
            if text:
                pieces.append(text)
        return pieces
