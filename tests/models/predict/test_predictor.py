"""Prediction through a tiny bundle, against scores computed from its parts."""

from __future__ import annotations

import math
from dataclasses import replace

import faiss
import numpy as np
import pytest
import torch

import longtail.models.parts.dense_storage
from longtail.models.bundle.bundle import Bundle
from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.tokens import tokenize_texts
from longtail.models.errors import ConfigError, DataError, LongtailError, RequestError
from longtail.models.names import Precision
from longtail.models.options import MAX_TAIL_DIAL, RankingOptions
from longtail.models.parts.dense_parts import DenseParts
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.dense_scorers import make_dense
from longtail.models.predict.placement import Placement
from longtail.models.predict.predictor import Predictor
from longtail.models.results import Prediction

TEXTS = ["river law", "the steel trade and the milk tax", "fish " * 40, "nothing known here"]
UNTRAINED = {2, 5}
MAX_TOKENS = 8
NUM_LABELS = 7
NUM_WORDS = 10
SCORERS = ["retrieval", "classifier", "linear", "sparse"]


@pytest.fixture(scope="module")
def predictor(parts: ModelParts) -> Predictor:
    return Predictor(parts, device="cpu")


def dense_scores(parts: ModelParts, scorer: str) -> np.ndarray:
    """The oracle: scores of all labels in float64, -inf for those without a row."""
    scores = np.full((len(TEXTS), NUM_LABELS), -np.inf)
    if scorer == "sparse":
        products = parts.sparse.tfidf.transform(TEXTS).toarray() @ parts.sparse.weights.toarray().T
        scores[:, parts.sparse.labels] = products + parts.sparse.bias
        return scores
    dense = parts.dense
    assert dense is not None and dense.classifier is not None
    tokens = tokenize_texts(dense.tokenizer, TEXTS, MAX_TOKENS)
    vectors = encode_all(dense.encoder, tokens, "document", pad_id=0).astype(np.float64)
    if scorer == "retrieval":
        scale, shift = dense.encoder.log_scale.exp().item(), dense.encoder.score_bias.item()
        return scale * vectors @ dense.label_vectors.T + shift
    assert dense.linear is not None
    model = dense.classifier if scorer == "classifier" else dense.linear.model
    scores[:, model.labels] = vectors @ model.weight.T + model.bias
    if scorer == "linear":
        scores += log_p_n(dense, vectors)
    return scores


def log_p_n(dense: DenseParts, vectors: np.ndarray) -> np.ndarray:
    """Log p_n of all labels."""
    assert dense.linear is not None and dense.linear.tree is not None
    tree = dense.linear.tree
    return tree.log_probs(tree.project(torch.from_numpy(vectors).float())).numpy()


def log_priors(parts: ModelParts) -> np.ndarray:
    counts = np.array([label.training_count for label in parts.catalogue])
    return np.log((counts + 0.5) / (counts.sum() + 0.5 * NUM_LABELS))


@pytest.mark.parametrize("scorer", SCORERS)
def test_scores_are_those_of_the_parts_best_first(
    predictor: Predictor, parts: ModelParts, scorer: str
) -> None:
    wanted = dense_scores(parts, scorer)
    for row, prediction in enumerate(predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer)):
        order = [int(i) for i in np.argsort(-wanted[row], kind="stable")]
        order = [index for index in order if wanted[row, index] > -np.inf]
        assert [label.index for label in prediction.labels] == order
        scores = [label.score for label in prediction.labels]
        np.testing.assert_allclose(scores, wanted[row, order], atol=1e-5)


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_loaded_bundle_predicts_what_its_parts_predict(
    predictor: Predictor, bundle: Bundle, scorer: str
) -> None:
    loaded = Predictor.of_bundle(bundle, device="cpu")
    assert loaded.predict(TEXTS, scorer=scorer) == predictor.predict(TEXTS, scorer=scorer)


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_text_alone_gets_the_labels_that_it_gets_in_a_batch(
    predictor: Predictor, scorer: str
) -> None:
    together = predictor.predict(TEXTS, k=3, scorer=scorer)
    for text, wanted in zip(TEXTS, together, strict=True):
        (alone,) = predictor.predict([text], k=3, scorer=scorer)
        assert [label.index for label in alone.labels] == [label.index for label in wanted.labels]
        scores = [label.score for label in wanted.labels]
        np.testing.assert_allclose([label.score for label in alone.labels], scores, atol=1e-5)


def labels_of(predictions: list[Prediction]) -> set[int]:
    return {label.index for prediction in predictions for label in prediction.labels}


def test_only_retrieval_gives_labels_without_training_documents(predictor: Predictor) -> None:
    assert labels_of(predictor.predict(TEXTS, k=NUM_LABELS)) == set(range(NUM_LABELS))
    for scorer in ("classifier", "linear", "sparse"):
        found = labels_of(predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer))
        assert found == set(range(NUM_LABELS)) - UNTRAINED


def test_labels_carry_their_id_and_name(predictor: Predictor) -> None:
    for label in predictor.predict(["river"], k=3)[0].labels:
        assert label.id == f"L{label.index}"
        assert label.name == predictor.catalogue[label.index].name


def test_dense_scores_are_logits_and_sparse_ones_are_not(predictor: Predictor) -> None:
    for scorer in ("retrieval", "classifier"):
        for label in predictor.predict(["river"], scorer=scorer)[0].labels:
            assert label.probability == pytest.approx(1 / (1 + math.exp(-label.score)))
    for scorer in ("linear", "sparse"):
        (other,) = predictor.predict(["river"], scorer=scorer)
        assert {label.probability for label in other.labels} == {None}


# ---- correction and tail dial ----


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
def test_the_tail_dial_takes_the_log_prior_off_every_score(
    predictor: Predictor, parts: ModelParts, scorer: str, dial: float
) -> None:
    wanted = dense_scores(parts, scorer) - dial * log_priors(parts)
    assert_ranked_as(predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer, tail_dial=dial), wanted)


@pytest.mark.parametrize("dial", [0.0, 0.7])
def test_without_its_correction_the_linear_scorer_is_an_inner_product(
    predictor: Predictor, parts: ModelParts, dense: DenseParts, dial: float
) -> None:
    tokens = tokenize_texts(dense.tokenizer, TEXTS, MAX_TOKENS)
    vectors = encode_all(dense.encoder, tokens, "document", pad_id=0)
    wanted = dense_scores(parts, "linear") - log_p_n(dense, vectors) - dial * log_priors(parts)
    options = {"k": NUM_LABELS, "scorer": "linear", "tail_dial": dial}
    found = predictor.predict(TEXTS, correction="none", **options)
    assert_ranked_as(found, wanted)
    assert {each.correction for each in found} == {"none"}
    assert found != predictor.predict(TEXTS, correction="tree", **options)


def with_prior(parts: ModelParts) -> ModelParts:
    assert parts.dense is not None and parts.dense.linear is not None
    linear = replace(parts.dense.linear, correction="prior", tree=None)
    return replace(parts, dense=replace(parts.dense, linear=linear))


@pytest.mark.parametrize("dial", [0.0, 0.7])
def test_a_prior_corrects_by_the_log_of_label_frequencies(parts: ModelParts, dial: float) -> None:
    predictor = Predictor(with_prior(parts), device="cpu")
    (dense,) = [x for x in (parts.dense,) if x is not None]
    tokens = tokenize_texts(dense.tokenizer, TEXTS, MAX_TOKENS)
    vectors = encode_all(dense.encoder, tokens, "document", pad_id=0)
    plain = dense_scores(parts, "linear") - log_p_n(dense, vectors) - dial * log_priors(parts)
    counts = np.array([max(label.training_count, 1) for label in parts.catalogue])
    options = {"k": NUM_LABELS, "scorer": "linear", "tail_dial": dial}
    found = predictor.predict(TEXTS, **options)
    assert_ranked_as(found, plain + np.log(counts / (counts.sum() - len(UNTRAINED))))
    assert {each.correction for each in found} == {"prior"}
    assert_ranked_as(predictor.predict(TEXTS, correction="none", **options), plain)


def test_a_scorer_has_its_own_correction_where_none_is_asked_for(predictor: Predictor) -> None:
    own = {scorer: predictor.correction_of(scorer) for scorer in SCORERS}
    assert own == {"retrieval": "none", "classifier": "none", "linear": "tree", "sparse": "none"}
    for scorer, correction in own.items():
        (found,) = predictor.predict(["river"], scorer=scorer)
        assert (found.correction, found.exact) == (correction, True)
        assert [found] == predictor.predict(["river"], scorer=scorer, correction=correction)


@pytest.mark.parametrize(
    ("scorer", "correction", "wanted"),
    [
        ("retrieval", "tree", "expected 'none'$"),
        ("classifier", "tree", "expected 'none'$"),
        ("sparse", "tree", "expected 'none'$"),
        ("linear", "prior", "expected 'none' or 'tree'$"),
        ("linear", "Tree", "expected 'none' or 'tree'$"),
        ("linear", "", "expected 'none' or 'tree'$"),
    ],
)
def test_a_correction_that_the_scorer_was_not_trained_with_is_refused(
    predictor: Predictor, scorer: str, correction: str, wanted: str
) -> None:
    with pytest.raises(
        RequestError, match=f"correction is '{correction}' and .*'{scorer}'.* {wanted}"
    ):
        predictor.predict(TEXTS, scorer=scorer, correction=correction)


@pytest.mark.parametrize("dial", [-0.1, math.inf, math.nan, 1001.0])
@pytest.mark.parametrize("scorer", ["retrieval", "sparse"])
def test_a_tail_dial_out_of_range_is_refused(
    predictor: Predictor, scorer: str, dial: float
) -> None:
    with pytest.raises(
        RequestError, match=f"tail_dial is {dial}; expected a number from 0 to 1000"
    ):
        predictor.predict(TEXTS, scorer=scorer, tail_dial=dial)


@pytest.mark.parametrize("scorer", SCORERS)
def test_with_a_tail_dial_labels_have_no_probability(predictor: Predictor, scorer: str) -> None:
    (found,) = predictor.predict(["river"], scorer=scorer, tail_dial=0.1)
    assert {label.probability for label in found.labels} == {None}


def test_a_threshold_with_a_tail_dial_is_refused(predictor: Predictor) -> None:
    with pytest.raises(RequestError, match=r"threshold is 0.5 with a tail dial.*leave out one"):
        predictor.predict(TEXTS, threshold=0.5, tail_dial=0.1)


def test_log_priors_are_those_of_shares_with_half_a_pair_more(parts: ModelParts) -> None:
    np.testing.assert_allclose(parts.catalogue.log_priors, log_priors(parts), rtol=1e-6)
    assert parts.catalogue.log_priors.dtype == np.float32


def test_the_default_scorer_is_the_bundles(bundle: Bundle, parts: ModelParts) -> None:
    assert Predictor.of_bundle(bundle, device="cpu").default_scorer == "retrieval"
    other = Predictor(parts, default_scorer="sparse", device="cpu")
    assert other.predict(TEXTS) == other.predict(TEXTS, scorer="sparse")


@pytest.mark.parametrize("scorer", ["retrieval", "classifier"])
def test_a_threshold_leaves_out_less_probable_labels(predictor: Predictor, scorer: str) -> None:
    everything = predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer)
    found = predictor.predict(TEXTS, k=NUM_LABELS, scorer=scorer, threshold=0.5)
    for some, whole in zip(found, everything, strict=True):
        assert some.labels == tuple(x for x in whole.labels if (x.probability or 0) >= 0.5)
    assert 0 < len(labels_of(found)) < len(labels_of(everything))


def test_the_extreme_thresholds_keep_all_or_none(predictor: Predictor) -> None:
    everything = predictor.predict(TEXTS, k=4)
    assert predictor.predict(TEXTS, k=4, threshold=0.0) == everything
    assert all(not x.labels for x in predictor.predict(TEXTS, k=4, threshold=1.0))


def test_a_label_at_the_threshold_stays(predictor: Predictor) -> None:
    second = predictor.predict(["river"], k=2)[0].labels[1]
    assert second.probability is not None
    found = predictor.predict(["river"], k=5, threshold=second.probability)[0]
    assert found.labels[-1] == second and len(found.labels) == 2


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_threshold_that_is_no_probability_is_refused(
    predictor: Predictor, threshold: float
) -> None:
    with pytest.raises(RequestError, match=r"threshold is .*; expected a probability from 0 to 1"):
        predictor.predict(TEXTS, threshold=threshold)


def test_a_threshold_is_refused_where_there_are_no_probabilities(predictor: Predictor) -> None:
    with pytest.raises(RequestError, match=r"'sparse' gives no probabilities .* retrieval, class"):
        predictor.predict(TEXTS, scorer="sparse", threshold=0.5)


@pytest.mark.parametrize("text", ["", " ", "\n\t\u3000"])
def test_a_blank_text_is_refused_by_its_number(predictor: Predictor, text: str) -> None:
    with pytest.raises(RequestError, match="text 1 is blank; give it some words, or leave it out"):
        predictor.predict(["river", text])


@pytest.mark.parametrize("scorer", SCORERS)
def test_half_a_surrogate_pair_is_refused_by_its_number(predictor: Predictor, scorer: str) -> None:
    with pytest.raises(RequestError, match="text 1 holds half of a surrogate pair"):
        predictor.predict(["river", "law \ud800"], scorer=scorer)


@pytest.mark.parametrize("k", [0, -1, 8])
def test_k_out_of_range_is_refused(predictor: Predictor, k: int) -> None:
    expected = "1 to 7, the number of labels" if k > 0 else "at least 1, at most the number"
    with pytest.raises(RequestError, match=f"k is {k}; expected {expected}"):
        predictor.predict(TEXTS, k=k)


@pytest.mark.parametrize("scorer", ["", "svm", "Retrieval"])
def test_an_unknown_scorer_is_refused(predictor: Predictor, scorer: str) -> None:
    with pytest.raises(
        RequestError, match=f"'{scorer}' is not in .* it has retrieval, classifier, linear, sparse"
    ):
        predictor.predict(TEXTS, scorer=scorer)


def test_no_texts_have_no_predictions(predictor: Predictor) -> None:
    assert predictor.predict([]) == []


@pytest.mark.parametrize(("num_words", "is_truncated"), [(1, False), (6, False), (7, True)])
def test_a_text_of_more_tokens_than_the_encoder_reads_is_said_to_be_cut(
    predictor: Predictor, num_words: int, is_truncated: bool
) -> None:
    (found,) = predictor.predict(["fish " * num_words])
    assert found.num_text_tokens == num_words + 2  # [CLS] and [SEP]
    assert found.num_tokens == min(num_words + 2, MAX_TOKENS)
    assert found.truncated is is_truncated


def test_the_sparse_model_reads_all_of_a_text(predictor: Predictor) -> None:
    (found,) = predictor.predict(["fish " * 40 + "law"], scorer="sparse")
    assert (found.num_tokens, found.truncated) == (41, False)
    assert found.labels != predictor.predict(["fish " * 40], scorer="sparse")[0].labels


def test_a_text_without_known_tokens_gets_the_labels_biases(
    predictor: Predictor, parts: ModelParts
) -> None:
    (found,) = predictor.predict(["zzz"], k=1, scorer="sparse")
    assert found.labels[0].score == parts.sparse.bias.max()


def test_one_batch_of_texts_is_encoded_once_for_all_scorers(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    batch = predictor.read(TEXTS, done.append)
    rankings = [predictor.rank(batch, RankingOptions(3, scorer)) for scorer in SCORERS]
    assert sum(done) == len(TEXTS)
    assert {ranking.labels.shape for ranking in rankings} == {(4, 3)}


def test_a_model_without_classifier_has_the_other_scorers(
    parts: ModelParts, dense: DenseParts
) -> None:
    without = replace(dense, classifier=None, linear=None)
    predictor = Predictor(replace(parts, dense=without), device="cpu")
    assert predictor.scorers == ("retrieval", "sparse")
    for scorer in ("classifier", "linear"):
        with pytest.raises(RequestError, match=f"'{scorer}' is not in this bundle"):
            predictor.predict(TEXTS, scorer=scorer)


# ---- the sparse model alone ----


@pytest.fixture(scope="module")
def sparse_predictor(sparse_parts: ModelParts) -> Predictor:
    return Predictor(sparse_parts, device="cpu")


def test_the_sparse_model_alone_predicts_what_it_predicts_in_company(
    predictor: Predictor, sparse_predictor: Predictor
) -> None:
    assert (sparse_predictor.scorers, sparse_predictor.default_scorer) == (("sparse",), "sparse")
    assert sparse_predictor.predict(TEXTS, k=4) == predictor.predict(TEXTS, k=4, scorer="sparse")


def test_a_bundle_of_the_sparse_model_alone_predicts_what_it_was_written_from(
    sparse_bundle: Bundle, sparse_predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DualEncoder", "load_transformer", "load_tokenizer"):
        monkeypatch.delattr(longtail.models.parts.dense_storage, name)
    loaded = Predictor.of_bundle(sparse_bundle, device="cpu")
    assert loaded.predict(TEXTS) == sparse_predictor.predict(TEXTS)


def test_without_an_encoder_progress_is_told_by_the_features(sparse_predictor: Predictor) -> None:
    done: list[int] = []
    batch = sparse_predictor.read(TEXTS, done.append)
    for _ in range(2):
        sparse_predictor.rank(batch, RankingOptions(3))
    assert done == [len(TEXTS)]


@pytest.mark.parametrize("scorer", ["retrieval", "classifier"])
def test_a_dense_scorer_of_a_sparse_model_is_refused(
    sparse_predictor: Predictor, scorer: str
) -> None:
    with pytest.raises(RequestError, match=f"'{scorer}' is not in this bundle; it has sparse$"):
        sparse_predictor.predict(TEXTS, scorer=scorer)


def test_a_sparse_model_sends_no_one_with_a_threshold_to_scorers_that_it_lacks(
    sparse_predictor: Predictor,
) -> None:
    with pytest.raises(RequestError, match=r"with threshold 0.5; leave the threshold out$"):
        sparse_predictor.predict(TEXTS, threshold=0.5)


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_gpu_that_is_not_there_is_refused(
    parts: ModelParts, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 0)
    with pytest.raises(ConfigError, match=f"device (is )?'{device}'"):
        Predictor(parts, device=device)


def test_the_number_of_threads_is_set_for_the_whole_process(bundle: Bundle) -> None:
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    Predictor.of_bundle(bundle, device="cpu", num_threads=1)
    assert (torch.get_num_threads(), faiss.omp_get_max_threads()) == (1, 1)
    torch.set_num_threads(before[0])
    faiss.omp_set_num_threads(before[1])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_device_and_precision_are_told(bundle: Bundle, precision: Precision) -> None:
    predictor = Predictor.of_bundle(bundle, device="cpu", precision=precision)
    assert (predictor.device, predictor.encoder_precision) == ("cpu", precision)


def test_a_model_without_an_encoder_has_no_precision(sparse_predictor: Predictor) -> None:
    assert sparse_predictor.encoder_precision is None


@pytest.mark.parametrize("scorer", SCORERS[:3])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_text_vectors_that_are_not_finite_are_refused(predictor, scorer, bad) -> None:
    """They had labels 0, 1, 2, ..., with scores that are no numbers."""
    batch = predictor.read(TEXTS)
    vectors = batch.vectors.copy()
    vectors[1, 3] = bad
    batch.__dict__["vectors"] = vectors
    with pytest.raises(
        DataError, match=r"1 \(the first in row 1\) of 4 text vectors are not finite"
    ):
        predictor.predict_batch(batch, RankingOptions(scorer=scorer, correction="none", k=3))


def test_label_vectors_that_are_not_finite_are_refused(parts: ModelParts) -> None:
    """A label of such a row was never answered, in an answer that was called exact."""
    assert parts.dense is not None
    vectors = parts.dense.label_vectors.copy()
    vectors[4, 2] = math.nan
    broken = replace(parts, dense=replace(parts.dense, label_vectors=vectors))
    with pytest.raises(DataError, match=r"1 \(the first in row 4\) of 7 label vectors"):
        Predictor(broken, device="cpu")


def test_scores_that_are_not_finite_are_refused(parts: ModelParts) -> None:
    sparse = replace(parts.sparse, bias=np.full_like(parts.sparse.bias, np.inf))
    broken = Predictor(replace(parts, sparse=sparse), device="cpu")
    with pytest.raises(LongtailError, match=r"scorer 'sparse' gave label 'L\d' the score inf; the"):
        broken.predict(TEXTS, scorer="sparse", k=2)


def test_the_label_tree_stays_on_the_cpu(parts: ModelParts) -> None:
    """Also where the encoder is on a GPU: no GPU was measured to walk through it faster."""
    placement = Placement(device="meta", index_device="cpu", num_threads=1)
    assert parts.dense is not None
    scorers = make_dense(parts.dense, parts.catalogue, placement)
    assert scorers["linear"]._tree.uses_kernels


def test_an_encoder_that_the_gpu_has_no_room_for_is_told(dense: DenseParts, monkeypatch) -> None:
    def fail(*given: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore.")

    monkeypatch.setattr(type(dense.encoder), "to", fail)
    with pytest.raises(ConfigError, match=r"too small for the encoder \(CUDA .* 2\.00 GiB\.\); "):
        Placement("cpu", "cpu", 1).place(dense, "float32")
