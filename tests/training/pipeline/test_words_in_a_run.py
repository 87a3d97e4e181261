"""A run with `word_vectors` and `word_neighbours`: stored, ranked exactly, explained, extended."""

import numpy as np
import pytest

from longtail.models.edit.add_labels import add_labels
from longtail.models.kinds.storage import read_parts
from longtail.models.labels.catalogue import Label
from longtail.models.names import ENSEMBLE, NEIGHBOURS, SPARSE, WORD_NEIGHBOURS, WORD_VECTORS
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.configuration.run import TrainingConfig

SCORERS = [SPARSE, "names", NEIGHBOURS, WORD_VECTORS, WORD_NEIGHBOURS, ENSEMBLE]
TEXTS = ["imports of olive oil and fish", "milk", "quotas for fishing in the Baltic"]


@pytest.fixture(scope="module")
def own(tmp_path_factory, train_in, tiny_corpus):
    config = TrainingConfig.model_validate({
        "scorers": SCORERS, "scorer_settings": {WORD_VECTORS: {"dim": 32, "epochs": 2}},
    })  # fmt: skip
    return train_in(tmp_path_factory.mktemp("words"), config, tiny_corpus)


@pytest.fixture(scope="module")
def predictor(own):
    return Predictor.of_bundle(own.bundle, device="cpu")


@pytest.mark.parametrize("scorer", [WORD_VECTORS, WORD_NEIGHBOURS, ENSEMBLE])
@pytest.mark.parametrize("dial", [0.0, 1.0])
def test_the_best_labels_are_those_of_all_labels_scored_one_by_one(predictor, scorer, dial):
    batch, num_labels = predictor.read(TEXTS), len(predictor.catalogue)
    options = RankingOptions(k=10, scorer=scorer, tail_dial=dial)
    ranked = predictor.rank(batch, options)
    labels = np.tile(np.arange(num_labels, dtype=np.int64), (len(TEXTS), 1))
    scores = predictor.score(batch, labels, options)
    order = np.lexsort((labels, -scores), axis=1)[:, :10]
    best = np.take_along_axis(scores, order, axis=1)
    np.testing.assert_array_equal(ranked.scores, best)
    np.testing.assert_array_equal(ranked.labels, np.where(np.isneginf(best), NO_LABEL, order))


def test_a_text_has_the_same_answer_alone(predictor):
    for scorer in (WORD_VECTORS, WORD_NEIGHBOURS, ENSEMBLE):
        together = predictor.predict(TEXTS, k=5, scorer=scorer)
        alone = [predictor.predict([text], k=5, scorer=scorer)[0] for text in TEXTS]
        assert [x.labels for x in together] == [x.labels for x in alone]


def test_the_words_of_a_text_add_up_to_its_score(predictor):
    batch = predictor.read(TEXTS)
    scorer = predictor.scorers._scorers[WORD_VECTORS]
    for row in range(len(TEXTS)):
        told = scorer.contributions(batch, row, [0, 1, 2])
        labels = np.array([[0, 1, 2]] * len(TEXTS), dtype=np.int64)
        scores = predictor.score(batch, labels, RankingOptions(scorer=WORD_VECTORS))[row]
        assert {*told} == {*np.flatnonzero(np.isfinite(scores)).tolist()}
        for label, parts in told.items():
            added = sum(token.contribution for token in parts.tokens) + parts.rest
            assert added == pytest.approx(scores[label], abs=0.01)  # vectors of texts are bytes


def test_an_added_label_is_found_by_its_name(own):
    new, store = Label("new", "olive oil imports"), own.registry
    version = store.publish(add_labels(own.bundle, [new]), activate=False)
    added = Predictor.of_bundle(store.open(version), device="cpu")
    (found,) = added.predict(["imports of olive oil"], k=1, scorer=WORD_VECTORS)
    assert found.labels[0].id == "new"
    words = read_parts(store.open(version)).models[WORD_VECTORS]
    before = read_parts(own.bundle).models[WORD_VECTORS]
    np.testing.assert_array_equal(words.labels.bytes[:-1], before.labels.bytes)


def test_neighbours_by_vectors_need_the_vectors():
    with pytest.raises(ValueError, match="word_neighbours"):
        TrainingConfig(scorers=(SPARSE, WORD_NEIGHBOURS))
