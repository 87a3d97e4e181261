"""Early stopping: when it measures, what it measures, what it keeps, and when it ends a stage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

from longtail.models.encoders.dual_encoder import encode_all
from longtail.models.encoders.tokens import tokenize_texts
from longtail.training.configuration.sections import EarlyStoppingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.evaluation.by_frequency import TAIL_BIN, measure
from longtail.training.evaluation.metrics import join_truth
from longtail.training.learning.pairs import label_counts
from longtail.training.neural.early_stopping import (
    DevSample,
    EarlyStopping,
    classifier_metric,
    metric_of,
    retrieval_metric,
)
from longtail.training.runtime.machine import Machine

CPU = Machine("cpu", is_bfloat16=False)


@pytest.fixture(scope="module")
def sample(tiny_corpus, tiny_encoder) -> DevSample:
    from longtail.models.encoders.pretrained import load_tokenizer

    split = open_dataset(tiny_corpus).split("dev")
    documents = tokenize_texts(load_tokenizer(tiny_encoder), list(split.texts()), 24)
    return DevSample(documents, split.scan().labels)


def stopping_of(values, *, patience=2, every=0.5, num_documents=10) -> EarlyStopping:
    """Return one that has seen these values, with weights equal to their place."""
    config = EarlyStoppingConfig(every=every, patience=patience)
    stopping, model = EarlyStopping(config, float, num_documents), nn.Linear(1, 1)
    for place, value in enumerate(values):
        nn.init.constant_(model.weight, place)
        stopping.note(place + 1, 5 * (place + 1), value, model)
    return stopping


@pytest.mark.parametrize(
    ("values", "best", "is_over"),
    [
        ([0.1], 0, False),
        ([0.1, 0.2, 0.3], 2, False),
        ([0.3, 0.2, 0.25], 0, True),
        ([0.3, 0.2, 0.4, 0.4], 2, False),  # of equals the first
        ([0.3, 0.2, 0.4, 0.4, 0.4], 2, True),
    ],
)
def test_the_first_of_the_best_weights_is_kept_until_nothing_is_better_for_long(
    values, best, is_over
):
    stopping = stopping_of(values)
    assert stopping.best["weight"].item() == best
    assert stopping.is_over is is_over


def test_nothing_is_over_before_the_first_measurement():
    stopping = stopping_of([])
    assert (stopping.is_over, stopping.best, stopping.points) == (False, None, [])


def test_kept_weights_do_not_follow_the_model():
    stopping, model = stopping_of([]), nn.Linear(2, 2)
    stopping.note(1, 5, 0.5, model)
    before = stopping.best["weight"].clone()
    nn.init.zeros_(model.weight)
    assert torch.equal(stopping.best["weight"], before)


def test_points_tell_step_epochs_metric_and_value():
    (first, second) = stopping_of([0.1, 0.2]).points
    assert (first.step, first.epochs, first.metric, first.value) == (1, 0.5, "P@5", 0.1)
    assert (second.step, second.epochs) == (2, 1.0)


@pytest.mark.parametrize(
    ("every", "expected"),
    [(0.5, [5, 10, 15, 20]), (0.1, list(range(1, 21))), (0.25, [3, 5, 8, 10, 13, 15, 18, 20]),
     (0.7, [7, 14, 20]), (5.0, [20])],
)  # fmt: skip
def test_it_measures_when_so_many_documents_were_seen_and_after_the_last_step(every, expected):
    stopping = stopping_of([], every=every)
    due = [seen for seen in range(1, 21) if stopping.is_due(seen - 1, seen, is_last=seen == 20)]
    assert due == expected


def test_a_step_over_two_marks_is_measured_once():
    assert stopping_of([], every=0.1).is_due(2, 6, is_last=False)
    assert not stopping_of([], every=0.7).is_due(8, 13, is_last=False)


def test_a_sample_is_drawn_by_its_seed_with_the_labels_of_its_documents(sample):
    parts = [DevSample.draw(sample.documents, sample.truth, 7, seed) for seed in (1, 1, 2)]
    first, same, other = (part.documents.ids.tolist() for part in parts)
    assert first == same != other
    assert (len(parts[0].documents), parts[0].truth.shape[0]) == (7, 7)
    texts = [tuple(sample.documents.take([row]).ids) for row in range(20)]
    for row in range(7):
        place = texts.index(tuple(parts[0].documents.take([row]).ids))
        assert (parts[0].truth[[row]] != sample.truth[[place]]).nnz == 0


def test_a_sample_as_large_as_the_split_is_the_split(sample):
    assert DevSample.draw(sample.documents, sample.truth, 20, 1).truth is sample.truth


def test_the_judges_measure_the_rankings_of_both_scorers(new_model, texts, sample):
    model = new_model()
    nn.init.normal_(model.classifier.weight, generator=torch.Generator().manual_seed(1))
    model.train()
    vectors = encode_all(model.encoder, sample.documents, "document", pad_id=0)
    labels = encode_all(model.encoder, texts.labels, "label", pad_id=0)
    weight = model.classifier.weight.detach().numpy()
    scores = {
        classifier_metric: vectors @ weight.T + model.classifier.bias.detach().numpy(),
        retrieval_metric: vectors @ labels.T,
    }
    truth = sample.truth.toarray() > 0
    for make, wanted in scores.items():
        found = make(model, texts, sample, "R@10", CPU)()
        best = np.argsort(-wanted, axis=1, kind="stable")[:, :10]
        hits = np.take_along_axis(truth, best, axis=1).sum(axis=1)
        expected = np.divide(hits, truth.sum(axis=1), where=truth.any(axis=1), out=np.zeros(20))
        assert found == pytest.approx(expected.mean())


def test_macro_f1_is_that_of_the_tail(texts, sample):
    rng = np.random.default_rng(0)
    vectors = (np.eye(20) * 4).astype(np.float32)
    labels = rng.normal(size=(texts.truth.shape[1], 20)).astype(np.float32)
    labels += sample.truth.T.toarray()
    no_bias = np.zeros(len(labels), dtype=np.float32)
    ranked = np.argsort(-(vectors @ labels.T), axis=1, kind="stable")[:, :5]
    measured = measure(join_truth(ranked, sample.truth), label_counts(texts.truth), 60, (5,))
    expected = measured[TAIL_BIN].values["macro-F1@5"]
    assert expected > 0
    assert metric_of(vectors, labels, no_bias, sample, texts, "macro-F1@5") == expected


def test_a_metric_of_labels_that_no_document_carries_is_0(texts, sample):
    nothing = csr_array(sample.truth.shape, dtype=np.float32)
    empty = DevSample(sample.documents, nothing)
    vectors, labels = np.ones((20, 2), np.float32), np.ones((texts.truth.shape[1], 2), np.float32)
    no_bias = np.zeros(len(labels), dtype=np.float32)
    assert metric_of(vectors, labels, no_bias, empty, texts, "macro-F1@5") == 0.0
    assert metric_of(vectors, labels, no_bias, empty, texts, "P@5") == 0.0
