"""Lines of a batch: cut in bounded memory, read strictly, and answered whatever they are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.service.schemas.predict import BatchError
from longtail.service.wire.lines import (
    LineError,
    LineSplitter,
    error_line,
    parse_line,
    problem_of_error,
)


@given(
    st.lists(st.binary(max_size=20).map(lambda x: x.replace(b"\n", b"")), max_size=5),
    st.integers(1, 9),
)
def test_lines_are_found_however_the_stream_is_cut(lines, step):
    stream, splitter = b"\n".join(lines), LineSplitter(100)
    found = [
        line
        for start in range(0, len(stream), step)
        for line in splitter.feed(stream[start : start + step])
    ]
    found += splitter.finish()
    assert found == (lines[:-1] if lines and not lines[-1] else lines)


def test_a_line_that_is_too_long_is_none_and_the_next_one_whole():
    splitter = LineSplitter(4)
    found = [
        line
        for piece in (b"123", b"456", b"7\nab", b"cd\n", b"12345")
        for line in splitter.feed(piece)
    ]
    assert [*found, *splitter.finish()] == [None, b"abcd", None]


def test_a_splitter_holds_no_more_than_a_line():
    splitter = LineSplitter(10)
    for _ in range(1000):
        assert list(splitter.feed(b"123456")) == []
    assert sum(map(len, splitter._parts)) <= 10


@pytest.mark.parametrize(
    ("content", "slug", "known_by"),
    [
        (b'{"text": ', "malformed-body", None),
        (b'{"text": "\xff"}', "malformed-body", None),
        (b"[" * 100_000, "malformed-body", None),
        (b'{"id": 1, "text": ' + b"9" * 5000 + b"}", "malformed-body", None),
        (b'"text"', "invalid-body", None),
        (b'{"id": "x"}', "invalid-body", "x"),
        (b'{"id": 7, "text": ""}', "invalid-body", 7),
        (b'{"id": "\\ud800", "text": "a"}', "invalid-body", None),
        (b'{"id": {}, "text": "a"}', "invalid-body", None),
        (b'{"id": "' + b"x" * 2000 + b'", "text": "a"}', "invalid-body", None),
        (b'{"id": 7, "text": "a", "tail_dial": NaN}', "invalid-body", 7),
        (b'{"id": 7, "text": "a", "\\ud800": 1}', "invalid-body", 7),
    ],
)
def test_a_line_that_is_not_as_wanted_is_answered_with_its_id(content, slug, known_by):
    with pytest.raises(LineError) as caught:
        parse_line(content, {})
    problem = problem_of_error(caught.value)
    written = BatchError.model_validate_json(error_line(3, caught.value.id, problem))
    assert (written.index, written.id) == (3, known_by)
    assert written.error.type == f"urn:longtail:problem:{slug}"
    assert written.error.detail


def test_errors_point_at_the_place_and_never_repeat_the_text():
    with pytest.raises(LineError) as caught:
        parse_line(json.dumps({"text": "secret\x00", "k": -1}).encode(), {})
    problem = problem_of_error(caught.value)
    assert [error.pointer for error in problem.errors or []] == ["/k", "/text"]
    assert "secret" not in problem.model_dump_json()
