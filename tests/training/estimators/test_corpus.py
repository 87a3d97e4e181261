"""Documents in memory become a corpus that is read as it was meant."""

import numpy as np
import pandas
import pytest
from scipy.sparse import coo_array, csc_array, csr_matrix

import longtail
from longtail.models.bundle.registry import Registry
from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.models.corpus.documents import read_documents
from longtail.models.errors import DataError
from longtail.training.assessment.untrained import open_as_trained
from longtail.training.data.dataset import open_dataset
from longtail.training.estimators.corpus import Documents, documents_of, kept_corpus, write_corpus
from longtail.training.estimators.model import documents_as_trained
from longtail.training.estimators.targets import InvalidInputError, targets_of, truth_for

TEXTS = ["Oil from olives", 'a "quoted"\nline', "\u2028 separators \u00e9"]


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


ROWS = {"id": [], "title": [], "content": [], "tags": []}
for _row in range(60):
    ROWS["id"].append(f"d{_row}")
    ROWS["title"].append(f"olive oil {_row}")
    ROWS["content"].append(f"about steel {_row}")
    ROWS["tags"].append("a b" if _row % 2 else "b c")


def frame_of(**columns):
    return pandas.DataFrame(ROWS | columns)


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({}, {}),
        ({}, {"label_delimiter": " "}),
        ({"tags": ["a; b", "", "['c', 'd']"] * 20}, {}),
        ({"tags": ["<http://x/a> <http://x/b>"] * 60}, {}),
        ({"Subject": ["a|b|"] * 60}, {"label_column": "subject", "label_delimiter": "|"}),
        ({}, {"text_columns": ("content",), "id_column": "title"}),
    ],
)
def test_a_frame_is_read_as_the_file_of_the_same_table(tmp_path, change, options):
    frame, options = frame_of(**change), CorpusOptions(**options)
    frame.to_csv(tmp_path / "all.csv", index=False)
    dataset = open_dataset(tmp_path / "all.csv", options)
    expected = {
        (item.text, item.id, tuple(item.labels))
        for name in dataset.split_names
        for item in read_documents(dataset.split(name).source)
    }
    for read in (frame, pandas.read_csv(tmp_path / "all.csv")):
        found = documents_of(read, options)
        rows = zip(found.texts, found.ids, map(tuple, found.labels), strict=True)
        assert {*rows} == expected


def test_what_a_frame_lacks_is_named_with_its_cure():
    with pytest.raises(DataError, match=r"no 'labels'.*CorpusOptions\(label_column="):
        documents_of(frame_of().rename(columns={"tags": "marks"}))


def test_tags_between_blanks_are_noticed_in_a_frame(caplog):
    rng = np.random.default_rng(0)
    tags = [" ".join(rng.choice([*"abcdefghijkl"], 3, replace=False)) for _ in range(60)]
    documents_of(frame_of(tags=tags))
    assert "the data frame" in caplog.text and "--label-delimiter ' '" in caplog.text


@pytest.mark.parametrize("is_trained_on_titles", [True, False])
def test_texts_have_titles_in_measuring_if_they_had_them_in_training(
    tmp_path, is_trained_on_titles, caplog
):
    frame = pandas.DataFrame({
        "title": [f"title {x}" for x in range(400)],
        "text": [f"olive oil {x}" if x % 2 else f"steel pipe {x}" for x in range(400)],
        "labels": [["a"] if x % 2 else ["b"] for x in range(400)],
    })  # fmt: skip
    registry, path = tmp_path / "registry", tmp_path / "all.jsonl"
    trained = frame if is_trained_on_titles else frame.drop(columns="title")
    longtail.train(trained, registry=registry, work=tmp_path / "run", scorers=["sparse"])
    bundle = Registry(registry).open(1)
    columns = ("title", "text") if is_trained_on_titles else ("text",)
    assert documents_as_trained(frame, RECOGNISED, bundle).text_columns == columns
    frame.to_json(path, orient="records", lines=True)
    caplog.clear()
    assert open_as_trained(path, RECOGNISED, [bundle]).text_columns == columns
    assert ("read with the options of the training" in caplog.text) is not is_trained_on_titles
    # Of texts that are read in another way none is recognised, and measuring is refused.
    metrics = longtail.evaluate(path, registry=registry).metrics
    assert longtail.evaluate(frame, registry=registry).metrics == metrics


def test_a_frame_is_measured_with_the_options_of_the_training(tmp_path):
    frame = pandas.DataFrame({
        "title": [f"olive {x}" if x % 2 else f"steel {x}" for x in range(400)],
        "content": [f"oil {x % 7}" for x in range(400)],
        "tags": ["a b" if x % 2 else "c d" for x in range(400)],
        "id": [f"d{x}" for x in range(400)],
    })  # fmt: skip
    options = CorpusOptions(label_column="tags", label_delimiter=" ")
    registry = tmp_path / "registry"
    longtail.train(
        frame, registry=registry, work=tmp_path / "run", scorers=["sparse"], corpus=options
    )
    found = longtail.evaluate(frame, registry=registry)
    again = longtail.evaluate(frame, registry=registry, corpus=options)
    assert found.metrics == again.metrics
    new = frame.assign(id=range(400), title=frame["title"] + " again")
    assert longtail.load(registry).evaluate(new).metrics["sparse"]["P@1"] == 1.0


MATRIX = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize("form", [np.array, csc_array, coo_array, csr_matrix])
def test_a_matrix_is_read_in_any_form(form):
    for dtype in (bool, np.int64, float):
        found = targets_of(form(MATRIX.astype(dtype)))
        assert np.array_equal(found.truth.toarray(), MATRIX)
        assert list(found.label_ids()) == [["1", "2"], ["0"], []]
    assert found.classes.tolist() == [0, 1, 2]


def test_unknown_labels_get_columns_behind_the_classes():
    truth = truth_for([["b", "q"], ["p"]], np.array(["a", "b"]))
    assert truth.toarray().tolist() == [[0, 1, 0, 1], [0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        (["a", "b"], None, r"matrix of 0 and 1.* one label each: \[\[x\] for x in y\]"),
        ([0, 1], None, r"of numbers \[\[str\(x\)\] for x in y\]"),
        (7, None, "expected a matrix of 0 and 1"),
        (np.array([0, 1]), None, r"shape \(2,\).* one label each: "),
        ([[0, 1]], None, r"document 0: got 0 \(int\), expected labels as texts"),
        ([[], []], None, "no document has a label"),
        (2 * MATRIX, None, "got 2 in the matrix"),
        (MATRIX, ["a"], r"shape \(1,\), expected \(3,\)"),
        (MATRIX, ["a", "b", "a "], "'a' stands for two columns"),
    ],
)
def test_other_things_are_refused(y, classes, message):
    with pytest.raises(InvalidInputError, match=message):
        targets_of(y, classes)
