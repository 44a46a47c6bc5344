"""Runs a decoder over a prompt, and measures how far apart two sets of logits are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foredraft.core import FloatArray
from foredraft.kv.batch import BatchBuilder
from foredraft.kv.cache import PagedKV
from foredraft.models.decoder import Decoder


def logits(decoder: Decoder, tokens: Sequence[int], wanted: Sequence[int], page_size: int = 32) -> FloatArray:
    """Logits of the `wanted` rows of a fresh sequence, one pass: [wanted, vocabulary]."""
    arch = decoder.arch
    num_pages = -(-len(tokens) // page_size)
    kv = PagedKV(arch.num_layers, arch.num_kv_heads, arch.head_dim, num_pages, page_size)
    sequence = kv.open(tokens)
    assert kv.reserve(sequence, len(tokens))
    builder = BatchBuilder()
    builder.add(sequence, tokens, wanted=wanted)
    return decoder.forward(builder.build(), kv)


def log_softmax(scores: FloatArray) -> FloatArray:
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), np.float32)


@dataclass(frozen=True)
class Distance:
    """How far logits are from those wanted, means over rows.

    error: root mean square of the difference, in units of the wanted logits' standard deviation. divergence:
    Kullback-Leibler, in nats. same_top: the part of rows that keep their most likely token.
    """

    error: float
    divergence: float
    same_top: float


def distance(got: FloatArray, want: FloatArray) -> Distance:
    errors = np.sqrt(np.mean((got - want) ** 2, axis=1)) / want.std(axis=1)
    chances = log_softmax(want)
    divergences = (np.exp(chances) * (chances - log_softmax(got))).sum(axis=1)
    same_top = np.mean(got.argmax(axis=1) == want.argmax(axis=1))
    return Distance(float(errors.mean()), float(divergences.mean()), float(same_top))


def chunks(tokens: Sequence[int], bos_id: int | None, chunk_len: int) -> list[list[int]]:
    """The whole chunks that llama.cpp's `llama-perplexity` cuts a text into: each is a sequence of its own, and starts
    with `bos_id`, in place of its first token, where the model wants one."""
    parts = [list(tokens[start : start + chunk_len]) for start in range(0, len(tokens) - chunk_len + 1, chunk_len)]
    return parts if bos_id is None else [[bos_id, *part[1:]] for part in parts]


def scored_logits(decoder: Decoder, chunk: Sequence[int]) -> FloatArray:
    """Logits of the rows that `llama-perplexity` scores: a chunk's second half, without the last."""
    return logits(decoder, chunk, range(len(chunk) // 2, len(chunk) - 1))


def surprise(scored: FloatArray, chunk: Sequence[int]) -> FloatArray:
    """Minus the log chance of each scored token, given `scored_logits` of its chunk."""
    return -log_softmax(scored)[np.arange(len(scored)), chunk[len(chunk) // 2 + 1 :]]


def perplexity(decoder: Decoder, chunks: Sequence[Sequence[int]]) -> float:
    surprises = [surprise(scored_logits(decoder, chunk), chunk) for chunk in chunks]
    return float(np.exp(np.concatenate(surprises).mean(dtype=np.float64)))
