"""Scores of names, of all labels and of labels that come later."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.lexical.boosted_trees import LEAF, BoostedTrees
from longtail.models.lexical.matcher import FEATURES, FindHistory
from longtail.models.lexical.name_model import NameModel
from longtail.models.lexical.new_words import documents_of
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.lexical.fit import _exported, count_words, words_of
from tests.rankings import dense

LABELS = (
    Label("A", "river law", alternative_names=("water",)),
    Label("B", "river", parents=("river law",)),
    Label("C", "fish (animal)"),
    Label("D", "steel", description="a metal", pseudo_description="steel. metal", training_count=4),
    Label("E", "fish port"),
)
TRAINING = ["the river law", "fish in the river", "water and steel", "port"]
TEXTS = ["Fish and the law of rivers", "steel", "nothing", "water in a fish port"]
COSINE = FEATURES.index("cosine")
SHARE = FEATURES.index("share of the name's idf in the text")


def trees_of(*stumps: tuple[int, float, float, float]) -> BoostedTrees:
    """Trees of one decision each: feature, threshold, value below, value above."""
    numbers = range(len(stumps))
    return BoostedTrees(
        roots=np.array([3 * i for i in numbers]),
        features=np.array([x for each in stumps for x in (each[0], LEAF, LEAF)]),
        thresholds=np.array([x for each in stumps for x in (each[1], 0.0, 0.0)]),
        lefts=np.array([x for i in numbers for x in (3 * i + 1, 0, 0)]),
        rights=np.array([x for i in numbers for x in (3 * i + 2, 0, 0)]),
        values=np.array([x for each in stumps for x in (0.0, each[2], each[3])]),
        baseline=np.array([-1.0]),
    )


@pytest.fixture
def model():
    catalogue = LabelCatalogue(LABELS)
    words = words_of(catalogue)
    return NameModel(
        catalogue=catalogue,
        counts=count_words(map(words.read_text, TRAINING), catalogue, words),
        history=FindHistory.none(len(LABELS)),
        trees=trees_of((SHARE, 0.99, -1.0, 1.0), (COSINE, 0.5, -0.5, 0.25), (17, 0.5, 0.0, 0.125)),
    )


def test_scores_are_the_log_odds_of_the_matches(model):
    matches, found = model.matcher.match(TEXTS), model.scores(TEXTS)
    assert found.data.dtype == np.float32
    assert found.indptr.tolist() == matches.starts.tolist()
    assert found.indices.tolist() == matches.labels.tolist()
    seen = matches.seen
    wanted = (
        -1 + np.where(seen[:, SHARE] > 0.99, 1, -1) + np.where(seen[:, COSINE] > 0.5, 0.25, -0.5)
    )
    assert found.data.tolist() == wanted.tolist()
    assert found.indptr[2] == found.indptr[3]  # no name is in it


def test_a_new_label_is_found_by_its_names(model):
    new = [
        Label("N", "grain tax", alternative_names=("zyx river",)),
        Label("M", "river port", parents=("fish port",)),
    ]
    more = replace(model, tfidf=tfidf_of(), samples=("the text",) * 8).with_labels(new)
    found = dense(more.scores(["the grain tax", "a river port", "zyx", *TEXTS]), 7)
    assert len(found) == 7
    assert found[0].argmax() == 5 and found[0, 5] == pytest.approx(0.25)
    assert found[1].argmax() == 6
    assert found[2].nonzero()[0].tolist() == [5]
    assert more.counts.words[: len(model.counts.words)] == model.counts.words
    assert set(more.counts.words) == {*model.counts.words, "grain", "tax", "zyx"}
    assert more.history.found.shape == (7, 4)


def tfidf_of(num_documents: int = 4, **documents: int) -> TfidfModel:
    """Tf-idf of words in so many documents."""
    shares = (1 + num_documents) / (1 + np.array([*documents.values()], dtype=np.float32))
    return TfidfModel([*documents], np.log(shares) + 1)


def test_words_that_no_name_had_are_counted_from_what_is_known_of_the_documents():
    tfidf = tfidf_of(100, tax=60, taxes=20, grain=2, fee=70, fees=70)
    asked = ("tax", "grain", "fee", "of", "q", "7", "zyx", "xylophone")
    samples = ["the price of grain"] * 8
    # Singular and plural are one word; "of" is no feature and in a sample: too frequent to be one.
    counts = documents_of(asked, 100, (), tfidf, samples)
    assert counts.tolist() == [80, 2, 100, 100, 100, 100, 0, 0]
    # Without texts, nobody can tell a word that was too rare from one that was too frequent.
    assert documents_of(asked, 100, (), tfidf)[3:].tolist() == [100] * 5
    assert documents_of(asked, 100, (), None).tolist() == [100] * 8


def test_a_new_label_of_common_words_is_known_to_be_found_in_vain(model):
    known = replace(model, tfidf=tfidf_of(4, port=1, grain=1), samples=("the text of it",) * 8)
    more = known.with_labels([Label("N", "of the"), Label("M", "grain port")])
    words = more.counts.words
    counts = dict(zip(words, more.counts.documents.tolist(), strict=True))
    assert (counts["of"], counts["the"], counts["grain"]) == (4, 4, 1)
    pairs = {
        (words[pair >> 32], words[pair & 0xFFFFFFFF]): number
        for pair, number in zip(
            more.counts.pairs.tolist(), more.counts.pair_documents.tolist(), strict=True
        )
    }
    assert pairs["of", "the"] == 4 and pairs["grain", "port"] == 1  # as its rarer word
    assert more.history.found[5].tolist() == [4, 4, 4, 0] and not more.history.right[5].any()
    assert not more.history.found[6].any()
    assert more.history.found[:5].tolist() == model.history.found.tolist()


# One tree of a decision and two leaves, and one of a leaf alone.
STUMPS = BoostedTrees(
    roots=np.array([0, 3]), features=np.array([1, LEAF, LEAF, LEAF]),
    thresholds=np.array([0.5, 0.0, 0.0, 0.0]), lefts=np.array([1, 0, 0, 0]),
    rights=np.array([2, 0, 0, 0]), values=np.array([0.0, -1.0, 2.0, 0.25]),
    baseline=np.array([-3.0]),
)  # fmt: skip


def test_rows_at_the_threshold_go_left():
    rows = np.array([[9, 0.5], [9, np.nextafter(np.float32(0.5), 1)], [0, -7]], dtype=np.float32)
    assert STUMPS.log_odds(rows).tolist() == [-3.75, -0.75, -3.75]
    assert STUMPS.log_odds(rows[:0]).shape == (0,)


@settings(max_examples=8)
@given(
    seed=st.integers(0, 99),
    num_features=st.integers(1, 4),
    num_leaves=st.integers(2, 9),
    is_coarse=st.booleans(),
)
def test_log_odds_are_those_of_scikit_learn(seed, num_features, num_leaves, is_coarse):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(300, num_features)).astype(np.float32)
    if is_coarse:
        rows = rows.round()
    is_true = rows.sum(axis=1) + rng.normal(size=300) > 0
    model = HistGradientBoostingClassifier(
        max_iter=8, max_leaf_nodes=num_leaves, min_samples_leaf=5, early_stopping=False
    ).fit(rows, is_true)
    trees = _exported(model)
    trees.check(num_features)
    fresh = np.vstack([rows, 10 * rng.normal(size=(300, num_features)).astype(np.float32)])
    np.testing.assert_allclose(
        trees.log_odds(fresh), model.decision_function(fresh), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "broken",
    [
        {"features": np.array([2, LEAF, LEAF, LEAF])},
        {"roots": np.array([0, 4])},
        {"lefts": np.array([0, 0, 0, 0])},  # round and round
        {"rights": np.array([4, 0, 0, 0])},
        {"values": np.array([0.0, np.nan, 2.0, 0.25])},
        {"thresholds": np.array([np.nan, 0.0, 0.0, 0.0])},
        {"baseline": np.array([np.nan])},
    ],
)
def test_nodes_that_lead_nowhere_are_refused(broken):
    with pytest.raises(ValueError, match="boosted trees: a node of the 4 leads nowhere"):
        replace(STUMPS, **broken).check(2)
