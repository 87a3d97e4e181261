"""Short texts of a model whose log-odds are known to be too far from 0 in them."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit

from longtail.models.bundle.manifest import Calibration
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import Ranking
from longtail.training.fitted.familiar_range import cut, fit_short_texts
from tests.closeness import assert_all_close

NUM_TEXTS, NUM_LABELS = 400, 12
LINE = Calibration(knots=(0.0,), slopes=(2.0, 2.0), intercept=-1.0)


class Words(TextBatch):
    """Texts of which all words are known."""

    def __init__(self, texts):
        self.texts = texts

    @property
    def word_counts(self):
        words = np.array([len(text.split()) for text in self.texts])
        return np.column_stack([words, words])


class Exaggerating(Predictor):
    """Gives log-odds that are right in documents; in short texts 3 times those, and 1 too high."""

    def __init__(self, log_odds):
        self.parts = SimpleNamespace(calibrations={"sparse": LINE})
        self.scorers = SimpleNamespace(names=("sparse",), score_by_all=self.score_by_all)
        self.catalogue = LabelCatalogue([Label(str(i), str(i)) for i in range(NUM_LABELS)])
        self._scores = ((3 * log_odds + 1 + 1) / 2).astype(np.float32)

    def read(self, texts):
        return Words(texts)

    def rank(self, batch, options):
        order = np.argsort(-self._scores, axis=1, kind="stable")[:, : options.k].astype(np.int64)
        return Ranking(order, np.take_along_axis(self._scores, order, axis=1))

    def score_by_all(self, batch, labels):
        there = np.take_along_axis(self._scores, np.maximum(labels, 0), axis=1)
        return {"sparse": np.where(labels >= 0, there, -np.inf).astype(np.float32)}


@pytest.fixture
def drawn():
    rng = np.random.default_rng(3)
    log_odds = rng.normal(-1, 1.5, (NUM_TEXTS, NUM_LABELS))
    is_true = rng.random(log_odds.shape) < expit(log_odds)
    return log_odds, csr_array(is_true.astype(np.float32))


def test_the_line_is_found_that_makes_probabilities_right(drawn):
    log_odds, truth = drawn
    texts = ["word " * 40] * NUM_TEXTS
    found = fit_short_texts(Exaggerating(log_odds), texts, truth, least_known_words=12)["sparse"]
    assert found.known_words == (2, 4, 8, 12)
    assert_all_close(found.factors[:3], 1 / 3, rtol=0.1)
    np.testing.assert_allclose(found.shifts[:3], -1 / 3, atol=0.1)


def test_where_documents_are_short_or_teach_too_little_nothing_changes(drawn):
    log_odds, truth = drawn
    model, texts = Exaggerating(log_odds), ["word " * 40] * NUM_TEXTS
    assert fit_short_texts(model, texts, truth, least_known_words=2) == {}
    assert (
        fit_short_texts(
            model, texts, csr_array(truth.shape, dtype=np.float32), least_known_words=12
        )
        == {}
    )


def test_pieces_are_the_first_words_or_any_neighbours_and_whole_where_there_are_no_more():
    text = "one  two,\nthree four five six seven"
    first, anywhere, whole = cut([text, text, "a b"], 3)
    assert first == "one  two,\nthree"
    assert anywhere in text
    assert (len(anywhere.split()), whole) == (3, "a b")
