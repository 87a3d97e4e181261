"""One row a label: rows that stand together become a document; others are refused."""

from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.corpus.documents import grouped_rows
from longtail.models.corpus.raw import RawDocument
from longtail.models.errors import DataError
from longtail.models.files.text_files import BadLine

PATH = Path("pairs.csv")
KEYS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz")), max_size=12)


def rows(pairs: list[tuple[str, str]], *, has_ids: bool) -> list[RawDocument]:
    return [
        RawDocument(line, key if has_ids else None, f"text of {key}", (label,))
        for line, (key, label) in enumerate(pairs, 1)
    ]


@given(KEYS, st.booleans())
def test_runs_become_documents_and_keys_that_come_back_are_refused(pairs, has_ids):
    runs = [(key, list(run)) for key, run in groupby(pairs, key=lambda pair: pair[0])]
    comes_back = len({key for key, _ in runs}) < len(runs)
    if comes_back:
        with pytest.raises(DataError, match="all rows of a document must stand together: sort"):
            list(grouped_rows(PATH, rows(pairs, has_ids=has_ids)))
        return
    found = list(grouped_rows(PATH, rows(pairs, has_ids=has_ids)))
    expected = [
        (f"text of {key}", tuple(dict.fromkeys(label for _, label in run))) for key, run in runs
    ]
    assert [(x.text, x.labels) for x in found if isinstance(x, RawDocument)] == expected


def test_an_id_with_another_text_is_a_problem():
    first, second = rows([("a", "x"), ("a", "y")], has_ids=True)
    other = RawDocument(3, "a", "another", ("z",))
    found = list(grouped_rows(PATH, [first, second, other]))
    assert (
        isinstance(found[0], BadLine)
        and "id 'a' with another text than on line 1" in found[0].reason
    )
    assert found[1] == RawDocument(1, "a", "text of a", ("x", "y"))
