"""Ranking and measuring a split with a trained model."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from longtail.models.kinds.storage import read_parts
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.assessment.assess import (
    LABEL_NAMES,
    NEAREST_NEIGHBOURS,
    assess,
    assess_bundle,
)
from longtail.training.data.dataset import open_dataset
from longtail.training.evaluation.by_frequency import FREQUENCY_BINS


@pytest.fixture(scope="module")
def parts(trained):
    return read_parts(trained.bundle)


@pytest.fixture(scope="module")
def predictor(parts):
    return Predictor(parts, device="cpu")


@pytest.fixture(scope="module")
def dataset(tiny_corpus):
    return open_dataset(tiny_corpus)


@pytest.fixture(scope="module")
def found(predictor, dataset, parts):
    return assess(predictor, dataset, "test", num_training_documents=60, tfidf=parts.sparse.tfidf)


@pytest.fixture
def copied_corpus(tiny_corpus, tmp_path):
    return Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))


def test_every_scorer_and_both_baselines_are_measured(found, predictor, dataset):
    names = ["retrieval", "classifier", "hybrid", "linear", "linear, uncorrected"]
    names += ["dense_neighbours", "sparse", "names", "neighbours", "word_vectors"]
    names += ["word_neighbours", "fast", "ensemble"]
    names += [NEAREST_NEIGHBOURS, LABEL_NAMES]
    assert list(found.evaluation.scorers) == list(found.rankings) == names
    assert (found.truth != dataset.split("test").scan().labels).nnz == 0
    assert found.evaluation.num_documents == 20
    assert found.evaluation.ks == (1, 3, 5, 10)


def test_rankings_are_those_that_the_predictor_serves(found, predictor, dataset):
    text = next(dataset.split("test").texts())
    for scorer in predictor.scorers.names:
        [served] = predictor.predict([text], k=10, scorer=scorer)
        ranked = found.rankings[scorer].labels[0]
        assert [label.index for label in served.labels] == ranked.tolist()


def test_a_tail_dial_ranks_as_the_predictor_does_and_stands_in_the_names(predictor, dataset):
    found = assess(
        predictor, dataset, "dev", num_training_documents=60, query=RankingOptions(tail_dial=0.5)
    )
    names = ["retrieval", "classifier", "hybrid", "linear", "linear, uncorrected"]
    names += ["dense_neighbours", "sparse", "names", "neighbours", "word_vectors"]
    names += ["word_neighbours", "fast", "ensemble"]
    assert list(found.rankings) == [f"{name}, tail dial 0.5" for name in names]
    batch = predictor.read(list(dataset.split("dev").texts()))
    for scorer in ("linear", "sparse"):
        wanted = predictor.rank(batch, RankingOptions(k=10, scorer=scorer, tail_dial=0.5))
        assert np.array_equal(found.rankings[f"{scorer}, tail dial 0.5"].labels, wanted.labels)
    wanted = predictor.rank(batch, RankingOptions(10, "linear", correction="none", tail_dial=0.5))
    ranked = found.rankings["linear, uncorrected, tail dial 0.5"]
    assert np.array_equal(ranked.labels, wanted.labels)


def test_an_aim_ranks_as_the_predictor_does_and_stands_in_the_names(predictor, dataset):
    found = assess(
        predictor, dataset, "dev", num_training_documents=60, query=RankingOptions(aim="propensity")
    )
    assert list(found.rankings) == [f"{name}, aim propensity" for name in predictor.scorers.names]
    batch = predictor.read(list(dataset.split("dev").texts()))
    for scorer in predictor.scorers.names:
        wanted = predictor.rank(batch, RankingOptions(k=10, scorer=scorer, aim="propensity"))
        ranked = found.rankings[f"{scorer}, aim propensity"]
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
    for scorer in predictor.scorers.names:
        assert some.evaluation.scorers[scorer] == found.evaluation.scorers[scorer]


def test_languages_of_a_twentieth_of_the_documents_have_figures_of_their_own(
    trained, copied_corpus
):
    path = copied_corpus / "test.jsonl"
    documents = [json.loads(line) for line in path.read_text().splitlines()]
    words = {"de": "der und die nicht", "en": "the and of with", "fr": "les des une dans"}
    told = ["de"] * 12 + ["en"] * 26 + ["fr"] * 2 + [""] * 3
    lines = [
        {"text": f"{words.get(language, '')} zz{x['text'].replace(' ', '')[:9]} {row}",
         "labels": x["labels"]}
        for row, (language, x) in enumerate(zip(told, documents * 3, strict=False))
    ]  # fmt: skip
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    found = assess_bundle(trained.bundle, open_dataset(copied_corpus), "test")
    assert list(found.languages) == ["en", "de"]  # two of 43 are less than a twentieth
    rows = {name: np.array(told) == name for name in found.languages}
    for name, measured in found.languages.items():
        assert measured.num_documents == rows[name].sum()
        for scorer, ranking in found.rankings.items():
            best = ranking.labels[rows[name], :1]
            is_right = np.take_along_axis(found.truth.toarray()[rows[name]], best, 1)
            values = measured.scorers[scorer]["all"].values
            assert values["P@1"] == pytest.approx(is_right.mean())
    (table,) = found.group_tables
    assert [row[:3] for row in table.cells[1]] == [
        [language, number, scorer]
        for language, number in (("English", "26"), ("German", "12"))
        for scorer in found.rankings
    ]
    assert found.to_json()["languages"]["de"]["num_documents"] == 12


def test_one_language_has_no_table(found):
    assert found.languages == {} and found.group_tables == []


@pytest.fixture
def grown(predictor, tiny_corpus, tmp_path):
    """The test documents, some with labels that the model lacks, the last with no others."""
    lines = [json.loads(line) for line in (tiny_corpus / "test.jsonl").read_text().splitlines()]
    for row, line in enumerate(lines):
        line["labels"] += ["new", *(["newer"] if row % 2 else [])] if row % 3 == 0 else []
    lines[-1]["labels"] = ["newest"]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return open_dataset(tmp_path, known=predictor.catalogue)


@pytest.mark.slow
def test_labels_that_the_model_lacks_count_as_missed(found, predictor, grown, tmp_path):
    unseen = assess(predictor, grown, "test", num_training_documents=60, reliability=True)
    carried = [
        {grown.labels[column].id for column in document.labels} for document in grown.split("test")
    ]
    missed = [len(labels & {"new", "newer", "newest"}) for labels in carried]
    assert "lacks 3 labels of the documents ('new', 'newer', 'newest')" in repr(unseen)
    assert f"missed, {sum(missed)} times" in unseen.measured_on
    for scorer, ranking in unseen.rankings.items():
        top = ranking.labels[:, :5].tolist()
        best = [[predictor.catalogue[x].id for x in row if x >= 0] for row in top]
        hits = [[label in y for label in row] for row, y in zip(best, carried, strict=True)]
        gains = [1 / np.log2(place + 2) for place in range(5)]
        of_each = list(zip(hits, carried, strict=True))
        expected = {
            "P@5": [sum(hit) / 5 for hit in hits],
            "R@5": [sum(hit) / len(y) for hit, y in of_each],
            "RP@5": [sum(hit) / min(5, len(y)) for hit, y in of_each],
            "nDCG@5": [
                sum(gain for gain, is_hit in zip(gains, hit, strict=False) if is_hit)
                / sum(gains[: len(y)])
                for hit, y in of_each
            ],
        }
        for name, values in expected.items():
            assert unseen.metrics[scorer][name] == pytest.approx(np.mean(values)), (scorer, name)
        assert unseen.evaluation.scorers[scorer]["0"].num_occurrences >= sum(missed)
        assert unseen.metrics[scorer]["coverage@5"] <= found.metrics[scorer]["coverage@5"]
    unseen.write(tmp_path / "files")
    written = json.loads((tmp_path / "files" / "evaluation.json").read_text())
    assert written["unseen_labels"]["num_missed"] == sum(missed)


def test_within_a_band_only_its_labels_compete(predictor, grown):
    evaluation = assess(
        predictor, grown, "test", num_training_documents=60, within_bands=True
    ).evaluation
    texts = list(grown.split("test").texts())
    every = np.tile(np.arange(len(predictor.catalogue)), (len(texts), 1))
    gains = 1 / np.log2(np.arange(10) + 2)
    measured = 0
    for scorer in predictor.scorers.names:
        scores = predictor.score(predictor.read(texts), every, RankingOptions(scorer=scorer))
        for band, (least, most) in FREQUENCY_BINS.items():
            counts = enumerate(predictor.catalogue.training_counts)
            own = {x for x, n in counts if least <= n <= (np.inf if most is None else most)}
            recalls, ndcgs = [], []
            for row, document in zip(scores, grown.split("test"), strict=True):
                lacking = {x for x in document.labels if x >= len(predictor.catalogue)}
                true = {x for x in document.labels if x in own} | (lacking if not least else set())
                ranked = sorted((-row[x], x) for x in own if row[x] > -np.inf)[:10]
                hits = np.array([x in true for _, x in ranked])
                if true:
                    recalls.append(hits.sum() / len(true))
                    ndcgs.append(hits @ gains[: len(hits)] / gains[: len(true)].sum())
            values = evaluation.scorers[scorer][band].values
            found = [values.get(f"{name}@10 within the band") for name in ("R", "nDCG")]
            if not recalls:
                assert found == [None, None]
                continue
            measured += 1
            assert found == pytest.approx([np.mean(recalls), np.mean(ndcgs)]), (scorer, band)
    assert measured > 10
    assert evaluation.tables()[-1].to_markdown().startswith("## Within each band")


def test_labels_without_training_documents_come_from_retrieval_alone(predictor, dataset):
    untrained = set(np.flatnonzero(dataset.catalogue.training_counts == 0).tolist())
    all_of_them = {"num_training_documents": 60, "k": len(dataset.catalogue)}
    rankings = assess(predictor, dataset, "test", **all_of_them).rankings
    assert set(rankings["retrieval"].labels[0].tolist()) >= untrained
    for scorer in ("sparse", "classifier", "linear"):
        labels, scores = rankings[scorer].labels, rankings[scorer].scores
        assert not untrained & set(labels.ravel().tolist())
        assert (labels[:, -len(untrained) :] == NO_LABEL).all()
        assert np.isneginf(scores[labels == NO_LABEL]).all()
