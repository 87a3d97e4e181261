"""A loaded model answers about one text or many, explains, and shows itself."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

import longtail
from longtail.models.errors import BundleCorruptError, ConfigError, DataError, RequestError
from longtail.models.interface import arrow
from longtail.models.interface.given_texts import texts_of
from longtail.models.interface.model import LoadedModel, Predictions

TEXTS = ["imports of olive oil", "<b>fishing</b> quotas"]


@pytest.fixture(scope="module")
def model(trained_sparse):
    bundle = trained_sparse.bundle
    return LoadedModel(bundle)


def test_one_text_has_one_prediction_and_many_have_many(model):
    one = model.predict(TEXTS[0], k=3)
    many = model.predict(TEXTS, k=3)
    assert many[0] == one and len(many) == 2 and list(one) == list(one.labels)
    assert list(many) == model.predictor.predict(TEXTS, k=3)
    assert many[1:].texts == (TEXTS[1],) and many[1:].documents == (1,)
    assert list(model.predict([])) == []


def test_a_label_is_explained_by_id_or_name(model):
    label = model.predict(TEXTS[0], k=1).labels[0]
    found = model.explain(TEXTS[0], label.name)
    assert found == model.explain(TEXTS[0], label.id, scorer="sparse")
    (expected,) = model.predictor.predict(TEXTS[:1], k=1, explain=True)
    assert found.tokens == expected.labels[0].explanation.tokens
    assert "<td>token</td>" in found._repr_html_()
    assert model.describe(label.id).label.name == label.name
    with pytest.raises(DataError, match="unknown label 'nothing'"):
        model.explain(TEXTS[0], "nothing")


def test_predictions_show_themselves_and_texts_are_never_markup(model):
    many = model.predict(TEXTS, k=2)
    assert repr(many).splitlines()[0] == "2 predictions"
    assert (
        repr(many[0])
        == f"Prediction({', '.join(f'{x.name} {x.probability:.3f}' for x in many[0])})"
    )
    html = many._repr_html_()
    assert "&lt;b&gt;fishing&lt;/b&gt; quotas" in html and "<b>" not in html
    assert html.count("<tr>") == 5 and many[0]._repr_html_().count("<tr>") == 3
    long = Predictions(("x" * 99,) * 30, tuple(many)[:1] * 30, tuple(range(30)))
    assert "... 10 more" in repr(long) and "20 of 30 texts" in long._repr_html_()


def test_predictions_become_data_frames(model):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS}, index=["x", "y"])
    found = model.predict(frame, k=2).to_frame()
    assert list(found.columns) == ["document", "rank", "id", "name", "probability", "score"]
    assert list(found["document"]) == ["x", "x", "y", "y"] and list(found["rank"]) == [1, 2, 1, 2]
    assert list(model.predict(TEXTS[0], k=2).to_frame()["id"]) == list(found["id"][:2])


class Frame(dict):
    """A data frame of some library: columns by name."""

    @property
    def columns(self):
        return list(self)


def test_frames_have_a_column_of_texts_or_titles_and_contents():
    assert list(texts_of(Frame(text=["a", "b"], title=["t", None]))) == ["t\na", "b"]
    assert list(texts_of(Frame(text=["a"], content=["c"]))) == ["a"]
    frame = Frame(title=["t", "t", None], content=["c", float("nan"), "c"], other=[1, 2, 3])
    assert list(texts_of(frame)) == ["t\nc", "t", "c"]
    assert list(texts_of(Frame(content=["c"]))) == ["c"]


def test_mappings_in_a_list_are_read_as_rows_of_a_frame():
    found = texts_of([{"title": "t", "text": "a", "id": 1}, {"text": "b"}, "c", {"title": "d"}])
    assert list(found) == ["t\na", "b", "c", "d"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("text", "single str"),
        ({"a": "olive"}, "texts are a dict, expected a list of texts"),
        (np.array([["a"], ["b"]]), r"shape \(2, 1\), expected one text a row"),
        (["a", None], "text 1 is None"),
        (["a", {"words": "b"}], r"text 1 is \{'words': 'b'\} \(dict\), expected a string"),
        ([{"title": 5, "text": "b"}], r"text 0 is 5 \(int\), expected a string"),
        (Frame(words=["a"]), "has the columns words; expected 'text', or 'title' and 'content'"),
        (Frame(title=["t", None], content=["c", " "]), "text 1 is blank"),
    ],
)
def test_other_things_are_refused(data, message):
    with pytest.raises(RequestError, match=message):
        texts_of(data)


ROWS = [
    "imports of olive oil", " ", "fish of the Baltic Sea", None, "milk\0", "fresh milk",
]  # fmt: skip
GOOD = [0, 2, 5]


@pytest.fixture
def label(trained):
    def make(**options):
        found = longtail.arrow_predictor(trained.registry.folder, **({"k": 3} | options))
        return pickle.loads(pickle.dumps(found))  # noqa: S301  # as engines send it

    return make


def batch_of(texts, **columns):
    return pa.RecordBatch.from_pydict(
        {"id": [*map(str, range(len(texts)))], "text": texts, **columns}
    )


def test_labels_are_those_of_predict_to_the_bit(label, trained):
    model = longtail.load(trained.registry.folder, num_threads=1)
    predictions = model.predict([ROWS[i] for i in GOOD], k=3)
    whole = batch_of(ROWS)
    first, second = label(id="id")(iter([whole, whole.slice(0, 0)]))
    found = first.to_pylist()
    assert [row["id"] for row in found] == ["0", "1", "2", "3", "4", "5"]
    for i, prediction in zip(GOOD, predictions, strict=True):
        row = found[i]
        assert row["error"] is None
        assert row["scores"] == [each.score for each in prediction.labels]
        assert row["probabilities"] == [each.probability for each in prediction.labels]
        assert row["label_ids"] == [each.id for each in prediction.labels]
        assert row["label_names"] == [each.name for each in prediction.labels]
        warned = [each.code for each in prediction.warnings]
        assert row["remarks"] == warned + ["truncated"] * prediction.truncated
    assert [row["label_ids"] is None for row in found] == [i not in GOOD for i in range(6)]
    assert ["text" in row["error"] for row in found if row["error"]] == [True] * 3
    assert {row["version"] for row in found} == {trained.version}
    assert {row["digest"] for row in found} == {trained.bundle.manifest.digest}
    assert (second.num_rows, second.schema) == (0, first.schema)


def test_the_files_of_a_folder_are_labelled_in_a_stream(label, tmp_path):
    for name in ("a", "b"):
        parquet.write_table(pa.Table.from_batches([batch_of(ROWS, n=[1] * 6)]), tmp_path / name)
    own = label(id="id")
    documents = dataset.dataset(tmp_path, format="parquet")
    answers = own(documents.to_batches(columns=["id", "text"]))
    schema = own.schema(documents.schema)
    dataset.write_dataset(answers, tmp_path / "out", schema=schema, format="parquet")
    found = dataset.dataset(tmp_path / "out").to_table().sort_by("id")
    assert found == own.table(documents.to_table()).sort_by("id")


def test_a_table_keeps_its_columns_and_its_texts_may_be_several(label):
    title = pa.chunked_array([["imports"], ["fish"]], pa.large_string())
    content = pa.chunked_array([["of olive oil"], [None]], pa.string())
    table = pa.table({"title": title, "n": [1, 2], "content": content})
    found = label(text=["title", "content"], scorer="sparse").table(table)
    assert found.column_names[:3] == ["title", "n", "content"]
    whole = pa.table({"text": ["imports\nof olive oil", "fish"]})
    assert found.column("scores") == label(scorer="sparse").table(whole).column("scores")


def test_a_text_that_is_no_utf_8_costs_its_row(label):
    bad = pa.array([b"milk", b"\xff"]).view(pa.string())
    (found,) = label()([batch_of(["x"] * 2).set_column(1, "text", bad)])
    assert found.column("error").is_valid().to_pylist() == [False, True]


@pytest.mark.parametrize(
    ("options", "columns", "words"),
    [
        ({"text": "body"}, {}, "expected 1 column 'body', got id, text"),
        ({"id": "uid"}, {}, "expected 1 column 'uid'"),
        ({"text": "n"}, {"n": [1]}, "column 'n' is of type int64; cast it to string"),
        ({}, {"scores": [1]}, "column 'scores' is added"),
    ],
)
def test_a_wrong_batch_is_named_with_its_column(label, options, columns, words):
    good = batch_of(["milk"], n=["n"], body=["b"], uid=["u"])
    with pytest.raises(DataError, match=f"^batch 1: .*{words}"):
        list(label(**options)([good, batch_of(["milk"], **columns)]))


def test_options_are_checked_where_it_is_made(trained, monkeypatch):
    folder = trained.registry.folder
    with pytest.raises(ConfigError, match="scorer is 'magic'"):
        longtail.arrow_predictor(folder, scorer="magic")
    with pytest.raises(ConfigError, match="k is 9999"):
        longtail.arrow_predictor(folder, k=9999)
    with pytest.raises(RequestError, match="no option 'speed'"):
        longtail.arrow_predictor(folder, speed=2)
    monkeypatch.setattr("longtail.models.extras._is_found", lambda name: name != "pyarrow")
    with pytest.raises(ConfigError, match=r"longtail\[parquet\]"):
        longtail.arrow_predictor(folder)


def test_a_process_loads_a_model_once_and_no_other_one(label, trained, monkeypatch):
    arrow._loaded.cache_clear()
    first, second = label(k=1), label(id="id")
    assert first._load() is second._load()
    load = arrow._loaded.__wrapped__
    with pytest.raises(BundleCorruptError, match="where the work began"):
        load(str(trained.registry.folder), trained.version, "0" * 64)
