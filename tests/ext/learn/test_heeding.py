"""Blends and default scorer that heed verdicts: where dev does not object, and only there."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.ext.learn.heeding import Heeding
from longtail.ext.learn.judged import JudgedTexts
from longtail.ext.learn.verdicts import TextVerdicts
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.names import ENSEMBLE, NAMES, SPARSE
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.calibration.ensemble import Blending, fit_blending
from longtail.training.calibration.members import DevRanking
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.pipeline.dev_split import DefaultScorer, choose_default

NUM_LABELS, NEW = 13, 12
"""The last label was added by people: no dev document can have it."""
CATALOGUE = LabelCatalogue(Label(f"L{i}", f"l{i}", training_count=20) for i in range(NUM_LABELS))
CURRENT = DefaultScorer(NAMES, "chosen in training")


def pairs_of(truth: np.ndarray, noise: dict[str, float], rng: np.random.Generator) -> ScoredPairs:
    """Pairs of all labels, as scorers with noise see them."""
    return ScoredPairs(
        labels=np.tile(np.arange(truth.shape[1]), (len(truth), 1)),
        is_true=truth,
        is_best=np.ones(truth.shape, dtype=bool),
        weights=np.ones(truth.shape, dtype=np.float32),
        scores={
            name: (4 * truth - 3 + some * rng.normal(size=truth.shape)).astype(np.float32)
            for name, some in noise.items()
        },
        counts=np.full(truth.shape, 20),
    )


def dev_of(noise: dict[str, float], num_documents: int = 150) -> DevRanking:
    rng = np.random.default_rng(0)
    truth = np.pad(rng.random((num_documents, NEW)) < 0.25, ((0, 0), (0, 1)))
    matrix = csr_array(truth.astype(np.float32))
    pairs = pairs_of(truth, noise, rng).of_first_labels(NEW)
    return DevRanking.of(pairs, matrix, CATALOGUE, 500)


def heeding_of(num_texts: int) -> Heeding:
    """Texts with a new label, of which no name is found, and a rejected one, whose name is."""
    rng = np.random.default_rng(1)
    said = [
        TextVerdicts(f"text {i}", "", frozenset({NEW}), frozenset({i % 4}))
        for i in range(num_texts)
    ]
    judged = JudgedTexts.of(said)
    is_right = np.zeros((num_texts, NUM_LABELS), dtype=bool)
    is_right[:, NEW] = True
    pairs = pairs_of(is_right, {NAMES: 0.5, SPARSE: 0.5}, rng)
    has_verdict = is_right.copy()
    has_verdict[np.arange(num_texts), judged.wrong[:, 0]] = True
    names = pairs.scores[NAMES]
    names[:, NEW] = -np.inf
    names[np.arange(num_texts), judged.wrong[:, 0]] = 1.0
    pairs.weights[:] = has_verdict
    return Heeding(judged, pairs, csr_array(is_right.astype(np.float32)), CATALOGUE, 500, CURRENT)


def fitted_on(dev: DevRanking) -> Blending:
    """A blend of names alone, as training chooses it where names are enough."""
    return fit_blending(dev, {ENSEMBLE: (NAMES, SPARSE)}, {ENSEMBLE: (NAMES,)})


def followed(heeding: Heeding, dev: DevRanking, blending: Blending) -> tuple[int, int]:
    tried = heeding._tried(dev, blending.blends[ENSEMBLE], blending.calibrations)
    return tried.followed.accepted, tried.followed.rejected


def test_a_scorer_that_knows_what_people_said_joins_a_blend_of_names_alone():
    dev, heeding = dev_of({NAMES: 0.5, SPARSE: 1.0}), heeding_of(30)
    before = fitted_on(dev)
    assert before.blends[ENSEMBLE].weights.keys() == {NAMES}
    after = heeding.blending(dev, before)
    assert after.blends[ENSEMBLE].weights.keys() == {NAMES, SPARSE}
    assert followed(heeding, dev, before)[0] == 0 and followed(heeding, dev, after)[0] == 30
    assert {NAMES, SPARSE, ENSEMBLE} == after.calibrations.keys() >= after.thresholds.keys()


def test_dev_refuses_a_blend_that_ranks_it_worse():
    """The scorer that knows the judged texts is noise on dev."""
    dev, heeding = dev_of({NAMES: 0.5, SPARSE: 30.0}), heeding_of(30)
    before = fitted_on(dev)
    assert heeding.blending(dev, before) is before


def test_verdicts_that_are_followed_already_change_nothing():
    dev, heeding = dev_of({NAMES: 0.5, SPARSE: 1.0}), heeding_of(30)
    heeding.judged.right[:] = heeding.judged.wrong[:] = NO_LABEL
    before = fitted_on(dev)
    assert heeding.blending(dev, before) is before


@pytest.mark.parametrize(("num_texts", "expected"), [(1, NAMES), (40, ENSEMBLE)])
def test_the_default_follows_documents_once_verdicts_contradict_names(num_texts, expected):
    dev, heeding = dev_of({NAMES: 0.5, SPARSE: 1.8}), heeding_of(num_texts)
    dev = replace(dev, unseen=dev.pairs)
    blending = fit_blending(dev, {ENSEMBLE: (NAMES, SPARSE)}, {ENSEMBLE: (SPARSE,)})
    names = (NAMES, SPARSE, ENSEMBLE)
    assert choose_default(dev, blending, names).name == NAMES
    assert heeding.default(dev, blending, names).name == expected
