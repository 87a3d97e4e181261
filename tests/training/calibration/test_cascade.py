"""Up to which doubt the first stage answers, against a slow count and on made-up documents."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import expit

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.names import STAGES
from longtail.training.calibration.cascade import (
    CONFIDENCE_Z,
    fit_cascade,
    kept_cascade,
    within_limit,
)
from longtail.training.calibration.ensemble import Blending, fit_blending
from longtail.training.calibration.members import DevRanking
from longtail.training.calibration.scored_pairs import ScoredPairs

NUM_LABELS = 30
CATALOGUE = LabelCatalogue(Label(f"L{i}", f"l{i}", training_count=40) for i in range(NUM_LABELS))


def upper_of(losses: list[float], size: int, step: float) -> float:
    """The oracle: the limit of the mean over all documents, with one that loses a place."""
    padded = np.array([*losses, *[0.0] * (size - len(losses)), step])
    return float(padded.mean() + CONFIDENCE_Z * padded.std() / np.sqrt(len(padded)))


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from([-0.4, -0.2, 0.0, 0.0, 0.0, 0.2, 0.4])),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([0.01, 0.03, 0.1, 1.0]),
)
def test_doubt_is_raised_until_the_limit_is_passed(documents, max_loss):
    doubts = np.array([float(doubt) for doubt, _ in documents])
    losses = np.array([loss for _, loss in documents])
    wanted = (0, 0.0)
    for most in sorted(set(doubts)):
        first = losses[doubts <= most].tolist()
        if upper_of(first, len(losses), 0.2) > max_loss:
            break
        wanted = len(first), sum(first) / len(losses)
    found = within_limit(doubts, losses, 0.2, max_loss)
    assert found.num_first == wanted[0]
    assert found.loss == pytest.approx(wanted[1], abs=1e-12)
    if found.num_first:
        first = losses[doubts <= np.sort(doubts)[found.num_first - 1]].tolist()
        assert found.upper == pytest.approx(upper_of(first, len(losses), 0.2), abs=1e-12)
        assert found.upper <= max_loss


def test_few_documents_prove_nothing():
    """No loss was seen in twenty documents: that says little about the next."""
    assert within_limit(np.zeros(20), np.zeros(20), 0.2, 0.003).num_first == 0
    assert within_limit(np.zeros(2000), np.zeros(2000), 0.2, 0.003).num_first == 2000


def dev_of(weights: dict[str, float], num_documents: int = 800) -> DevRanking:
    """Documents whose labels are drawn by scorers of these weights."""
    rng = np.random.default_rng(0)
    scores = {name: rng.normal(size=(num_documents, NUM_LABELS)) for name in weights}
    # In every second document the sparse scorer is sure of itself.
    scores["sparse"][::2] *= 4
    log_odds = -4 + sum(weight * scores[name] for name, weight in weights.items())
    is_true = rng.random(log_odds.shape) < expit(log_odds)
    pairs = ScoredPairs(
        labels=np.tile(np.arange(NUM_LABELS), (num_documents, 1)),
        is_true=is_true,
        is_best=np.ones(is_true.shape, dtype=bool),
        weights=np.ones(is_true.shape, dtype=np.float32),
        scores={name: some.astype(np.float32) for name, some in scores.items()},
    )
    return DevRanking.of(pairs, csr_array(is_true.astype(np.float32)), CATALOGUE, 500)


def blending_of(dev: DevRanking) -> Blending:
    return fit_blending(dev, {"ensemble": tuple(dev.pairs.scores), "fast": ("sparse",)})


def test_the_first_stage_answers_what_it_is_sure_of():
    dev = dev_of({"sparse": 2.0, "retrieval": 1.0})
    blending = blending_of(dev)
    strict, loose = (fit_cascade(dev, blending, most) for most in (0.02, 0.05))
    assert strict is not None and loose is not None
    assert 0.1 <= strict.first_share < loose.first_share <= 1
    assert strict.most_doubt < loose.most_doubt
    for rule in (strict, loose):
        assert rule.loss < rule.loss_limit <= rule.max_loss
        assert rule.places == 5


def test_where_the_stages_answer_alike_the_first_answers_all():
    dev = dev_of({"sparse": 2.0, "retrieval": 1e-9}, 2000)
    blending = blending_of(dev)
    if set(blending.blends["ensemble"].weights) == {"sparse"}:  # it was chosen to be so
        assert fit_cascade(dev, blending, 0.003) is None
        return
    rule = fit_cascade(dev, blending, 0.003)
    assert rule is not None and rule.first_share > 0.9


@pytest.mark.parametrize("missing", STAGES)
def test_without_both_blends_there_is_none(missing, caplog):
    dev = dev_of({"sparse": 2.0, "retrieval": 1.0}, 200)
    blending = blending_of(dev)
    blends = {name: blend for name, blend in blending.blends.items() if name != missing}
    with caplog.at_level(logging.WARNING):
        assert fit_cascade(dev, Blending(blending.calibrations, blends), 0.003) is None
    assert f"there is no {missing!r}" in caplog.text


def test_an_ensemble_without_an_encoder_needs_none(caplog):
    dev = dev_of({"sparse": 2.0, "names": 2.0}, 400)
    assert fit_cascade(dev, blending_of(dev), 0.5) is None
    assert "reads by no encoder" in caplog.text


def test_too_few_texts_of_the_first_stage_are_told(caplog):
    dev = dev_of({"sparse": 0.5, "retrieval": 3.0}, 300)
    assert fit_cascade(dev, blending_of(dev), 0.001) is None
    assert "fewer than 10 %" in caplog.text


def test_what_was_fitted_is_kept(tmp_path):
    dev = dev_of({"sparse": 2.0, "retrieval": 1.0})
    blending = blending_of(dev)
    rule = kept_cascade(tmp_path, lambda: fit_cascade(dev, blending, 0.05))

    def again():
        raise AssertionError

    assert rule is not None and kept_cascade(tmp_path, again) == rule
    assert kept_cascade(tmp_path / "other", lambda: None) is None
    assert not (tmp_path / "other").exists()
