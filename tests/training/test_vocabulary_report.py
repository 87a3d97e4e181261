"""What `longtail vocabulary apply` says of labels that were split."""

from __future__ import annotations

import pytest

from longtail.models.edit.vocabulary.applying import Applied, Split
from longtail.training.commands.vocabulary_changes import _print_applied


@pytest.mark.parametrize(
    ("count", "documents", "words"),
    [
        (
            2,
            ("d7", "12"),
            (
                "Split: old into a, b. It was on 2 training documents; say of each which of the "
                "parts it is about. By id (by number of the line where the training file gives no "
                "ids): d7, 12. All of them: --json."
            ),
        ),
        (3, (), "Which they are is not known: the model remembers none"),
        (0, (), "Split: old into a, b. No training document carried it."),
    ],
)
def test_a_split_label_is_told_with_its_documents_and_what_to_do(count, documents, words, capsys):
    split = Split("old", ("a", "b"), count, documents)
    applied = Applied(
        label_count=9, num_retired=1, num_new=0, num_encoded=0, can_find_new=True, merged=(),
        split=(split,), unknown=(), present=(),
    )  # fmt: skip
    _print_applied(applied, 2, 1)
    assert words in capsys.readouterr().out
