"""Whether one model's tokens mean the same to another, so that it can draft for it."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import TokenizerError
from foredraft.models.tokenizer import Tokenizer

_NAMED_DIFFERENCES = 5


def draftable_tokens(target: Tokenizer, draft: Tokenizer) -> NDArray[np.bool_]:
    """Which of the target's ids a draft model may propose, [target vocabulary].

    Token strings are compared, not vocabulary sizes, which are padded differently within one model family: an id is
    draftable if both have the same string for it and neither only pads there. Merges and scores are not compared: a
    draft model is fed the target's token ids, never text.

    Raises:
        TokenizerError: the tokenizers are of different kinds, or an id that pads neither vocabulary has two strings;
            the message names the first such ids.
    """
    if target.kind != draft.kind:
        raise TokenizerError(
            f"the target's tokenizer is of kind {target.kind!r}, the draft's of kind {draft.kind!r}; "
            "choose a draft model of the target's family"
        )
    draftable = np.zeros(target.vocab_size, dtype=np.bool_)
    different: list[int] = []
    for token, (ours, theirs) in enumerate(zip(target.tokens, draft.tokens, strict=False)):
        if ours == theirs:
            draftable[token] = not target.is_padding(token)
        elif not (target.is_padding(token) or draft.is_padding(token)):
            different.append(token)
    if different:
        named = "; ".join(
            f"{token} is {target.tokens[token]!r} in the target, {draft.tokens[token]!r} in the draft"
            for token in different[:_NAMED_DIFFERENCES]
        )
        raise TokenizerError(
            f"target and draft differ in {len(different)} tokens ({named}); choose a draft model of the target's family"
        )
    return draftable


def tokens_sha256(tokenizer: Tokenizer) -> str:
    """By which a drafter's file names the tokenizer it was trained for: the SHA-256, in hex, of all token strings, each
    followed by a zero byte."""
    return hashlib.sha256("".join(f"{token}\0" for token in tokenizer.tokens).encode()).hexdigest()
