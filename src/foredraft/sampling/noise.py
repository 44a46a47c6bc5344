"""Position-keyed noise: every random number is a pure function of (request key, purpose, position, token).

There is no generator whose state would have to be advanced or rolled back: a position that is decided again after a
rejected draft, a preemption or a prefix-cache hit sees the same noise. The generator is SplitMix64 (Steele, Lea and
Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) used with random access: a stream's state is a
hash of its key, and token t gets output number t + 1.

What draws tokens is csrc/sample.hpp, whose logarithm is its own: its bytes depend on no library and no instruction set.
The arrays of noise here are the definition, equal to it but for the last bits of numpy's log.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, SplitMix64's increment
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)

_GAMMA_64, _TOP_HALF = np.uint64(_GAMMA), np.uint64(32)
_MULTIPLIERS_64 = tuple(np.uint64(m) for m in _MULTIPLIERS)
_SHIFTS_64 = tuple(np.uint64(shift) for shift in _SHIFTS)


class Purpose(IntEnum):
    """What a random number decides. Numbers of different purposes are independent."""

    DRAFT = 1
    ACCEPT = 2
    FINAL = 3


class Stream(NamedTuple):
    """One source of numbers within a request: one number for each token (or sibling).

    `position` is the number of tokens before the one decided, prompt included. `block_start` is the position of the
    first token of the draft, or None where the number must not depend on how the text was cut into drafts.
    """

    purpose: Purpose
    position: int
    block_start: int | None = None


def _mix(z: int) -> int:
    """SplitMix64's finalizer, a bijection of 64-bit integers."""
    z = ((z ^ (z >> _SHIFTS[0])) * _MULTIPLIERS[0]) & _MASK
    z = ((z ^ (z >> _SHIFTS[1])) * _MULTIPLIERS[1]) & _MASK
    return z ^ (z >> _SHIFTS[2])


def _chain(state: int, *words: int) -> int:
    """Descend a tree of streams: output number `word + 1` of each is the state of the next."""
    for word in words:
        state = _mix((state + (word + 1) * _GAMMA) & _MASK)
    return state


def noise_key(seed: int, choice: int) -> int:
    """The 64-bit key of choice number `choice` of a request: a hash, so that neighboring seeds share nothing."""
    return _chain(0, seed, choice)


def stream_state(key: int, stream: Stream) -> int:
    """The state of SplitMix64 whose output number t + 1 decides for token t."""
    block = 0 if stream.block_start is None else stream.block_start + 1
    return _chain(key, int(stream.purpose), stream.position, block)


def random_bits(key: int, stream: Stream, tokens: NDArray[np.integer]) -> NDArray[np.uint64]:
    """32 random bits for each token, uint64 [len(tokens)]."""
    z = tokens.astype(np.uint64)
    z *= _GAMMA_64
    z += np.uint64((stream_state(key, stream) + _GAMMA) & _MASK)
    z ^= z >> _SHIFTS_64[0]
    z *= _MULTIPLIERS_64[0]
    z ^= z >> _SHIFTS_64[1]
    z *= _MULTIPLIERS_64[1]
    z ^= z >> _SHIFTS_64[2]
    z >>= _TOP_HALF
    return z


def uniform(key: int, stream: Stream, index: int = 0) -> float:
    """A number in (0, 1) on a grid of 2**32 points, never an end of it."""
    bits = _mix((stream_state(key, stream) + (index + 1) * _GAMMA) & _MASK) >> 32
    return (bits + 0.5) * 2.0**-32


def gumbel_from_bits(bits: NDArray[np.uint64]) -> Float64Array:
    """Standard Gumbel noise from 32 random bits each.

    The large values, which decide, come from small v, where a float64 has all the resolution one can want: 24-bit
    uniforms would make 0.5 to 0.9% of flat choices among 152k tokens tie.
    """
    v = (bits.astype(np.float64) + 0.5) * 2.0**-32
    return np.asarray(-np.log(-np.log1p(-v)))


def gumbel(key: int, stream: Stream, tokens: NDArray[np.integer]) -> Float64Array:
    """Standard Gumbel noise for each token, float64 [len(tokens)]."""
    return gumbel_from_bits(random_bits(key, stream, tokens))
