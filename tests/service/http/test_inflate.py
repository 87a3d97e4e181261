"""Gzip bodies come out as they went in, in bounded pieces, or are refused."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.service.wire.problems import PIECE_BYTES, BadGzipError, Inflater


def unpacked(packed, step=None):
    inflater, step = Inflater(), step or max(1, len(packed))
    pieces = [
        piece
        for start in range(0, len(packed), step)
        for piece in inflater.feed(packed[start : start + step])
    ]
    inflater.finish()
    return pieces


@given(st.lists(st.binary(max_size=300), max_size=4), st.integers(1, 50))
def test_any_members_come_out_however_they_are_cut(members, step):
    packed = b"".join(gzip.compress(member) for member in members)
    assert b"".join(unpacked(packed, step)) == b"".join(members)


def test_much_comes_out_in_pieces_of_bounded_size():
    body = bytes(range(256)) * 4000
    pieces = unpacked(gzip.compress(body))
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) == PIECE_BYTES


def test_a_bomb_is_refused_long_before_it_is_unpacked():
    pieces = []
    bomb = gzip.compress(bytes(10**8))
    with pytest.raises(BadGzipError, match="more than 200 times its size"):
        pieces.extend(map(len, Inflater().feed(bomb)))
    assert len(pieces) * PIECE_BYTES < 3e7


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (b"plain", "is not gzip"),
        (zlib.compress(b"x")[:-1] + b"0", "is not gzip"),
        (gzip.compress(b"text")[:-9], "ends too early"),
        (gzip.compress(b"text")[:-4] + b"0000", "is not gzip"),
        (gzip.compress(b"text") + b"rest", "is not gzip"),
    ],
    ids=["plain", "wrong sum", "cut off", "wrong length", "something after it"],
)
def test_what_is_no_gzip_is_refused(packed, words):
    with pytest.raises(BadGzipError, match=words):
        unpacked(packed)
