import pytest

from foredraft.governor import bandwidth


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_read_bandwidth(monkeypatch, threads):
    monkeypatch.setattr(bandwidth, "WORKING_SET", 1 << 22)
    assert bandwidth.read_bandwidth(threads, repeats=1) > 0


def test_threads_add_up(monkeypatch):
    """Every part takes a second here, so two threads read two halves of a part in it."""
    monkeypatch.setattr(bandwidth, "WORKING_SET", 1 << 22)
    monkeypatch.setattr(bandwidth, "seconds", lambda call: call() and 1.0)
    assert bandwidth.read_bandwidth(2, repeats=1) == (1 << 22) / bandwidth.PARTS
