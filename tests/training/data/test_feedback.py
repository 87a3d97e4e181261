"""Lines of feedback: what is read of them, and what is said of broken ones."""

import pytest

from longtail.models.errors import DataError
from longtail.models.feedback import ProposedLabel, sha256_of
from longtail.training.data.feedback import read_feedback


def test_an_entry_is_read_and_deleted_ones_are_left_out(write_feedback):
    path = write_feedback(
        {"id": "a", "text": "Olives", "accepted": ["1"], "added": ["2"], "rejected": ["3"]},
        {"id": "b", "text": "Fish", "accepted": ["1"]},
        {"id": "c", "document_id": "d7", "proposed": [{"name": " oil ", "id": None}]},
        {"sequence": 4, "id": "b", "deleted_at": "2026-01-01T00:00:00"},
    )
    found = read_feedback(path)
    first, second = found.entries
    assert (first.right, first.rejected, first.text) == (("1", "2"), ("3",), "Olives")
    assert first.text_sha256 == sha256_of("Olives")
    assert (second.document_id, second.proposed) == ("d7", (ProposedLabel("oil"),))
    assert found.num_deleted == 1


def test_the_digest_is_of_what_was_said_and_not_of_when(write_feedback):
    said = {"text": "Olives", "accepted": ["1"]}
    first = read_feedback(write_feedback({**said, "given_at": "2026", "who": "ada"}))
    again = read_feedback(write_feedback({**said, "id": "x", "sequence": 9}))
    other = read_feedback(write_feedback({**said, "accepted": ["2"]}))
    assert first.sha256 == again.sha256 != other.sha256


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ({"text": "a"}, "names no label; expected ids in accepted"),
        ({"accepted": ["1"]}, "of no text; expected one of text"),
        ({"text": "a", "accepted": [1]}, "accepted holds 1 (int); expected ids of labels"),
        ({"text": "a", "proposed": [{"name": " "}]}, "expected a name with a letter or a digit"),
        ({"text": "a", "accepted": ["1"], "rejected": ["1"]}, "label '1' is right and rejected"),
        ({"text": "a", "text_sha256": "0" * 64, "accepted": ["1"]}, "is not that of the text"),
        ({"text": "a\ud800", "accepted": ["1"]}, "half of a surrogate pair"),
    ],
)
def test_a_broken_line_is_named_with_what_was_expected(write_feedback, line, reason):
    path = write_feedback({"text": "Olives", "accepted": ["1"]}, line)
    with pytest.raises(DataError) as failure:
        read_feedback(path)
    assert f"{path}: 1 line can't be used" in str(failure.value)
    assert "feedback.jsonl, line 2: " in str(failure.value) and reason in str(failure.value)
