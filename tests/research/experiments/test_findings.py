"""Findings of papers, tested on made-up trials, against scipy's paired t-test."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import ttest_rel

from research.experiments.data import ExperimentData, Part, thirds, tuning_and_measured
from research.experiments.findings import Finding, run_tests
from research.experiments.rates import RATE, RatedRun, rates_record, run_with_rates
from research.experiments.trials import Estimate, Trial, TrialStore

FOUND = {
    "task": {
        "good": {"R": Estimate((0.5, 0.6, 0.55)), "error": Estimate((0.1, 0.1))},
        "near": {"R": Estimate((0.45, 0.58, 0.52)), "error": Estimate((0.2, 0.2))},
        "far": {"R": Estimate((0.1, 0.2, 0.16)), "error": Estimate((0.2, 0.4))},
        "lone": {"R": Estimate((0.3,))},
    }
}


def finding(better: str, *others: str, figure: str = "R", lower: bool = False) -> Finding:
    return Finding("a claim", "task", figure, better, others, lower)


def test_the_advantage_is_over_the_nearest_rival_with_the_p_value_of_a_paired_t_test():
    (tested,) = run_tests(FOUND, [finding("good", "far", "near")])
    wanted = ttest_rel((0.5, 0.6, 0.55), (0.45, 0.58, 0.52), alternative="greater")
    assert tested.rival == "near"
    assert tested.p_value == pytest.approx(wanted.pvalue)
    assert tested.advantage.values == pytest.approx((0.05, 0.02, 0.03))
    assert tested.verdict == "holds"


@pytest.mark.parametrize(
    ("asked", "p_value", "verdict"),
    [
        # Two-sided, 0.0315 the other way is 0.063; with two others tried it is twice that.
        (finding("near", "good"), 1 - 0.0315, "not significant"),
        (finding("far", "good"), 1 - 4e-4, "contrary"),
        (finding("near", "far"), 0.0, "holds"),
        (finding("good", "lone"), None, "one seed"),
        # No variance over two seeds: by their signs alone.
        (finding("good", "near", figure="error", lower=True), 1 / 4, "not significant"),
        # The same evidence either way has the same words.
        (finding("good", "far", figure="error", lower=True), 0.1476, "not significant"),
        (finding("good", "far", figure="error"), 0.8524, "not significant"),
    ],
)
def test_verdicts(asked, p_value, verdict):
    (tested,) = run_tests(FOUND, [asked])
    assert tested.verdict == verdict
    if p_value is None:
        assert tested.p_value is None
    else:
        assert tested.p_value == pytest.approx(p_value, abs=2e-3)


def test_findings_are_corrected_for_how_many_were_looked_at():
    asked = [finding("good", "near"), finding("near", "far"), finding("near", "good")]
    alone = [run_tests(FOUND, [each])[0].p_value for each in asked]
    tested = run_tests(FOUND, asked)
    assert [each.p_value for each in tested] == alone
    assert tested[0].corrected == pytest.approx(2 * alone[0])
    assert [each.verdict for each in tested] == ["not significant", "holds", "not significant"]


def test_a_finding_of_nothing_holds_by_chance_no_more_often_than_the_level_says():
    rng = np.random.default_rng(0)
    names = [f"s{i}" for i in range(10)]
    asked = [finding(a, b) for a, b in itertools.pairwise(names)]
    told = []
    for _ in range(300):
        settings = {name: {"R": Estimate(tuple(rng.normal(size=3)))} for name in names}
        verdicts = {each.verdict for each in run_tests({"task": settings}, asked)}
        told.append(("holds" in verdicts, "contrary" in verdicts))
    # 5 % of 300 are 15; four standard errors of the count are another 15.
    assert all(count <= 30 for count in np.sum(told, axis=0))


TRIALS = [Trial("task", name, seed) for seed in range(2) for name in ("b", "a")]


def figures(trial: Trial) -> dict[str, float]:
    return {"x": 0.25 + 0.5 * trial.seed, "y": float(trial.setting == "a")}


def test_a_stopped_experiment_goes_on_with_what_is_missing(tmp_path):
    ran = []

    def failing(trial: Trial) -> dict[str, float]:
        ran.append(trial)
        if len(ran) == 3:
            raise KeyboardInterrupt
        return figures(trial)

    with pytest.raises(KeyboardInterrupt):
        TrialStore(tmp_path, {"n": 1}).run(TRIALS, failing)
    found = TrialStore(tmp_path, {"n": 1}).run(TRIALS, failing)
    assert ran == [*TRIALS[:3], *TRIALS[2:]]
    assert found == TrialStore(tmp_path / "other", {"n": 1}).run(TRIALS, figures)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_thirds_divide_the_labels_and_no_frequency(counts):
    counts = np.array(counts)
    parts = thirds(counts)
    assert (sum(parts[name].astype(int) for name in ("Head", "Torso", "Tail")) == 1).all()
    for name, is_in in parts.items():
        assert name == "Full" or not set(counts[is_in]) & set(counts[~is_in])


RATE_TRIALS = [Trial("task", name, seed) for seed in (0, 1) for name in ("low", "high")]
RATES = (0.1, 1.0, 10.0)
BEST = {"low": 0.1, "high": 10.0}


class Recorded:
    """Runs whose figure is best at one rate of each setting."""

    def __init__(self) -> None:
        self.tuned: list[tuple[str, int, float]] = []
        self.measured: list[tuple[str, int, float]] = []

    def rated(self) -> RatedRun:
        def tune(trial, rate):
            self.tuned.append((trial.setting, trial.seed, rate))
            return {"error": abs(np.log(rate / BEST[trial.setting]))}

        def measure(trial, rate):
            self.measured.append((trial.setting, trial.seed, rate))
            return {"x": rate}

        return RatedRun(measure, tune, lambda _, values: -values["error"])


def test_each_setting_has_the_rate_that_is_best_for_it_on_the_other_half(tmp_path):
    ran = Recorded()
    found = run_with_rates(TrialStore(tmp_path, {}), RATE_TRIALS, RATES, ran.rated())
    assert ran.measured == [(name, seed, BEST[name]) for seed in (0, 1) for name in ("low", "high")]
    assert ran.tuned == [(name, 0, rate) for name in ("low", "high") for rate in RATES]
    assert found["task"]["low"][RATE].values == (0.1, 0.1)
    assert rates_record(found) == {"task": {"low": 0.1, "high": 10.0}}


def documents(number: int) -> ExperimentData:
    rng = np.random.default_rng(0)
    words = csr_array(rng.random((number, 5)).astype(np.float32))
    truth = csr_array(np.ones((number, 2), dtype=np.float32))
    return ExperimentData(Part(words, truth), Part(words, truth))


def test_halves_share_no_text_and_lose_none():
    data = documents(200)
    doubled = data.measured.rows(np.repeat(np.arange(200), 2))
    tuning, measured = tuning_and_measured(ExperimentData(data.train, doubled), (0.1, 0.2))
    texts = [{tuple(row) for row in x.measured.features.toarray()} for x in (tuning, measured)]
    assert not texts[0] & texts[1] and len(texts[0] | texts[1]) == 200
    assert 60 < len(texts[0]) < 140
    assert tuning.measured.truth.shape[0] + measured.measured.truth.shape[0] == 400
    assert tuning.train is measured.train is data.train
