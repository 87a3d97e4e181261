"""A new scorer is one object: a toy one that matches the names of labels in a text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from longtail.models.errors import RequestError
from longtail.models.kinds.placement import Placement
from longtail.models.kinds.registry import KINDS
from longtail.models.kinds.scorer import Scorer, ScorerKind
from longtail.models.names import CorrectionName
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.threshold_algorithm import Sources
from longtail.models.ranking.top_k import NO_LABEL, Ranking, top_of_scores
from longtail.models.results import Evidence, FoundName, TokenContribution, TokenExplanation

TEXTS = ["a river policy", "the law and the river", "nothing"]
NUM_LABELS = 7
TOY = "toy"
NAMED = FoundName("toy", is_own_name=True, manner="phrase", count=1, in_title=False)
OF_TOY = TokenExplanation((TokenContribution("river", 1.0, ((2, 7),)),), rest=0.0, bias=0.0)


class MatrixSource:
    """Scores of all labels."""

    def __init__(self, scores: np.ndarray) -> None:
        self._scores = scores
        self.num_queries, self.num_labels = scores.shape

    def top(self, rows: np.ndarray, m: int) -> Ranking:
        return top_of_scores(self._scores[rows], m)

    def score(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        scores = np.take_along_axis(self._scores[rows], np.maximum(labels, 0), axis=1)
        return np.where(labels == NO_LABEL, np.float32(-np.inf), scores)


class ToyScorer(Scorer):
    """Counts the words of a label's name that a text has."""

    def __init__(self, parts: ModelParts) -> None:
        self._names = [label.name.split() for label in parts.catalogue]
        self._log_priors = parts.catalogue.log_priors

    @property
    def labels(self) -> np.ndarray:
        return np.arange(len(self._names), dtype=np.int64)

    def sources(self, batch: TextBatch, correction: CorrectionName, tail_dial: float) -> Sources:
        assert correction == "none"
        counts = [[len({*text.split()} & {*name}) for name in self._names] for text in batch.texts]
        scores = np.array(counts, dtype=np.float32) - np.float32(tail_dial) * self._log_priors
        return [MatrixSource(scores.astype(np.float32))]

    def contributions(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, TokenExplanation]:
        if batch.texts[text] == "nothing":
            return {}
        return dict.fromkeys(labels, OF_TOY)

    def evidence(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, Evidence]:
        return {label: Evidence(name=NAMED) for label in labels}


class ToyKind(ScorerKind):
    """Has no model of its own: the labels are enough."""

    name = TOY

    def make(self, model: bool, parts: ModelParts, placement: Placement) -> Scorer:
        del model, placement
        return ToyScorer(parts)


@pytest.fixture(params=[True, False], ids=["with an encoder", "without"])
def predictor(parts, request, monkeypatch):
    monkeypatch.setitem(KINDS, TOY, ToyKind())
    dense = parts.dense if request.param else None
    return Predictor(ModelParts(parts.catalogue, parts.sparse, dense, {TOY: True}), device="cpu")


def test_a_new_scorer_ranks_predicts_and_is_explained(predictor):
    assert predictor.scorers.names[-1] == TOY
    options = RankingOptions(NUM_LABELS, TOY, explain=True)
    batch = predictor.read(TEXTS)
    ranking = predictor.rank(batch, options)
    assert ranking.labels[0, 0] == 0 and ranking.scores[0].tolist() == [2, 1, 1, 1, 1, 1, 1]
    np.testing.assert_array_equal(predictor.score(batch, ranking.labels, options), ranking.scores)
    first, _, last = predictor.predict_batch(batch, options)
    assert [label.index for label in first.labels] == ranking.labels[0].tolist()
    assert {label.probability for label in first.labels} == {None}
    tokens = {label.index: label.explanation.tokens for label in first.labels}
    # The sparse model comes first, and does not know two of the labels.
    assert {label for label, of_label in tokens.items() if of_label == OF_TOY} == {2, 5}
    scores = {parts.scorer: parts.score for parts in first.labels[0].explanation.scores}
    assert scores[TOY] == 2
    assert (last.num_tokens, last.num_text_tokens, last.truncated) == (1, 1, False)
    assert TOY in predictor.describe(2).scorers


def test_a_new_scorer_has_a_tail_dial_and_no_correction(predictor):
    options = RankingOptions(NUM_LABELS, TOY, tail_dial=100.0)
    rarest = predictor.rank(predictor.read(["nothing"]), options).labels[0].tolist()
    counts = predictor.catalogue.training_counts
    assert counts[rarest].tolist() == sorted(counts.tolist())
    with pytest.raises(RequestError, match=r"expected 'none'$"):
        predictor.rank(predictor.read(TEXTS), replace(options, correction="tree"))
    with pytest.raises(RequestError, match="gives no probabilities"):
        predictor.predict(TEXTS, scorer=TOY, threshold=0.5)
