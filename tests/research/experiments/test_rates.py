"""A rate for each setting: chosen on one half with one seed, and told."""

import numpy as np
from scipy.sparse import csr_array

from research.experiments.data import ExperimentData, Part, tuning_and_measured
from research.experiments.rates import RATE, RatedRun, rates_record, run_with_rates
from research.experiments.trials import Trial, TrialStore

TRIALS = [Trial("task", name, seed) for seed in (0, 1) for name in ("low", "high")]
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
    found = run_with_rates(TrialStore(tmp_path, {}), TRIALS, RATES, ran.rated())
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
