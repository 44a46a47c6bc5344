"""Features are kept from where they last came without a gap, the newest of them, and read back as they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.proposers import features as module
from foredraft.proposers.features import Features


def rows(start: int, count: int) -> np.ndarray:
    """Each holds its position, which float16 has exactly."""
    return np.repeat(np.arange(start, start + count, dtype=np.float32)[:, None], 3, 1)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "skip", "drop", "get"]), st.integers(1, 30), st.integers(0, 40)), max_size=40
    )
)
def test_what_is_kept(steps):
    most, module.MOST = module.MOST, 50
    try:
        kept, start, end = Features(), 0, 0
        for step, count, other in steps:
            if step == "skip":
                end, start = end + other, (start if other == 0 else end + other)
            if step in ("add", "skip"):
                kept.add(end, rows(end, count))
                end += count
                start = max(start, end - 50)
            if step == "drop":
                kept.drop(start + other)
                start = max(start, min(start + other, end))
            assert (kept.start, kept.end) == (start, end)
            if step == "get" and start < end:
                first = start + other % (end - start)
                own = min(count, end - first)
                np.testing.assert_array_equal(kept.get(first, own), rows(first, own))
    finally:
        module.MOST = most


def test_numbers_beyond_float16_stay_finite():
    kept = Features()
    kept.add(0, np.array([[1e6, -1e6, 0.1]], np.float32))
    np.testing.assert_allclose(kept.get(0, 1), [[65504, -65504, 0.1]], rtol=1e-3)


def test_what_is_not_there_cannot_be_read():
    kept = Features()
    kept.add(5, rows(5, 3))
    for start, count in ((4, 2), (7, 2)):
        with pytest.raises(AssertionError):
            kept.get(start, count)
