"""The target's hidden states of a sequence, kept from the pass that brought them until a drafter reads them."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from foredraft.core import FloatArray

MOST = 2048  # positions kept of a sequence: whoever reads so seldom begins anew behind those that were dropped
_LARGEST = float(np.finfo(np.float16).max)  # some models have a few numbers beyond it


class Features:
    """Of the positions `start` to before `end`, the newest that came without a gap; float16, at most `MOST`."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self._parts: deque[NDArray[np.float16]] = deque()

    def add(self, start: int, features: FloatArray) -> None:
        """Those of the positions from `start` on, [positions, width]. Where some before are missing, what was kept is
        dropped."""
        if start != self.end:
            self._parts.clear()
            self.start = start
        self._parts.append(np.clip(features, -_LARGEST, _LARGEST).astype(np.float16))
        self.end = start + len(features)
        self.drop(self.end - MOST)

    def get(self, start: int, count: int) -> FloatArray:
        """Those of `count` positions from `start` on, which have to be there: float32 [count, width]."""
        assert self.start <= start
        assert start + count <= self.end
        parts, position = [], self.start
        for part in self._parts:
            if position < start + count and start < position + len(part):
                parts.append(part[max(start - position, 0) : start + count - position])
            position += len(part)
        return np.concatenate(parts).astype(np.float32)

    def drop(self, before: int) -> None:
        """Forget those of positions before `before`."""
        while self._parts and self.start < before:
            part = self._parts.popleft()
            rest = part[before - self.start :]
            if len(rest):
                self._parts.appendleft(rest)
            self.start += len(part) - len(rest)
