"""Explanations: their parts add up, and say what the parts of the model say."""

from dataclasses import replace

import numpy as np
import pytest

from longtail.models.explain import NUM_NEAREST, VectorNeighbours, spans_of
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.models.scorers.calibration import IDENTITY
from longtail.models.scorers.tfidf import TfidfModel

TEXTS = ["river law", "the steel trade and the milk tax, steel", "fish " * 40, "nothing known here"]
NUM_LABELS = 7
KNOWING_ALL = ("retrieval", "hybrid", "ensemble")
"""Scorers that know the labels without training documents too."""


@pytest.fixture(scope="module")
def predictor(parts, constant_blend):
    """A model with every scorer, blends too."""
    calibrations = {"retrieval": IDENTITY, "linear": IDENTITY, "sparse": IDENTITY}
    blends = {"ensemble": constant_blend({"retrieval": 0.25, "linear": 0.25, "sparse": 0.5})}
    blended = replace(parts, has_hybrid=True, calibrations=calibrations, blends=blends)
    return Predictor(blended, device="cpu")


def score_of(predictor: Predictor, row: int, label: int, scorer: str, **options: object) -> float:
    """The score that a prediction of all labels gives to one."""
    (found,) = predictor.predict([TEXTS[row]], k=NUM_LABELS, scorer=scorer, **options)
    return next(x.score for x in found.labels if x.index == label)


@pytest.mark.parametrize("tail_dial", [0.0, 1.5])
@pytest.mark.parametrize("correction", [None, "none"])
def test_the_parts_of_every_scorer_add_up_to_its_score(predictor, tail_dial, correction):
    asked = {"correction": correction, "tail_dial": tail_dial}
    wanted = {
        (scorer, chosen): [
            {label.index: label.score for label in prediction.labels}
            for prediction in predictor.predict(
                TEXTS, k=NUM_LABELS, scorer=scorer, correction=chosen, tail_dial=tail_dial
            )
        ]
        for scorer in predictor.scorers.names
        for chosen in {correction, None}
    }
    for scorer in predictor.scorers.names:
        found = predictor.predict(TEXTS, k=3, scorer=scorer, explain=True, **asked)
        for row, prediction in enumerate(found):
            for label in prediction.labels:
                why = label.explanation
                own = next(parts for parts in why.scores if parts.scorer == scorer)
                assert own.score == label.score
                for parts in why.scores:
                    chosen = correction if parts.scorer == scorer else None
                    score = wanted[parts.scorer, chosen][row][label.index]
                    assert parts.score == pytest.approx(score, abs=1e-5)
                    total = parts.base + parts.correction + parts.tail_dial
                    assert total == pytest.approx(score, abs=1e-5)


def test_each_part_is_what_it_says(predictor):
    options = {"k": NUM_LABELS, "scorer": "linear", "tail_dial": 2.0, "explain": True}
    (found,) = predictor.predict(TEXTS[:1], **options)
    for label in found.labels:
        why = label.explanation
        parts = {each.scorer: each for each in why.scores}
        base = score_of(predictor, 0, label.index, "linear", correction="none")
        tree = score_of(predictor, 0, label.index, "linear") - base
        assert parts["linear"].base == pytest.approx(base, abs=1e-5)
        assert parts["linear"].correction == pytest.approx(tree, abs=1e-5)
        dial = -2.0 * float(predictor.catalogue.log_priors[label.index])
        assert {round(each.tail_dial - dial, 4) for each in why.scores} == {0}
        assert parts["retrieval"].correction == parts["sparse"].correction == 0


def model_of(*tokens: str) -> TfidfModel:
    return TfidfModel(tokens, np.ones(len(tokens), dtype=np.float32), ["en", "de"], 2)


@pytest.mark.parametrize(
    ("text", "wanted", "found"),
    [
        ("Olive OIL, olive.", {"olive"}, {"olive": ["Olive", "olive"]}),
        ("olive oil olive oil", {"olive oil"}, {"olive oil": ["olive oil", "olive oil"]}),
        ("olive -- oils!", {"olive oil", "oil"}, {"olive oil": ["olive -- oils"], "oil": ["oils"]}),
        ("nothing", {"olive"}, {}),
        ("Das Glas, des Glases", {"gläser"}, {"gläser": ["Glas", "Glases"]}),
        ("", {"olive"}, {}),
        # A capital dotted I turns into two characters.
        ("\u0130\u0130 olive \u0130 OIL", {"oil", "olive"}, {"olive": ["olive"], "oil": ["OIL"]}),
        ("\U0001f98e olive", {"olive"}, {"olive": ["olive"]}),
        ("\u039f\u03a3 \u03a3\u039f\u03a6\u039f\u03a3", {"\u03c3\u03bf\u03c6\u03bf\u03c2"},
         {"\u03c3\u03bf\u03c6\u03bf\u03c2": ["\u03a3\u039f\u03a6\u039f\u03a3"]}),
    ],
)  # fmt: skip
def test_spans_are_the_places_of_tokens_in_the_text(text, wanted, found):
    spans = spans_of(text, model_of("olive", "oil", "olive oil", "σοφος", "gläser"), wanted)
    assert {t: [text[start:end] for start, end in each] for t, each in spans.items()} == found


def brute_force(cosines: np.ndarray, label: int, k: int) -> list[int]:
    others = [i for i in range(len(cosines)) if i != label and np.isfinite(cosines[i])]
    return sorted(others, key=lambda i: (-cosines[i], i))[:k]


@pytest.mark.parametrize("k", [3, 30, 40])
def test_nearest_labels_are_those_of_the_largest_cosines(k, monkeypatch):
    monkeypatch.setattr("longtail.models.explain.MAX_PRODUCTS", 64)
    rng = np.random.default_rng(0)
    vectors = rng.integers(-1, 2, (30, 2)).astype(np.float32)  # many are equal, some are zero
    lengths = np.linalg.norm(vectors, axis=1)
    assert (lengths == 0).any()
    divisor = np.where(lengths > 0, lengths, 1)
    labels = np.array([4, 0, 29, 4], dtype=np.int64)
    neighbours = VectorNeighbours(vectors, np.ones(len(vectors), dtype=np.bool_))
    found = neighbours.nearest_to(labels, k)
    for row, label in enumerate(labels):
        cosines = (vectors @ vectors[label]) / (divisor * divisor[label])
        wanted = brute_force(cosines, label, k)
        kept = found.labels[row][found.labels[row] != NO_LABEL]
        assert kept.tolist() == wanted
        np.testing.assert_allclose(found.scores[row][: len(wanted)], cosines[wanted], atol=1e-6)


def test_a_label_is_described_by_all_that_is_known_of_it(predictor, parts):
    found = predictor.describe(1)
    assert (found.index, found.label) == (1, parts.catalogue[1])
    assert found.scorers == predictor.scorers.names
    assert predictor.describe(2).scorers == KNOWING_ALL
    assert len(found.nearest) == NUM_NEAREST
    assert "L1" not in {near.id for near in found.nearest}
    names = {label.id: label.name for label in parts.catalogue}
    assert all(near.name == names[near.id] for near in found.nearest)
    similarities = [near.similarity for near in found.nearest]
    assert similarities == sorted(similarities, reverse=True)
    weights = [keyword.weight for keyword in found.keywords]
    assert weights == sorted(weights, reverse=True)
    assert min(weights) > 0
