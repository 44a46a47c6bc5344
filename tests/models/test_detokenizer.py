"""Streaming text equals decoding everything at once, and never shows half a character."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from foredraft.models.detokenizer import Detokenizer
from foredraft.models.tokenizer import Tokenizer


class Bytes(Tokenizer):
    """A tokenizer whose tokens are given byte strings."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def token_bytes(self, token: int, show_special: bool = False) -> bytes:
        return self._pieces[token]


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


_bytes = st.binary(max_size=40) | st.text(max_size=15).map(str.encode)


@given(_bytes, st.lists(st.integers(0, 1000), max_size=20))
def test_streamed_text_is_the_decoded_text(data: bytes, cuts: list[int]) -> None:
    pieces = pieces_of(data, cuts)
    tokenizer = Bytes(pieces)
    stream = Detokenizer(tokenizer)
    text = "".join(map(stream.add, range(len(pieces)))) + stream.flush()
    assert text == tokenizer.decode(range(len(pieces))) == data.decode(errors="replace")


@given(st.text(max_size=20))
def test_valid_text_never_shows_a_replacement(text: str) -> None:
    data = text.replace("\ufffd", "").encode()
    stream = Detokenizer(Bytes([bytes((byte,)) for byte in data]))
    shown = [stream.add(token) for token in range(len(data))]
    assert "\ufffd" not in "".join(shown)
    assert stream.flush() == ""


def test_a_character_appears_with_its_last_byte() -> None:
    stream = Detokenizer(Bytes([b"a\xf0\x9f", b"\x98", b"\x80b"]))
    assert [stream.add(0), stream.add(1), stream.add(2)] == ["a", "", "\U0001f600b"]


def test_a_broken_character_is_replaced_as_soon_as_it_cannot_be_completed() -> None:
    stream = Detokenizer(Bytes([b"\xf0\x9f", b"x", b"\xe2"]))
    assert [stream.add(0), stream.add(1), stream.add(2)] == ["", "\ufffdx", ""]
    assert stream.flush() == "\ufffd"
