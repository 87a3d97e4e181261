"""Prediction through a tiny bundle, against scores computed from its parts."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.errors import ConfigError, DataError, LongtailError, RequestError
from longtail.models.labels.filters import LabelFilter
from longtail.models.options import MAX_TAIL_DIAL, RankingOptions
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import Ranking
from longtail.models.results import Prediction
from tests.closeness import assert_same_answers

TEXTS = ["river law", "the steel trade and the milk tax", "fish " * 40, "nothing known here"]
UNTRAINED = {2, 5}
MAX_TOKENS = 8
NUM_LABELS = 7
SCORERS = ["retrieval", "classifier", "linear", "sparse"]


@pytest.fixture(scope="module")
def predictor(parts):
    return Predictor(parts, device="cpu")


def dense_scores(parts: ModelParts, scorer: str) -> np.ndarray:
    """The oracle: scores of all labels in float64, -inf for those without a row."""
    scores = np.full((len(TEXTS), NUM_LABELS), -np.inf)
    if scorer == "sparse":
        products = parts.sparse.tfidf.transform(TEXTS).toarray() @ parts.sparse.weights.toarray().T
        scores[:, parts.sparse.labels] = products + parts.sparse.bias
        return scores
    dense = parts.dense
    assert dense is not None
    tokens = tokenize_texts(dense.tokenizer, TEXTS, MAX_TOKENS)
    vectors = encode_all(dense.encoder, tokens, "document", pad_id=0).astype(np.float64)
    if scorer == "retrieval":
        scale, shift = dense.encoder.log_scale.exp().item(), dense.encoder.score_bias.item()
        return scale * vectors @ dense.label_vectors.T + shift
    model = parts.models[scorer].model
    scores[:, model.labels] = vectors @ model.weight.T + model.bias
    if scorer == "linear":
        scores += log_p_n(parts, vectors)
    return scores


def log_p_n(parts: ModelParts, vectors: np.ndarray) -> np.ndarray:
    """Log p_n of all labels."""
    tree = parts.models["linear"].tree
    return tree.log_probs(tree.project(torch.from_numpy(vectors).float())).numpy()


def log_priors(parts: ModelParts) -> np.ndarray:
    counts = np.array([label.training_count for label in parts.catalogue])
    return np.log((counts + 0.5) / (counts.sum() + 0.5 * NUM_LABELS))


@pytest.mark.parametrize("scorer", SCORERS)
def test_scores_are_those_of_the_parts_best_first(predictor, parts, scorer):
    wanted = dense_scores(parts, scorer)
    for row, prediction in enumerate(predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer)):
        order = [int(i) for i in np.argsort(-wanted[row], kind="stable")]
        order = [index for index in order if wanted[row, index] > -np.inf]
        assert [label.index for label in prediction.labels] == order
        scores = [label.score for label in prediction.labels]
        np.testing.assert_allclose(scores, wanted[row, order], atol=1e-5)


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_loaded_bundle_predicts_what_its_parts_predict(predictor, bundle, scorer):
    loaded = Predictor.of_bundle(bundle, device="cpu")
    assert_same_answers(*(each.predict(TEXTS, scorer=scorer) for each in (loaded, predictor)))


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_text_alone_gets_the_labels_that_it_gets_in_a_batch(predictor, scorer):
    together = predictor.predict(TEXTS, k=3, scorer=scorer)
    for text, wanted in zip(TEXTS, together, strict=True):
        (alone,) = predictor.predict([text], k=3, scorer=scorer)
        assert [label.index for label in alone.labels] == [label.index for label in wanted.labels]
        scores = [label.score for label in wanted.labels]
        np.testing.assert_allclose([label.score for label in alone.labels], scores, atol=1e-5)


def labels_of(predictions: list[Prediction]) -> set[int]:
    return {label.index for prediction in predictions for label in prediction.labels}


def test_only_retrieval_gives_labels_without_training_documents(predictor):
    assert labels_of(predictor.predict(TEXTS, k=NUM_LABELS)) == set(range(NUM_LABELS))
    for scorer in ("classifier", "linear", "sparse"):
        found = labels_of(predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer))
        assert found == set(range(NUM_LABELS)) - UNTRAINED


def test_dense_scores_are_logits_and_sparse_ones_are_not(predictor):
    for scorer in ("retrieval", "classifier"):
        for label in predictor.predict(["river"], scorer=scorer)[0].labels:
            assert label.probability == pytest.approx(1 / (1 + math.exp(-label.score)))
    for scorer in ("linear", "sparse"):
        (other,) = predictor.predict(["river"], scorer=scorer)
        assert {label.probability for label in other.labels} == {None}


def assert_ranked_as(found: list[Prediction], wanted: np.ndarray) -> None:
    """All labels come by falling score, ties by index; those without a score don't come."""
    for row, prediction in enumerate(found):
        order = [int(i) for i in np.argsort(-wanted[row], kind="stable") if wanted[row, i] > -1e9]
        assert [label.index for label in prediction.labels] == order
        scores = [label.score for label in prediction.labels]
        np.testing.assert_allclose(scores, wanted[row, order], rtol=1e-5, atol=1e-5)
        assert prediction.exact


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("dial", [0.0, 0.3, 1.0, 2.5, MAX_TAIL_DIAL])
def test_the_tail_dial_takes_the_log_prior_off_every_score(predictor, parts, scorer, dial):
    wanted = dense_scores(parts, scorer) - dial * log_priors(parts)
    assert_ranked_as(predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer, tail_dial=dial), wanted)


@pytest.mark.parametrize("dial", [0.0, 0.7])
def test_without_its_correction_the_linear_scorer_is_an_inner_product(
    predictor, parts, dense, dial
):
    tokens = tokenize_texts(dense.tokenizer, TEXTS, MAX_TOKENS)
    vectors = encode_all(dense.encoder, tokens, "document", pad_id=0)
    wanted = dense_scores(parts, "linear") - log_p_n(parts, vectors) - dial * log_priors(parts)
    options = {"k": NUM_LABELS, "scorer": "linear", "tail_dial": dial}
    found = predictor.predict(TEXTS, correction="none", **options)
    assert_ranked_as(found, wanted)
    assert {each.correction for each in found} == {"none"}
    assert found != predictor.predict(TEXTS, correction="tree", **options)


def with_prior(parts: ModelParts) -> ModelParts:
    linear = replace(parts.models["linear"], correction="prior", tree=None)
    return replace(parts, models={**parts.models, "linear": linear})


@pytest.mark.parametrize("dial", [0.0, 0.7])
def test_a_prior_corrects_by_the_log_of_label_frequencies(parts, dial):
    predictor = Predictor(with_prior(parts), device="cpu")
    (dense,) = [x for x in (parts.dense,) if x is not None]
    tokens = tokenize_texts(dense.tokenizer, TEXTS, MAX_TOKENS)
    vectors = encode_all(dense.encoder, tokens, "document", pad_id=0)
    plain = dense_scores(parts, "linear") - log_p_n(parts, vectors) - dial * log_priors(parts)
    counts = np.array([max(label.training_count, 1) for label in parts.catalogue])
    options = {"k": NUM_LABELS, "scorer": "linear", "tail_dial": dial}
    found = predictor.predict(TEXTS, **options)
    assert_ranked_as(found, plain + np.log(counts / (counts.sum() - len(UNTRAINED))))
    assert {each.correction for each in found} == {"prior"}
    assert_ranked_as(predictor.predict(TEXTS, correction="none", **options), plain)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": 0}, "k is 0"), ({"k": 8}, "1 to 7, the number of labels"),
        ({"scorer": "svm"}, "'svm' is not in"),
        ({"scorer": "sparse", "correction": "tree"}, "correction is 'tree'"),
        ({"tail_dial": -0.1}, "tail_dial is -0.1"), ({"tail_dial": math.inf}, "tail_dial is inf"),
        ({"threshold": 0.5, "tail_dial": 0.1}, "with a tail dial"), ({"threshold": 1.1}, "got 1.1"),
        ({"threshold": 0.5, "scorer": "sparse"}, "gives no probabilities"),
        ({"threshold": math.nan}, "got NaN"), ({"texts": ["river", "\n\u3000"]}, "text 1 is blank"),
        ({"texts": ["river", "law \ud800"]}, "text 1 holds half of a surrogate pair"),
    ],
)  # fmt: skip
def test_what_can_not_be_answered_is_refused(predictor, options, words):
    with pytest.raises(RequestError, match=re.escape(words)):
        predictor.predict(**({"texts": TEXTS} | options))


def test_the_default_scorer_is_the_bundles(bundle, parts):
    assert Predictor.of_bundle(bundle, device="cpu").scorers.default == "retrieval"
    other = Predictor(parts, default_scorer="sparse", device="cpu")
    assert other.predict(TEXTS) == other.predict(TEXTS, scorer="sparse")


@pytest.mark.parametrize("scorer", ["retrieval", "classifier"])
def test_a_threshold_leaves_out_less_probable_labels(predictor, scorer):
    everything = predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer)
    found = predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer, threshold=0.5)
    for some, whole in zip(found, everything, strict=True):
        assert some.labels == tuple(x for x in whole.labels if (x.probability or 0) >= 0.5)
    assert 0 < len(labels_of(found)) < len(labels_of(everything))


@pytest.mark.parametrize(("num_words", "is_truncated"), [(1, False), (6, False), (7, True)])
def test_a_text_of_more_tokens_than_the_encoder_reads_is_said_to_be_cut(
    predictor, num_words, is_truncated
):
    (found,) = predictor.predict(["fish " * num_words])
    assert found.num_text_tokens == num_words + 2  # [CLS] and [SEP]
    assert found.num_tokens == min(num_words + 2, MAX_TOKENS)
    assert found.truncated is is_truncated


def test_one_batch_of_texts_is_encoded_once_for_all_scorers(predictor, monkeypatch):
    done: list[int] = []
    batch = predictor.read(TEXTS, done.append)
    rankings = [predictor.rank(batch, RankingOptions(3, scorer)) for scorer in SCORERS]
    assert sum(done) == len(TEXTS)
    assert {ranking.labels.shape for ranking in rankings} == {(4, 3)}


@pytest.fixture(scope="module")
def sparse_predictor(sparse_parts):
    return Predictor(sparse_parts, device="cpu")


@pytest.mark.parametrize("most_kept", [0, 2 * NUM_LABELS, 2**24])
def test_shared_parts_of_a_batch_are_ranked_as_the_whole_and_keep_no_sums(
    predictor, monkeypatch, most_kept
):
    monkeypatch.setattr("longtail.models.parts.batches.MAX_KEPT", most_kept)
    filtered = RankingOptions(k=4, label_filter=LabelFilter(include=("L1", "L3", "L6")))
    queries = [
        replace(x, scorer=scorer) for x in (RankingOptions(k=7), filtered) for scorer in SCORERS
    ]
    expected = [predictor.rank(predictor.read(TEXTS), query) for query in queries]
    found: list[list[Ranking]] = [[] for _ in queries]
    parts = []
    for part in predictor.shared(predictor.read(TEXTS)):
        assert part.sums is not None
        for of_query, query in zip(found, queries, strict=True):
            of_query.append(predictor.rank(part, query))
        parts.append(part)
    assert [text for part in parts for text in part.texts] == TEXTS
    assert all(part.sums is None for part in parts)
    for of_query, wanted in zip(found, expected, strict=True):
        joined = Ranking.joined(of_query)
        np.testing.assert_array_equal(joined.labels, wanted.labels)
        np.testing.assert_array_equal(joined.scores, wanted.scores)


def test_the_sparse_model_alone_predicts_what_it_predicts_in_company(predictor, sparse_predictor):
    scorers = sparse_predictor.scorers
    assert (scorers.names, scorers.default) == (("sparse",), "sparse")
    assert sparse_predictor.predict(TEXTS, k=4) == predictor.predict(TEXTS, k=4, scorer="sparse")


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_gpu_that_is_not_there_is_refused(parts, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"device (is )?'{device}'"):
        Predictor(parts, device=device)


@pytest.mark.parametrize("scorer", SCORERS[:3])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_text_vectors_that_are_not_finite_are_refused(predictor, scorer, bad):
    """They had labels 0, 1, 2, ..., with scores that are no numbers."""
    batch = predictor.read(TEXTS)
    vectors = batch.vectors.copy()
    vectors[1, 3] = bad
    batch._kept["vectors"] = vectors
    with pytest.raises(
        DataError, match=r"1 \(the first in row 1\) of 4 text vectors are not finite"
    ):
        predictor.predict_batch(batch, RankingOptions(scorer=scorer, correction="none", k=3))


def test_label_vectors_that_are_not_finite_are_refused(parts):
    """A label of such a row was never answered, in an answer that was called exact."""
    assert parts.dense is not None
    vectors = parts.dense.label_vectors.copy()
    vectors[4, 2] = math.nan
    broken = replace(parts, dense=replace(parts.dense, label_vectors=vectors))
    with pytest.raises(DataError, match=r"1 \(the first in row 4\) of 7 label vectors"):
        Predictor(broken, device="cpu")


def test_scores_that_are_not_finite_are_refused(parts):
    sparse = replace(parts.sparse, bias=np.full_like(parts.sparse.bias, np.inf))
    broken = Predictor(replace(parts, sparse=sparse), device="cpu")
    with pytest.raises(LongtailError, match=r"scorer 'sparse' gave label 'L\d' the score inf; the"):
        broken.predict(TEXTS, scorer="sparse", k=2)


@pytest.mark.parametrize("index", ["torch", "faiss"])
@pytest.mark.parametrize("dial", [0.0, 1.0])
def test_the_code_for_gpus_answers_as_that_for_cpus(parts, predictor, as_on_gpu, index, dial):
    there = Predictor(parts, device="cpu", index=index)
    choices = there.scorers.index_choices
    assert {choice.index for choice in choices.values()} == {index}
    assert "sparse" not in choices and "retrieval" in choices
    for scorer in predictor.scorers.names:
        options: dict[str, Any] = {"k": 4, "scorer": scorer, "tail_dial": dial}
        assert there.predict(TEXTS, **options) == predictor.predict(TEXTS, **options)
