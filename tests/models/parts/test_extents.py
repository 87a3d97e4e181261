"""How much of a text an answer says was read, and known to the scorer."""

from dataclasses import replace

import pytest

from longtail.models.predict.predictor import Predictor
from longtail.models.results import Prediction
from longtail.models.scorers.calibration import IDENTITY

MAX_TOKENS = 8
LONG = "fish " * 40 + "law"


@pytest.fixture(scope="module")
def predictor(parts):
    return Predictor(parts, device="cpu")


def counts(found: Prediction) -> tuple[int, int, int, bool]:
    return found.num_tokens, found.num_text_tokens, found.known_tokens, found.truncated


@pytest.mark.parametrize("scorer", ["retrieval", "classifier", "linear"])
def test_an_answer_by_the_encoder_says_how_many_tokens_it_has_read(predictor, scorer):
    (found,) = predictor.predict([LONG], scorer=scorer)
    assert counts(found) == (MAX_TOKENS, 43, MAX_TOKENS - 2, True)


def test_the_sparse_model_reads_all_words_and_knows_those_with_a_feature(predictor):
    (found,) = predictor.predict([LONG + " zzz zzz"], scorer="sparse")
    assert counts(found) == (43, 43, 2, False)  # "fish" and "law"


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        ({"retrieval": 0.5, "sparse": 0.5}, (MAX_TOKENS, 43, 6, True)),
        ({"sparse": 1.0}, (41, 41, 2, False)),
    ],
)
def test_a_blend_is_counted_as_its_encoder_reads_if_it_has_one(
    parts, constant_blend, weights, wanted
):
    blends = {"ensemble": constant_blend(weights)}
    blended = replace(parts, calibrations=dict.fromkeys(weights, IDENTITY), blends=blends)
    (found,) = Predictor(blended, device="cpu").predict([LONG], scorer="ensemble")
    assert counts(found) == wanted


def test_a_blend_knows_what_one_of_its_parts_knows(parts, constant_blend):
    """The sparse model reads what the encoder cuts off, so it may know words that it doesn't."""
    weights = {"retrieval": 0.5, "sparse": 0.5}
    blends = {"ensemble": constant_blend(weights)}
    blended = replace(parts, calibrations=dict.fromkeys(weights, IDENTITY), blends=blends)
    predictor = Predictor(blended, device="cpu")
    behind = "zzz " * 20 + "river"
    assert counts(predictor.predict([behind], scorer="ensemble")[0]) == (MAX_TOKENS, 23, 1, True)
    assert predictor.predict(["zzz " * 20], scorer="ensemble")[0].known_tokens == 0
