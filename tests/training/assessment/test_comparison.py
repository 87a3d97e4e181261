"""Two rankings side by side."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.hierarchy import LabelHierarchy
from longtail.models.metrics import join_truth
from longtail.models.ranking.top_k import Ranking
from longtail.training.assessment.compare import compare, compare_predictions, write_predictions
from longtail.training.data.dataset import open_dataset
from longtail.training.evaluation.significance import macro_t_test, micro_sign_test

NUM_DOCUMENTS, NUM_LABELS = 30, 8
COUNTS = np.array([0, 1, 5, 9, 10, 40, 60, 90])


def ranked(scores: np.ndarray, k: int = 5) -> Ranking:
    labels = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, labels, axis=1).astype(np.float32)
    return Ranking(labels=labels, scores=best)


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(7)
    return csr_array((rng.random((NUM_DOCUMENTS, NUM_LABELS)) < 0.3).astype(np.float32))


@pytest.fixture(scope="module")
def rankings(truth):
    rng = np.random.default_rng(8)
    noise = rng.random((2, NUM_DOCUMENTS, NUM_LABELS))
    return {
        "good": ranked(truth.toarray() + noise[0]),
        "bad": ranked(0.3 * truth.toarray() + noise[1]),
    }


@pytest.fixture(scope="module")
def found(rankings, truth):
    return compare(rankings, truth, COUNTS, 100, 5)


@pytest.fixture
def corpus(tmp_path, truth):
    """Truth as a test split; one training document for every label but the first."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    carried = {
        "train": [[label] for label in range(1, NUM_LABELS)],
        "test": [np.flatnonzero(row).tolist() for row in truth.toarray()],
    }
    for name, rows in carried.items():
        lines = [
            json.dumps({"text": f"text {number}", "labels": list(map(str, row))})
            for number, row in enumerate(rows)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    labels = [json.dumps({"id": str(label), "name": str(label)}) for label in range(NUM_LABELS)]
    (folder / "labels.jsonl").write_text("\n".join(labels))
    return folder


def test_near_misses_count_where_labels_stand_below_others(found, rankings, truth):
    assert found.hierarchical is None and "hP@" not in found.to_markdown()
    above = {1: {0}, 2: {1, 0}, 5: {4}}  # of a label, all above it
    broader = {1: ("0",), 2: ("1",), 5: ("4",)}
    catalogue = LabelCatalogue(
        Label(f"{row}", "x", broader=broader.get(row, ())) for row in range(NUM_LABELS)
    )
    hierarchy = LabelHierarchy(catalogue)
    deep = compare(rankings, truth, COUNTS, 100, 5, hierarchy=hierarchy)
    assert deep.hierarchical is not None
    for name, ranking in rankings.items():
        pairs = [
            ({*top, *(x for y in top for x in above.get(y, ()))},
             {*row, *(x for y in row for x in above.get(y, ()))})
            for top, row in zip(
                ranking.labels[:, :3].tolist(),
                (np.flatnonzero(row).tolist() for row in truth.toarray()),
                strict=True,
            )
        ]  # fmt: skip
        common = sum(len(p & t) for p, t in pairs)
        values = deep.hierarchical[name]
        assert values["hP@3"] == pytest.approx(common / sum(len(p) for p, _ in pairs))
        assert values["hR@3"] == pytest.approx(common / sum(len(t) for _, t in pairs))
    assert "hP@3" in deep.to_markdown()
    assert deep.to_json()["hierarchical"] == deep.hierarchical


def test_the_tests_are_those_of_both_ways(found, rankings, truth):
    good, bad = (join_truth(ranking.labels, truth) for ranking in rankings.values())
    everything, tail, signs = found.tests
    assert everything.first == macro_t_test(good, bad, 5)
    assert everything.second == macro_t_test(bad, good, 5)
    assert tail.first == macro_t_test(good, bad, 5, (COUNTS > 0) & (COUNTS < 10))
    assert tail.first.num_compared == 3
    assert signs.first == micro_sign_test(good, bad, 5)
    assert signs.second == micro_sign_test(bad, good, 5)


def test_files_are_compared_as_the_rankings_that_they_hold(tmp_path, corpus, rankings, truth):
    for name, ranking in rankings.items():
        write_predictions(tmp_path / f"{name}.npz", ranking, NUM_LABELS)
    paths = (tmp_path / "good.npz", tmp_path / "bad.npz")
    found = compare_predictions(*paths, open_dataset(corpus), "test", 5)
    counts = np.array([0, *[1] * (NUM_LABELS - 1)])
    expected = compare(rankings, truth, counts, NUM_LABELS - 1, 5)
    assert replace(found, left_out=None).to_json() == expected.to_json()
    assert found.to_json()["trained_on"]["unknown_to"] == ["'good'", "'bad'"]


def test_documents_with_equal_texts_are_tested_once_and_measured_each(
    tmp_path, corpus, rankings, truth
):
    lines = (corpus / "test.jsonl").read_text().splitlines()
    rows = [*range(NUM_DOCUMENTS), 0, 3, 3]
    (corpus / "test.jsonl").write_text("\n".join(lines[row] for row in rows))
    paths = [tmp_path / f"{name}.npz" for name in rankings]
    for path, ranking in zip(paths, rankings.values(), strict=True):
        repeated = Ranking(labels=ranking.labels[rows], scores=ranking.scores[rows])
        write_predictions(path, repeated, NUM_LABELS)
    found = compare_predictions(*paths, open_dataset(corpus), "test", 5)
    counts = np.array([0, *[1] * (NUM_LABELS - 1)])
    assert found.num_repeats == 3
    assert found.evaluation.num_documents == NUM_DOCUMENTS + 3
    assert found.tests == compare(rankings, truth, counts, NUM_LABELS - 1, 5).tests
    assert "The tests leave out 3 documents whose text" in found.to_markdown()
