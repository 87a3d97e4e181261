"""Documents without a label file and without training documents: the labels are the model's."""

from pathlib import Path

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.training.data.dataset import open_dataset

KNOWN = LabelCatalogue([Label("a", "apples"), Label("b", "bread")])


def corpus(folder: Path, text: str, name: str = "test.csv") -> Path:
    (folder / name).write_text(f"text,labels\n{text}\n")
    return folder


def test_documents_that_are_only_measured_on_need_no_label_file(tmp_path):
    dataset = open_dataset(corpus(tmp_path, "Bread with apples,bread;a"), known=KNOWN)
    (document,) = dataset.split("test")
    assert document.labels == (0, 1)
    assert [label.id for label in dataset.labels] == ["a", "b"]
    assert [label.id for label in dataset.catalogue] == ["a", "b"]


def test_labels_that_the_model_lacks_come_after_its_own(tmp_path):
    dataset = open_dataset(corpus(tmp_path, "Cheese,cheese;bread"), known=KNOWN)
    (document,) = dataset.split("test")
    assert document.labels == (1, 2)
    assert [label.id for label in dataset.labels] == ["a", "b", "cheese"]
