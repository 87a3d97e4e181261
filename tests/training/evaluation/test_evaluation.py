"""Evaluation by subset, its tables and its JSON."""

from datetime import date

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.errors import DataError
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.hierarchy import LabelHierarchy
from longtail.models.metrics import join_truth, measure_hierarchical
from longtail.models.processor import FLAGS
from longtail.models.ranking.top_k import NO_LABEL, Ranking, top_of_scores
from longtail.training.evaluation.by_frequency import SHOT_GROUPS, evaluate, label_subsets, measure
from longtail.training.evaluation.plots import draw_by_frequency, write_figure
from longtail.training.evaluation.record import make_record

COUNTS = np.array([0, 0, 1, 2, 9, 10, 99, 100, 5000])


def ranking_of(labels: list[list[int]]) -> Ranking:
    return Ranking(
        labels=np.array(labels), scores=np.zeros((len(labels), len(labels[0])), dtype=np.float32)
    )


def truth_of(*true: list[int]) -> csr_array:
    dense = np.zeros((len(true), len(COUNTS)), dtype=np.float32)
    for row, labels in enumerate(true):
        dense[row, labels] = 1
    return csr_array(dense)


TRUTH = truth_of([0, 8], [2, 8], [8], [])
GOOD = ranking_of([[8, 0, 1], [2, 8, 1], [8, 3, 4], [7, 6, 5]])
BAD = ranking_of([[7, 6, 5]] * 4)


@pytest.fixture
def evaluation():
    return evaluate({"good": GOOD, "bad": BAD}, TRUTH, COUNTS, 6000, ks=(1, 3))


def test_each_label_is_in_one_frequency_bin_and_the_tail_is_1_to_9():
    members = {name: np.flatnonzero(x).tolist() for name, x in label_subsets(COUNTS).items()}
    assert members.pop("all") == list(range(9))
    assert members.pop("1-9") == [2, 3, 4]
    assert (members.pop("1-49"), members.pop("50+")) == ([2, 3, 4, 5], [6, 7, 8])
    assert members == {"0": [0, 1], "1": [2], "2-9": [3, 4], "10-99": [5, 6], "100+": [7, 8]}


def test_a_bin_is_measured_on_its_labels_and_the_documents_that_carry_one():
    measured = measure(join_truth(GOOD.labels, TRUTH), COUNTS, 6000, ks=(1, 2))
    zero_shot = measured["0"]
    assert (zero_shot.num_labels, zero_shot.num_true_labels) == (2, 1)
    assert (zero_shot.num_documents, zero_shot.num_occurrences) == (1, 1)
    assert (zero_shot.values["R@1"], zero_shot.values["R@2"]) == (0.0, 1.0)
    assert measured["100+"].values["P@1"] == pytest.approx(2 / 3)


def test_macro_f1_of_a_bin_counts_false_positives_on_all_documents():
    truth = truth_of([2], [8])
    judged = join_truth(np.array([[2], [2]]), truth)
    tail = measure(judged, COUNTS, 6000, ks=(1,))["1"]
    assert tail.num_documents == 1
    assert tail.values["macro-F1@1"] == pytest.approx(2 / 3)


def test_macro_f1_is_a_mean_over_all_labels_of_a_band_and_over_those_that_the_split_has(evaluation):
    rng = np.random.default_rng(6)
    truth = (rng.random((30, len(COUNTS))) < 0.15).astype(np.float32)
    truth[:, [3, 8]] = 0  # labels that the split lacks
    labels = np.array([rng.permutation(len(COUNTS))[:3] for _ in range(30)])
    measured = measure(join_truth(labels, csr_array(truth)), COUNTS, 6000, ks=(3,))
    for name, is_in in label_subsets(COUNTS).items():
        f1 = {}
        for label in np.flatnonzero(is_in):
            predicted = (labels == label).any(axis=1)
            hits = (predicted & (truth[:, label] > 0)).sum()
            f1[label] = 2 * hits / max(1, predicted.sum() + truth[:, label].sum())
        values = measured[name].values
        assert values["macro-F1@3"] == pytest.approx(np.mean([*f1.values()]))
        in_split = [value for label, value in f1.items() if truth[:, label].any()]
        assert values["macro-F1@3 in split"] == pytest.approx(np.mean(in_split))
    header, _ = evaluation.overall_cells()
    assert header[-3:-1] == ["macro-F1@5 (1-9)", "macro-F1@5 in split (1-9)"]
    assert "mean over all labels of the band" in evaluation.tables()[0].note


def test_shot_groups_are_measured_with_their_own_labels_as_truth_in_the_whole_ranking():
    rng = np.random.default_rng(4)
    counts = rng.choice([0, 3, 49, 50, 200], 30)
    truth = (rng.random((25, 30)) < 0.1).astype(np.float32)
    labels = np.array([rng.permutation(30)[:10] for _ in range(25)])
    found = evaluate(
        {"x": Ranking(labels, -labels.astype(np.float32))}, csr_array(truth), counts, 900
    )
    for group, (least, greatest) in SHOT_GROUPS.items():
        top = 0 if group == "0" else 1000
        recalls, ndcgs = [], []
        for ranked, true in zip(labels.tolist(), truth, strict=True):
            wanted = {y for y in np.flatnonzero(true) if least <= counts[y] <= (greatest or top)}
            if wanted:
                hits = [place for place, y in enumerate(ranked[:5]) if y in wanted]
                ideal = sum(1 / np.log2(place + 2) for place in range(min(5, len(wanted))))
                recalls.append(len(hits) / len(wanted))
                ndcgs.append(sum(1 / np.log2(place + 2) for place in hits) / ideal)
        values = found.scorers["x"][group].values
        assert (values["R@5"], values["nDCG@5"]) == pytest.approx(
            (np.mean(recalls), np.mean(ndcgs))
        )


@pytest.mark.parametrize(
    ("ranking", "ks", "words"),
    [
        (GOOD, (1, 5), "evaluation of 'mine': metrics: got k=5"),
        (ranking_of([[0]]), (1,), "evaluation of 'mine': metrics: the ranking has 1 rows"),
        (GOOD, (), "1 rankings at 0 ks"),
    ],
)
def test_a_ranking_that_cannot_be_measured_is_named(ranking, ks, words):
    with pytest.raises(DataError, match=words):
        evaluate({"mine": ranking}, TRUTH, COUNTS, 6000, ks=ks)


BROADER = {1: {0}, 2: {0}, 3: {1, 2}, 5: {4}}
NUM_LABELS = 7


def closed(labels) -> set[int]:
    found = set(labels)
    while more := {above for label in found for above in BROADER.get(label, ())} - found:
        found |= more
    return found


@pytest.fixture(scope="module")
def ancestors():
    labels = (
        Label(f"{row}", "x", broader=tuple(map(str, BROADER.get(row, ()))))
        for row in range(NUM_LABELS)
    )
    return LabelHierarchy(LabelCatalogue(labels)).ancestors()


@pytest.mark.parametrize("seed", range(5))
def test_the_values_are_those_of_the_paper(ancestors, seed):
    random = np.random.default_rng(seed)
    truth = (random.random((20, NUM_LABELS)) < 0.3).astype(np.float32)
    labels = np.array([random.permutation(NUM_LABELS)[:3] for _ in range(20)])
    labels[random.random(labels.shape) < 0.2] = NO_LABEL
    ranking = Ranking(labels, np.zeros(labels.shape, np.float32))
    found = measure_hierarchical({"x": ranking}, csr_array(truth), ancestors, (1, 3))["x"]
    for k in (1, 3):
        pairs = [
            (closed(x for x in top[:k] if x != NO_LABEL), closed(np.flatnonzero(row).tolist()))
            for top, row in zip(labels.tolist(), truth, strict=True)
        ]
        common = sum(len(p & t) for p, t in pairs)
        assert found[f"hP@{k}"] == pytest.approx(common / sum(len(p) for p, _ in pairs))
        assert found[f"hR@{k}"] == pytest.approx(common / sum(len(t) for _, t in pairs))


def test_nothing_predicted_and_nothing_true_are_0(ancestors):
    empty = csr_array((1, NUM_LABELS), dtype=np.float32)
    ranking = Ranking(np.array([[NO_LABEL]]), np.full((1, 1), -np.inf, np.float32))
    found = measure_hierarchical({"x": ranking}, empty, ancestors, (1,))
    assert found == {"x": {"hP@1": 0.0, "hR@1": 0.0}}


PLOTTED_COUNTS = np.repeat([500, 20, 3, 1, 0], [2, 10, 18, 20, 20])
PLOTTED_TRUTH = csr_array((np.random.default_rng(1).random((30, 70)) < 0.1).astype(np.float32))


def plotted(seed: int, num_documents: int = 30) -> Ranking:
    scores = np.random.default_rng(seed).random((num_documents, 70)).astype(np.float32)
    return top_of_scores(scores + PLOTTED_TRUTH.toarray()[:num_documents], 10)


@pytest.fixture
def figure():
    return draw_by_frequency(
        {"retrieval": plotted(1), "sparse": plotted(2)}, PLOTTED_TRUTH, PLOTTED_COUNTS
    )


@pytest.mark.parametrize(("name", "magic"), [("f.png", b"\x89PNG"), ("f.svg", b"<?xml")])
def test_figures_are_written_as_png_and_svg(figure, tmp_path, name, magic):
    write_figure(figure, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_record_says_what_measured_when_and_where(tmp_path):
    record = make_record({"P@1": 0.5}, seeds=range(2), command="longtail evaluate x")
    assert list(record) == ["command", "commit", "date", "processor", "seeds", "figures"]
    assert record["command"] == "longtail evaluate x"
    assert date.fromisoformat(record["date"])
    assert record["processor"]["cores"] >= 1
    assert set(record["processor"]["flags"]) <= set(FLAGS)
    assert (record["seeds"], record["figures"]) == ([0, 1], {"P@1": 0.5})
