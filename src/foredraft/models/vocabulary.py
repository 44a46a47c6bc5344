"""Which tokens a draft model computes logits for: a trimmed vocabulary (FR-Spec, Zhao et al. 2502.14856).

The output matrix is a large part of a small model, and most of its rows are for tokens that hardly ever come. What is
left out costs a refused draft at times, never a different text. Tokenizers made by merging number their tokens as they
were merged, so the lowest ids are the most frequent tokens of the text that the tokenizer was made from: a number of
tokens needs no data. A file ranks them by text of one's own.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from foredraft.core import IntArray
from foredraft.errors import ConfigError
from foredraft.models.tokenizer import Tokenizer

Vocabulary = int | str | Path  # a number of tokens (as text too), or a file


def kept_tokens(vocabulary: Vocabulary, target: Tokenizer, draftable: NDArray[np.bool_]) -> IntArray:
    """The ids that a draft model drafts from, rising, int32; tokens that end a generation are always among them.

    vocabulary: how many of the lowest ids, as a number or its digits, or a file that `ranking` was saved to, of which
    all count. draftable: bool [target vocabulary], what the draft model knows at all.

    Raises:
        ConfigError: the number is out of range, or the file cannot be read, is something else, is damaged, or was made
            for another tokenizer.
    """
    is_kept = np.zeros_like(draftable)
    if isinstance(vocabulary, int) or (isinstance(vocabulary, str) and vocabulary.isdecimal()):
        is_kept[_lowest(int(vocabulary), draftable)] = True
    else:
        is_kept[_read(Path(vocabulary), target)] = True
    is_kept[list(target.eos_ids)] = True
    return np.flatnonzero(is_kept & draftable).astype(np.int32)


def ranking(tokenizer: Tokenizer, texts: Iterable[Iterable[int]], size: int) -> dict[str, Any]:
    """What to save as a file: the `size` most frequent tokens of `texts` (token ids), the most frequent first.

    Tokens that come equally often are ranked by id, and so are those that never come.

    Raises:
        ConfigError: size is out of range.
    """
    fillers = [token for token in range(tokenizer.vocab_size) if not tokenizer.is_padding(token)]
    if not 1 <= size <= len(fillers):
        raise ConfigError(f"size is {size}; allowed is 1 to {len(fillers)}, the tokens of this model")
    counts = Counter(token for text in texts for token in text)
    ranked = sorted(fillers, key=lambda token: (-counts[token], token))[:size]
    total = counts.total()
    return {
        "tokenizer": fingerprint(tokenizer),
        "num_counted": total,
        "coverage": sum(counts[token] for token in ranked) / total if total else 0.0,
        "tokens": ranked,
    }


def fingerprint(tokenizer: Tokenizer) -> str:
    """Tells tokenizers apart by their tokens; how far a vocabulary is padded does not count."""
    used = (text for token, text in enumerate(tokenizer.tokens) if not tokenizer.is_padding(token))
    return hashlib.sha256("\0".join(used).encode(errors="surrogateescape")).hexdigest()[:32]


def _lowest(count: int, draftable: NDArray[np.bool_]) -> NDArray[np.intp]:
    known = np.flatnonzero(draftable)
    if not 1 <= count <= len(known):
        raise ConfigError(
            f"draft_vocabulary is {count}; allowed is 1 to {len(known)}, the number of tokens that target and draft "
            "share, or a file"
        )
    return known[:count]


def _read(path: Path, target: Tokenizer) -> list[int]:
    """The tokens in a file that holds what `ranking` made."""
    try:
        saved = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"draft_vocabulary {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        saved = None
    tokens = saved.get("tokens") if isinstance(saved, Mapping) else None
    if not isinstance(saved, Mapping) or not _are_tokens(tokens, target.vocab_size):
        raise ConfigError(
            f"draft_vocabulary {path} is no list of tokens from 0 to {target.vocab_size - 1}; make one with "
            "`foredraft train vocabulary`"
        )
    if saved.get("tokenizer") != fingerprint(target):
        raise ConfigError(f"draft_vocabulary {path} was made for another tokenizer; make one for this model")
    return tokens


def _are_tokens(values: Any, vocab_size: int) -> TypeGuard[list[int]]:
    return (
        isinstance(values, list)
        and len(values) > 0
        and all(type(value) is int and 0 <= value < vocab_size for value in values)
        and len(set(values)) == len(values)
    )
