from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.bench.timing import Timeline, Window, decode_window, percentile, prompt_window, timed


def timeline(start_s, num_prompt_tokens, *emissions):
    line = Timeline(start_s, num_prompt_tokens)
    for step, (time_s, count) in enumerate(emissions):
        for _ in range(count):
            line.record(step, time_s)
    return line


def test_one_sequence():
    line = timeline(1.0, 50, (1.5, 1), (1.6, 2), (1.9, 3))
    assert line.num_tokens == 6
    assert line.ttft_s == 0.5
    # Two tokens in 100 ms are two gaps of 50 ms, three in 300 ms are three of 100 ms.
    assert line.gaps_ms() == pytest.approx([50, 50, 100, 100, 100])
    assert decode_window([line]) == Window(5, pytest.approx(0.4))
    assert decode_window([line]).per_s == pytest.approx(12.5)
    assert prompt_window([line]).per_s == pytest.approx(100)


def test_several_sequences_share_one_window():
    lines = [timeline(0.0, 10, (1.0, 1), (1.2, 3), (2.0, 4)), timeline(0.0, 30, (1.5, 1), (3.0, 1))]
    # Both are being written from 1.5 until 2.0: four tokens of the first.
    assert decode_window(lines) == Window(4, 0.5)
    assert prompt_window(lines) == Window(40, 1.5)


def test_one_that_is_done_before_others_begin_ends_no_window():
    lines = [timeline(0.0, 10, (1.0, 1), (1.2, 3)), timeline(0.0, 30, (1.5, 1), (3.0, 2))]
    assert decode_window(lines) == Window(2, 1.5)


def test_first_tokens_of_the_same_step_are_not_counted():
    lines = [timeline(0.0, 10, (1.0, 1), (2.0, 1)), timeline(0.0, 10, (1.0, 1), (2.0, 1))]
    assert decode_window(lines).per_s == 2.0


def test_nothing_came():
    assert decode_window([Timeline(0.0, 5)]).per_s is None
    assert prompt_window([Timeline(0.0, 5)]).per_s is None
    assert decode_window([timeline(0.0, 5, (1.0, 1))]).per_s is None
    assert timeline(0.0, 5, (1.0, 1)).gaps_ms() == []


def test_windows_add_up():
    assert (Window(3, 1.0) + Window(5, 3.0)).per_s == 2.0


def test_tokens_of_a_step_share_one_time():
    ticks = iter([1.0, 2.0, 9.0])
    chunks = [SimpleNamespace(request=r, step=s) for r, s in [(0, 0), (1, 0), (0, 1), (0, 1), (1, 1)]]
    lines = [Timeline(0.0, 1), Timeline(0.0, 1)]
    assert list(timed(chunks, lines, lambda: next(ticks))) == chunks
    assert (lines[0].times_s, lines[0].counts) == ([1.0, 2.0], [1, 2])
    assert (lines[1].times_s, lines[1].counts) == ([1.0, 2.0], [1, 1])


@given(st.lists(st.tuples(st.floats(0.01, 1), st.integers(1, 9)), min_size=2, max_size=20))
def test_gaps_sum_to_the_time(steps):
    now, emissions = 0.0, []
    for dt, count in steps:
        now += dt
        emissions.append((now, count))
    line = timeline(0.0, 1, *emissions)
    assert len(line.gaps_ms()) == line.num_tokens - emissions[0][1]
    assert sum(line.gaps_ms()) == pytest.approx((now - emissions[0][0]) * 1e3)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 10), (0.95, 19), (1.0, 20), (0.0, 1), (0.01, 1)])
def test_percentile(share, expected):
    assert percentile(list(range(20, 0, -1)), share) == expected


def test_percentile_of_nothing():
    assert percentile([], 0.5) is None
