"""Lines of a batch: read strictly, and answered whatever they are."""

import json

import pytest

from longtail.service.schemas.predict import BatchError
from longtail.service.wire.lines import LineError, error_line, parse_line, problem_of_error


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
