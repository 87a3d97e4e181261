"""The label catalogue: order, look-up, and its text form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.errors import DataError
from longtail.models.labels.catalogue import Label, LabelCatalogue

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FIELDS = st.fixed_dictionaries({
    "id": TEXT,
    "name": TEXT,
    "description": TEXT,
    "pseudo_description": TEXT,
    "training_count": st.integers(0, 10**9),
    "alternative_names": st.lists(TEXT, max_size=2),
    "parents": st.lists(TEXT, max_size=2),
})  # fmt: skip


@pytest.fixture
def catalogue():
    return LabelCatalogue(
        [Label("a", "River", training_count=3), Label("b", "a"), Label("c", "Bank"),
         Label("d", "Bank", training_count=1)]
    )  # fmt: skip


def test_a_label_is_found_by_its_id_or_else_by_its_name(catalogue):
    assert catalogue.index_of("d") == 3
    assert catalogue.index_of("River") == 0
    assert catalogue.index_of("a") == 0  # the id, though another label has this name


def test_a_name_of_several_labels_is_refused_with_their_ids(catalogue):
    with pytest.raises(DataError, match=r"2 labels are named 'Bank' \(ids 'c', 'd'\); use the id"):
        catalogue.index_of("Bank")


def test_no_labels_and_equal_ids_are_refused():
    with pytest.raises(DataError, match="no labels; give at least one"):
        LabelCatalogue([])
    with pytest.raises(DataError, match="id 'b' occurs twice"):
        LabelCatalogue([Label("a", "A"), Label("b", "B"), Label("b", "C")])


@given(st.lists(FIELDS, min_size=1, max_size=5, unique_by=lambda fields: fields["id"]))
def test_a_catalogue_comes_back_from_its_lines(rows):
    lists = ("alternative_names", "parents")
    labels = [Label(**row | {name: tuple(row[name]) for name in lists}) for row in rows]
    text = LabelCatalogue(labels).to_jsonl()
    assert list(LabelCatalogue.from_jsonl(text)) == labels
    assert text.count("\n") == len(labels)
