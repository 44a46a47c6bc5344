"""Networks that go on from the target's hidden states, and then from their own: what EAGLE heads and MTP blocks share.

Row i holds token i + 1 and a hidden state of position i, and tells token i + 2. The hidden state is made of the
target's where position i is final, else it is what the network itself made of the row before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from foredraft.core import FloatArray, IntArray
from foredraft.drafters.loading import KVShape
from foredraft.kv.cache import PagedKV
from foredraft.ops.base import Batch


class Recurrent(ABC):
    """A network ready to run for its target. Immutable after loading; keys and values live in a `PagedKV`.

    taps: which of the target's hidden states it reads (see Decoder.forward_tapped). hidden: width of the states it goes
    on from. max_positions: how many rows of a sequence it was trained for. vocab_size: the target's. target_ids: the
    target's token for each of its own, int32 [draft vocabulary], or None where both are the same.
    """

    kind: str
    taps: tuple[int, ...]
    kv_shape: KVShape
    max_positions: int
    hidden: int
    vocab_size: int
    target_ids: IntArray | None = None

    @abstractmethod
    def fuse(self, features: FloatArray) -> FloatArray:
        """The target's hidden states [rows, len(taps) * its hidden size] as `forward` takes them, [rows, hidden]."""

    @abstractmethod
    def forward(self, batch: Batch, hidden: FloatArray, kv: PagedKV) -> tuple[FloatArray, FloatArray]:
        """One pass over the rows of `batch`; writes their keys and values to `kv`.

        hidden: [rows, hidden], of the position before each row's token: fused features, or what a pass returned. Not
        changed.

        Returns the logits [wanted, draft vocabulary] and hidden states [wanted, hidden] of the wanted rows.
        """

    def rehearse(self, batch: Batch, kv: PagedKV) -> object:
        return self.forward(batch, np.zeros((len(batch.tokens), self.hidden), np.float32), kv)
