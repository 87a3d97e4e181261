"""A new metric is one file: how it is measured, and which tables show it."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from scipy.sparse import csr_array

from docs.generation.leaderboard import columns_of
from longtail.models.metrics import METRICS, Metric, Place, RankedEvaluation
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.models.sharing.card import model_card
from longtail.service.commands.registry import metric_rows
from longtail.training.assessment.compare import compare
from longtail.training.evaluation.by_frequency import FREQUENCY_BINS, evaluate


def hit_rate(joined: RankedEvaluation, k: int, _: np.ndarray) -> float:
    """Share of the documents with a true label among the first k."""
    return float(joined.top(k)[1].any(axis=1).mean())


HITS = Metric(hit_rate, dict.fromkeys(get_args(Place), (3,)))
RNG = np.random.default_rng(0)
COUNTS = np.array([0, 0, 1, 2, 9, 10, 99, 100, 5000])
TRUTH = csr_array((RNG.random((40, len(COUNTS))) < 0.3).astype(np.float32))


def drawn() -> Ranking:
    labels = np.array([RNG.permutation(len(COUNTS))[:5] for _ in range(40)])
    return Ranking(labels, -labels.astype(np.float32))


RANKINGS = {"one": drawn(), "other": drawn()}


@pytest.fixture(autouse=True)
def registered():
    METRICS["hits"] = HITS
    yield
    del METRICS["hits"]


@pytest.fixture
def evaluation():
    labels = np.pad(RANKINGS["one"].labels, ((0, 0), (0, 5)), constant_values=NO_LABEL)
    wide = Ranking(labels, -labels.astype(np.float32))
    within = {band: {"one": wide} for band in FREQUENCY_BINS}
    return evaluate(RANKINGS, TRUTH, COUNTS, 6000, (1, 3, 5), within)


def test_it_is_measured(evaluation):
    labels = RANKINGS["one"].labels[:, :3]
    expected = (np.take_along_axis(TRUTH.toarray(), labels, axis=1) > 0).any(axis=1).mean()
    assert evaluation.scorers["one"]["all"].values["hits@3"] == pytest.approx(expected)


def test_each_table_of_an_evaluation_shows_it(evaluation):
    header, rows = evaluation.overall_cells()
    assert {"hits@3", "hits@3 (1-9)", "zero-shot hits@3"} <= set(header)
    value = evaluation.scorers["one"]["all"].values["hits@3"]
    assert rows[0][header.index("hits@3")] == f"{100 * value:.2f}"
    assert "hits@3" in evaluation.short_cells(["one"], "one")[0]
    assert "hits@3" in evaluation.bin_tables()[0].cells[0]
    _, shots, within = evaluation.tables()
    assert "few-shot hits@3" in shots.cells[0] and "2-9: hits@3" in within.cells[0]


def test_a_comparison_shows_it():
    found = compare(RANKINGS, TRUTH, COUNTS, 6000, 5).to_markdown()
    assert "| hits@3 " in found and "| hits@3 (1-9) " in found


def test_the_registry_and_the_card_show_it(bundle):
    dev = {"sparse": {"all": {"hits@3": 0.5}, "2-9": {"hits@3": 0.25}}}
    manifest = replace(bundle.manifest, metrics={"dev": dev}, default_scorer="sparse")
    header, row = metric_rows(manifest)
    assert (header[1:], row[1:]) == (("hits@3",), ("50.0",))
    card = model_card(replace(bundle, manifest=manifest), ())
    assert "| R@10 | hits@3 |" in card and "| 50.0 |\n" in card and "| 25.0 |\n" in card


def test_the_leaderboard_shows_it():
    bands = {name: {"hits@3": 0.5, "macro-F1@5": 0, "R@10": 0} for name in (*FREQUENCY_BINS, "all")}
    figures = {"bands": bands | {"1-9": bands["1"]}, "hierarchical": None, "probabilities": {}}
    costs = {"training_seconds": 1, "milliseconds": 1}
    assert columns_of({"figures": figures | {"costs": costs}})["hits@3"] == 50
