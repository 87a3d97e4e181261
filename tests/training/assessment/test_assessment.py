"""Ranking and measuring a split with a trained model."""

from __future__ import annotations

import json
import shutil
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from models.errors import DataError
from models.labels.catalogue import Label, LabelCatalogue
from models.parts.model_parts import ModelParts
from models.parts.storage import read_parts
from models.predict.predictor import Predictor
from models.ranking.top_k import NO_LABEL
from models.scorers.sparse import SparseModel
from models.scorers.tfidf import TfidfModel
from training.assessment import assess as assessment
from training.assessment.assess import (
    LABEL_NAMES,
    NEAREST_BY_FEATURES,
    NEAREST_NEIGHBOURS,
    assess,
    rank_features,
    rank_texts,
)
from training.data.chunks import chunks
from training.data.dataset import Dataset, open_dataset


@pytest.fixture(scope="module")
def parts(trained) -> ModelParts:
    return read_parts(trained.bundle)


@pytest.fixture(scope="module")
def predictor(parts) -> Predictor:
    return Predictor(parts, device="cpu")


@pytest.fixture(scope="module")
def dataset(tiny_corpus) -> Dataset:
    return open_dataset(tiny_corpus)


@pytest.fixture(scope="module")
def found(predictor, dataset, parts) -> assessment.Assessment:
    return assess(predictor, dataset, "test", num_training_documents=60, tfidf=parts.sparse.tfidf)


@pytest.fixture
def copied_corpus(tiny_corpus, tmp_path) -> Path:
    return Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))


def test_every_scorer_and_both_baselines_are_measured(found, predictor, dataset):
    names = ["retrieval", "classifier", "hybrid", "linear", "linear, uncorrected", "sparse"]
    names += ["ensemble"]
    names += [NEAREST_NEIGHBOURS, LABEL_NAMES]
    assert list(found.evaluation.scorers) == list(found.rankings) == names
    assert (found.truth != dataset.split("test").scan().labels).nnz == 0
    assert found.evaluation.num_documents == 20
    assert found.evaluation.ks == (1, 3, 5, 10)


def test_rankings_are_those_that_the_predictor_serves(found, predictor, dataset):
    text = next(dataset.split("test").texts())
    for scorer in predictor.scorers:
        [served] = predictor.predict([text], k=10, scorer=scorer)
        ranked = found.rankings[scorer].labels[0]
        assert [label.index for label in served.labels] == ranked.tolist()


def test_without_features_no_baseline_is_measured(predictor, dataset):
    alone = assess(predictor, dataset, "test", num_training_documents=60)
    assert set(alone.rankings) == {*predictor.scorers, "linear, uncorrected"}


def test_a_tail_dial_ranks_as_the_predictor_does_and_stands_in_the_names(predictor, dataset):
    found = assess(predictor, dataset, "dev", num_training_documents=60, tail_dial=0.5)
    names = ["retrieval", "classifier", "hybrid", "linear", "linear, uncorrected", "sparse"]
    names += ["ensemble"]
    assert list(found.rankings) == [f"{name}, tail dial 0.5" for name in names]
    batch = predictor.read(list(dataset.split("dev").texts()))
    for scorer in ("linear", "sparse"):
        wanted = predictor.rank(batch, 10, scorer, None, 0.5)
        assert np.array_equal(found.rankings[f"{scorer}, tail dial 0.5"].labels, wanted.labels)
    wanted = predictor.rank(batch, 10, "linear", "none", 0.5)
    ranked = found.rankings["linear, uncorrected, tail dial 0.5"]
    assert np.array_equal(ranked.labels, wanted.labels)


def test_labels_in_another_order_give_the_same_metrics(found, predictor, parts, copied_corpus):
    path = copied_corpus / "labels.jsonl"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    reversed_dataset = open_dataset(copied_corpus)
    again = assess(
        predictor, reversed_dataset, "test", num_training_documents=60, tfidf=parts.sparse.tfidf
    )
    assert again.evaluation.to_json() == found.evaluation.to_json()


def test_data_with_some_of_the_labels_is_measured_over_all_of_them(
    found, predictor, dataset, copied_corpus
):
    for name in ("train", "dev"):
        (copied_corpus / f"{name}.jsonl").unlink()
    used = set(dataset.split("test").scan().labels.indices.tolist())
    path = copied_corpus / "labels.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for i, line in enumerate(lines) if i in used))
    some = assess(predictor, open_dataset(copied_corpus), "test", num_training_documents=60)
    assert some.evaluation.num_labels == len(lines) > len(used)
    for scorer in predictor.scorers:
        assert some.evaluation.scorers[scorer] == found.evaluation.scorers[scorer]


def test_labels_unknown_to_the_model_are_refused(predictor, copied_corpus):
    with (copied_corpus / "labels.jsonl").open("a") as file:
        file.write('{"id": "new", "name": "new"}\n')
    with pytest.raises(DataError, match=r"1 of its labels are unknown.*with id 'new'"):
        assess(predictor, open_dataset(copied_corpus), "test", num_training_documents=60)


def test_a_missing_split_is_refused(predictor, copied_corpus):
    (copied_corpus / "test.jsonl").unlink()
    with pytest.raises(DataError, match="no split 'test'; it has 'train', 'dev'"):
        assess(predictor, open_dataset(copied_corpus), "test", num_training_documents=60)


def test_baselines_without_training_documents_are_refused(predictor, parts, copied_corpus):
    (copied_corpus / "train.jsonl").unlink()
    dataset, tfidf = open_dataset(copied_corpus), parts.sparse.tfidf
    with pytest.raises(DataError, match="no training documents for the baselines; evaluate with"):
        assess(predictor, dataset, "test", num_training_documents=60, tfidf=tfidf)


def test_labels_without_training_documents_come_from_retrieval_alone(predictor, dataset):
    texts, num_labels = list(dataset.split("test").texts()), len(dataset.catalogue)
    untrained = set(np.flatnonzero(dataset.catalogue.training_counts == 0).tolist())
    rankings = rank_texts(predictor, texts, len(texts), num_labels, desc="test")
    assert set(rankings["retrieval"].labels[0].tolist()) >= untrained
    for scorer in ("sparse", "classifier", "linear"):
        labels, scores = rankings[scorer].labels, rankings[scorer].scores
        assert not untrained & set(labels.ravel().tolist())
        assert (labels[:, -len(untrained) :] == NO_LABEL).all()
        assert np.isneginf(scores[labels == NO_LABEL]).all()


def test_texts_ranked_in_chunks_have_the_ranks_of_one_go(predictor, dataset, monkeypatch):
    texts = list(dataset.split("test").texts())
    whole = rank_texts(predictor, texts, 20, 10, desc="test")
    monkeypatch.setattr(assessment, "chunks", partial(chunks, size=7))
    chunked = rank_texts(predictor, iter(texts), 20, 10, desc="test")
    for scorer in predictor.scorers:
        assert np.array_equal(chunked[scorer].labels, whole[scorer].labels)
        np.testing.assert_allclose(chunked[scorer].scores, whole[scorer].scores, rtol=1e-4)


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (6, [3, 3]), (7, [3, 3, 1])])
def test_chunks_hold_all_texts_in_order(count, sizes):
    texts = [str(number) for number in range(count)]
    found = list(chunks(iter(texts), size=3))
    assert [len(chunk) for chunk in found] == sizes
    assert list(chain(*found)) == texts


def test_the_files_of_an_assessment_hold_tables_numbers_and_a_picture(found, tmp_path):
    numbers, tables, picture = found.write(tmp_path / "new" / "folder")
    assert json.loads(numbers.read_text())["scorers"]["sparse"]["all"]["num_documents"] == 20
    assert found.evaluation.overall_table() in tables.read_text()
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 20_000


def test_few_labels_are_measured_at_few_places(train_in, tiny_config, tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    texts = {"a law of the sea": ["sea"], "fish in the sea": ["sea", "fish"], "a fish": ["fish"]}
    lines = [json.dumps({"text": x, "labels": y}) + "\n" for x, y in texts.items()]
    for name in ("train", "test"):
        (corpus / f"{name}.jsonl").write_text("".join(lines))
    predictor = Predictor.of_bundle(train_in(tmp_path, tiny_config, corpus).bundle, device="cpu")
    few = assess(predictor, open_dataset(corpus), "test", num_training_documents=3)
    assert few.evaluation.ks == (1,)
    assert all(path.stat().st_size for path in few.write(tmp_path / "few"))


def test_more_places_than_the_metrics_need_widen_the_rankings_alone(predictor, dataset, found):
    wide = assess(predictor, dataset, "test", num_training_documents=60, num_places=25)
    assert all(ranking.labels.shape == (20, 25) for ranking in wide.rankings.values())
    for scorer in predictor.scorers:
        assert wide.evaluation.scorers[scorer] == found.evaluation.scorers[scorer]


# ---- features ----


@pytest.fixture
def feature_corpus(tmp_path) -> Dataset:
    """Three labels, each with a feature of its own, and one feature that says nothing."""
    (tmp_path / "train.txt").write_text("4 4 3\n0 0:2\n1 1:5 3:1\n2 2:1\n0,1 0:1 1:1\n")
    (tmp_path / "test.txt").write_text("3 4 3\n0 0:9\n1 1:1 2:0.5\n2 3:1\n")
    return open_dataset(tmp_path)


@pytest.fixture
def feature_parts(feature_corpus) -> ModelParts:
    """Label i is scored by feature i; of documents without any, label 0 comes first."""
    weights = csr_array(np.eye(3, 4, dtype=np.float32))
    tfidf = TfidfModel(feature_corpus.feature_names, np.ones(4, dtype=np.float32))
    bias = np.array([0.1, 0, 0], dtype=np.float32)
    sparse = SparseModel(tfidf, weights, bias, np.arange(3))
    labels = LabelCatalogue(Label(str(index), str(index)) for index in range(3))
    return ModelParts(input="features", catalogue=labels, sparse=sparse, dense=None)


def test_features_are_ranked_and_measured_with_their_nearest_neighbours(
    feature_parts, feature_corpus
):
    predictor = Predictor(feature_parts, device="cpu")
    tfidf = feature_parts.sparse.tfidf
    found = assess(predictor, feature_corpus, "test", num_training_documents=4, tfidf=tfidf)
    assert list(found.rankings) == ["sparse", NEAREST_BY_FEATURES]
    assert found.rankings["sparse"].labels[:, 0].tolist() == [0, 1, 0]
    assert found.evaluation.scorers["sparse"]["all"].values["P@1"] == pytest.approx(2 / 3)
    # The third document shares its only feature with a training document of label 1.
    assert found.rankings[NEAREST_BY_FEATURES].labels[:, 0].tolist() == [0, 1, 1]


def test_features_ranked_in_chunks_have_the_ranks_of_one_go(
    feature_parts, feature_corpus, monkeypatch
):
    predictor = Predictor(feature_parts, device="cpu")
    features = feature_corpus.split("train").features()
    whole = rank_features(predictor, features, 3, desc="train")["sparse"]
    monkeypatch.setattr(assessment, "_CHUNK", 3)
    chunked = rank_features(predictor, features, 3, desc="train")["sparse"]
    assert np.array_equal(whole.labels, chunked.labels)
    assert np.array_equal(whole.scores, chunked.scores)


def test_data_of_the_other_form_is_refused(predictor, dataset, feature_parts, feature_corpus):
    with pytest.raises(DataError, match="holds features, but the model reads texts; evaluate on"):
        assess(predictor, feature_corpus, "test", num_training_documents=60)
    reads_features = Predictor(feature_parts, device="cpu")
    with pytest.raises(DataError, match="holds texts, but the model reads features"):
        assess(reads_features, dataset, "test", num_training_documents=4)
