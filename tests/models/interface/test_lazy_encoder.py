"""A model whose default scorer needs no encoder loads one when it is first needed."""

import subprocess
import sys

import pytest

import longtail
from longtail.models.bundle.bundle import open_bundle
from longtail.models.errors import RequestError
from longtail.models.kinds.storage import without_encoder
from longtail.models.predict.predictor import Predictor

TEXTS = ["olive oil imports", "fishing"]


@pytest.fixture
def folder(lie):
    return lie(lambda manifest: manifest.update(default_scorer="sparse"))


def test_all_answers_are_those_of_a_model_that_loaded_it_at_once(folder):
    model, whole = longtail.load(folder), Predictor.of_bundle(open_bundle(folder))
    for scorer in ("sparse", *whole.scorers.names):
        assert list(model.predict(TEXTS, scorer=scorer)) == whole.predict(TEXTS, scorer=scorer)
    assert model.scorers == whole.scorers.names == model.predictor.scorers.names


def test_explanations_and_details_are_those_of_the_whole_model(folder):
    whole = Predictor.of_bundle(open_bundle(folder))
    found = longtail.load(folder).predict(TEXTS, explain=True)
    assert list(found) == whole.predict(TEXTS, explain=True, k=5)
    model = longtail.load(folder)
    assert model.describe(model.labels[0].id) == whole.describe(0)


def test_an_unknown_scorer_is_refused_with_all_names(folder):
    model = longtail.load(folder)
    with pytest.raises(RequestError) as refused:
        model.predict("olive oil", scorer="magic")
    assert {*str(refused.value).partition("it has ")[2].split(", ")} == {*model.scorers}


@pytest.mark.parametrize("correction", ["tree", "none"])
def test_the_correction_of_the_linear_scorer_is_that_of_the_whole_model(folder, correction):
    asked = {"scorer": "linear", "correction": correction}
    whole = Predictor.of_bundle(open_bundle(folder))
    assert list(longtail.load(folder).predict(TEXTS, **asked)) == whole.predict(TEXTS, **asked)


def test_a_model_whose_default_scorer_needs_it_loads_it_at_once(bundle):
    assert without_encoder(bundle) is bundle


def test_pytorch_is_not_imported_before(folder):
    code = (
        "import sys, longtail; model = longtail.load(sys.argv[1]); model.predict('olive oil')\n"
        "assert 'torch' not in sys.modules; model.predict('oil', scorer='retrieval')\n"
        "assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
