"""Two-level bootstrap: every draw against the metrics of the documents that it has, counted out."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.metrics import (
    RankedEvaluation,
    inverse_propensities,
    join_truth,
    ndcg_at,
    precision_at,
    propensity_scored_precision_at,
    recall_at,
)
from longtail.models.ranking.top_k import NO_LABEL
from research.experiments.bootstrap import Draws, interval_of, measured_on, two_sided_p

NUM_LABELS = 12
RNG = np.random.default_rng(4)
TRUTH = csr_array((RNG.random((30, NUM_LABELS)) < 0.2).astype(np.float32))
WEIGHTS = inverse_propensities(RNG.integers(0, 20, NUM_LABELS), 25)
SUBSETS = {"few": np.arange(NUM_LABELS) < 7, "none": np.zeros(NUM_LABELS, dtype=bool)}


def ranking(seed: int) -> np.ndarray:
    """Return labels in random order, at some documents fewer than there are."""
    rng = np.random.default_rng(seed)
    labels = np.stack([rng.permutation(NUM_LABELS) for _ in range(30)])
    labels[rng.random(30) < 0.3, 4:] = NO_LABEL
    return labels


def counted_out(labels: np.ndarray, times: np.ndarray) -> dict[str, float]:
    """Return the metrics of a ranking whose documents are repeated as a draw says."""
    rows = np.repeat(np.arange(30), times.astype(int))
    joined = join_truth(labels[rows], csr_array(TRUTH[rows]))
    few = joined.restricted_to(SUBSETS["few"])
    return {
        "P@1": precision_at(joined, 1), "P@5": precision_at(joined, 5),
        "nDCG@5": ndcg_at(joined, 5), "PSP@5": propensity_scored_precision_at(joined, 5, WEIGHTS),
        "R@10 (few)": recall_at(few, 10), "R@10 (none)": 0.0,
    }  # fmt: skip


@pytest.fixture
def by_seed():
    return [join_truth(ranking(seed), TRUTH) for seed in range(3)]


def test_every_draw_has_the_metrics_of_its_documents_and_seeds(by_seed):
    draws = Draws.of(np.arange(30), 3, num_draws=70)
    found = measured_on(draws, by_seed, WEIGHTS, SUBSETS)
    for number, (times, seeds) in enumerate(zip(draws.documents, draws.seeds, strict=True)):
        each = [counted_out(ranking(seed), times) for seed in range(3)]
        for name, values in found.items():
            expected = sum(n * own[name] for n, own in zip(seeds, each, strict=True)) / 3
            assert values[number] == pytest.approx(expected, abs=1e-12), name


def test_the_first_draw_is_the_sample():
    draws = Draws.of(np.arange(30), 3)
    assert draws.documents[0].tolist() == [1] * 30
    assert draws.seeds[0].tolist() == [1] * 3
    assert (draws.documents.sum(axis=1) == 30).all()
    assert (draws.seeds.sum(axis=1) == 3).all()


def test_documents_of_a_group_are_drawn_together():
    groups = np.array([5, 5, 9, 2, 2, 2])
    drawn = Draws.of(groups, 1, num_draws=200).documents
    assert (drawn[:, 0] == drawn[:, 1]).all()
    assert (drawn[:, 3:] == drawn[:, 3:4]).all()
    assert len(np.unique(drawn[:, 2])) > 2


def test_an_interval_holds_the_truth_about_as_often_as_it_says():
    rng, held = np.random.default_rng(0), 0
    for trial in range(200):
        effect = 0.5 + 0.05 * rng.normal(size=8)  # seeds differ, and so do documents
        values = effect[:, None] + 0.2 * rng.normal(size=60)
        draws = Draws.of(np.arange(60), 8, num_draws=300, seed=trial)
        means = draws.documents @ values.T / draws.documents.sum(axis=1, keepdims=True)
        found = interval_of((means * draws.seeds).sum(axis=1) / 8)
        assert found.low < found.value < found.high
        held += found.low <= 0.5 <= found.high
    assert 0.87 <= held / 200 <= 0.99


def best_ranking() -> RankedEvaluation:
    """Return each document's own labels first."""
    return join_truth(TRUTH.toarray().argsort(axis=1, kind="stable")[:, ::-1], TRUTH)


def test_a_difference_is_beyond_chance_where_no_draw_turns_it():
    draws = Draws.of(np.arange(30), 1)
    worse = join_truth(ranking(0), TRUTH)
    found = [measured_on(draws, [x], WEIGHTS, {})["P@5"] for x in (best_ranking(), worse)]
    assert two_sided_p(found[0] - found[1]) < 1e-6
    assert two_sided_p(found[1] - found[0]) < 1e-6
    assert two_sided_p(found[0] - found[0]) == 1.0
    assert two_sided_p(np.full(50, 0.2)) == 0.0


def test_p_values_of_no_difference_are_evenly_spread():
    rng = np.random.default_rng(2)
    apart = rng.normal(size=(400, 50))
    draws = Draws.of(np.arange(50), 1, num_draws=300)
    means = draws.documents @ apart.T / 50
    found = np.array([two_sided_p(column) for column in means.T])
    assert 0.02 < (found < 0.05).mean() < 0.10
    assert 0.4 < (found < 0.5).mean() < 0.6
