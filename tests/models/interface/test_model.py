"""A loaded model answers about one text or many, explains, and shows itself."""

import pytest

from longtail.models.errors import DataError
from longtail.models.interface.model import LoadedModel, Predictions
from longtail.models.predict.predictor import Predictor

TEXTS = ["imports of olive oil", "<b>fishing</b> quotas"]


@pytest.fixture(scope="module")
def model(trained_sparse):
    bundle = trained_sparse.bundle
    return LoadedModel(bundle, Predictor.of_bundle(bundle))


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
