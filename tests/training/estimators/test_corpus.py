"""Documents in memory become a corpus that is read as it was meant."""

from __future__ import annotations

import pytest

from longtail.models.errors import DataError
from longtail.training.data.dataset import open_dataset
from longtail.training.estimators.corpus import Documents, documents_of, kept_corpus, write_corpus

TEXTS = ["Oil from olives", 'a "quoted"\nline', "\u2028 separators \u00e9"]


def test_labels_have_the_texts_that_are_given(tmp_path):
    documents = Documents(TEXTS[:2], [["1", "x"], ["x", "y"]])
    texts = {2: "never seen", "1": {"name": "one", "description": "the first"}}
    corpus = kept_corpus(
        tmp_path, lambda folder: write_corpus(folder, documents, texts), "the texts"
    )
    found = [(x.id, x.name, x.description) for x in corpus.labels]
    assert found == [
        ("2", "never seen", ""), ("1", "one", "the first"), ("x", "x", ""), ("y", "y", "")
    ]  # fmt: skip


def test_equal_documents_have_one_folder_and_others_another(tmp_path):
    def written(labels):
        documents = Documents(TEXTS[:1], [labels])
        return (
            kept_corpus(tmp_path, lambda folder: write_corpus(folder, documents), "the texts")
            .paths[0]
            .parent
        )

    assert written(["a"]) == written(["a"]) != written(["b"])
    assert len(list(tmp_path.iterdir())) == 2
    assert open_dataset(written(["a"])).labels[0].id == "a"


class Frame(dict):
    """A data frame of some other library."""

    @property
    def columns(self):
        return list(self)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((TEXTS, [["a"]]), "3 texts and the labels of 1 documents"),
        ((["a", " "], [["a"], ["b"]]), "text 1 is blank"),
        ((["a"], [7]), r"labels of document 0: got 7 \(int\)"),
        (TEXTS, "data is a list; expected the folder of a corpus, a data frame"),
        (Frame(text=TEXTS), "the columns text; expected 'labels', too"),
    ],
)
def test_other_data_is_refused(data, message):
    with pytest.raises(DataError, match=message):
        documents_of(data)
