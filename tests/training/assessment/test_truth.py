"""The truth in the labels of a model, some of which are out of use."""

import json

import numpy as np
import pytest

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.training.assessment.truth import RetiredLabels, in_order_of
from longtail.training.data.dataset import Dataset, open_dataset

DOCUMENTS = (["a"], ["old"], ["older", "a"], ["gone", "b"], ["split"], ["old", "b"])
RETIRED = {"old": ("a",), "older": ("old",), "gone": (), "split": ("a", "b")}


def catalogue_of(**retired: tuple[str, ...]) -> LabelCatalogue:
    in_use = [Label(name, name) for name in ("b", "a", *(RETIRED.keys() - retired.keys()))]
    others = [
        Label(name, name, is_deprecated=True, is_retired=True, replaced_by=by)
        for name, by in retired.items()
    ]
    return LabelCatalogue([*others, *in_use])


@pytest.fixture
def read(tmp_path):
    def read_with(catalogue: LabelCatalogue) -> tuple[Dataset, object]:
        lines = (json.dumps({"text": "x", "labels": labels}) for labels in DOCUMENTS)
        (tmp_path / "test.jsonl").write_text("\n".join(lines))
        dataset = open_dataset(tmp_path, known=catalogue)
        return dataset, dataset.split("test").scan().labels

    return read_with


def names_of(catalogue: LabelCatalogue, truth) -> list[set[str]]:
    assert set(np.unique(truth.data)) == {1}
    rows = np.split(truth.indices, truth.indptr[1:-1])
    assert all(len(set(row.tolist())) == len(row) for row in rows)
    return [{catalogue[column].id for column in row.tolist()} for row in rows]


def test_merged_labels_stand_for_the_one_in_use_and_others_are_left_out(read):
    catalogue = catalogue_of(**RETIRED)
    dataset, listed = read(catalogue)
    found = names_of(catalogue, in_order_of(catalogue, dataset, listed))
    assert found == [{"a"}, {"a"}, {"a"}, {"b"}, set(), {"a", "b"}]
    told = RetiredLabels.of(catalogue, dataset, listed)
    assert told == RetiredLabels(num_replaced=3, num_left_out=2)
    assert str(told) == (
        "Retired labels of the documents: 3 stand for the labels that they were merged into, "
        "2 that were dropped or split are left out."
    )
