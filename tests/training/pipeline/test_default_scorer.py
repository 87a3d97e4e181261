"""The default scorer is a blend, unless dev prefers another scorer beyond chance."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.scorers.calibration import IDENTITY
from longtail.training.calibration.ensemble import Blending
from longtail.training.calibration.members import DevRanking
from longtail.training.calibration.scored_pairs import ScoredPairs
from longtail.training.pipeline.dev_split import DefaultScorer, Lead, choose_default

NUM_LABELS = 12
CATALOGUE = LabelCatalogue(Label(f"L{i}", f"l{i}", training_count=20) for i in range(NUM_LABELS))


def dev_of(num_documents: int, noise: dict[str, float], seed: int = 0) -> DevRanking:
    """Documents with labels of their own, seen by scorers with noise."""
    rng = np.random.default_rng(seed)
    shape = (num_documents, NUM_LABELS)
    truth = rng.random(shape) < 0.3
    scores = {
        name: (4 * truth - 3 + some * rng.normal(size=shape)).astype(np.float32)
        for name, some in noise.items()
    }
    pairs = ScoredPairs(
        labels=np.tile(np.arange(NUM_LABELS), (num_documents, 1)), is_true=truth,
        is_best=np.ones(shape, dtype=bool), weights=np.ones(shape, dtype=np.float32), scores=scores,
        counts=np.zeros(shape, dtype=np.int64),
    )  # fmt: skip
    return DevRanking.of(pairs, csr_array(truth.astype(np.float32)), CATALOGUE, 500)


def chosen(dev: DevRanking, members: tuple[str, ...]) -> DefaultScorer:
    """The default where `ensemble` blends some of the scorers."""
    return chosen_of(dev, {"ensemble": members})


def chosen_of(dev: DevRanking, blends: dict[str, tuple[str, ...]]) -> DefaultScorer:
    """The default where each blend is of some of the scorers."""
    curves = dict.fromkeys(dev.pairs.scores, IDENTITY)
    fitted = {name: dev.blend(members, curves) for name, members in blends.items()}
    return choose_default(dev, Blending(curves, fitted, {}), (*dev.pairs.scores, *blends))


@pytest.mark.parametrize("seed", range(4))
def test_a_difference_within_chance_leaves_the_blend(seed):
    """The blend is `names` and little else: which scorer is ahead is chance."""
    found = chosen(dev_of(60, {"names": 2.0, "sparse": 6.0}, seed), ("names", "sparse"))
    assert found.name == "ensemble"
    assert "ensemble" in found.reason and "names" in found.reason and "nDCG@5" in found.reason


def test_a_scorer_that_is_better_beyond_chance_is_the_default():
    found = chosen(dev_of(200, {"names": 0.5, "sparse": 6.0}), ("sparse",))
    assert found.name == "names" and "more than chance" in found.reason


@pytest.mark.parametrize("seed", range(4))
def test_an_encoder_that_helps_within_chance_is_not_asked_by_default(seed):
    dev = dev_of(60, {"sparse": 2.0, "retrieval": 6.0}, seed)
    found = chosen_of(dev, {"fast": ("sparse",), "ensemble": ("sparse", "retrieval")})
    assert found.name == "fast"
    assert "ensemble" in found.reason and "within chance" in found.reason


def test_an_encoder_that_helps_beyond_chance_is_asked_by_default():
    dev = dev_of(300, {"sparse": 2.0, "retrieval": 2.0})
    found = chosen_of(dev, {"fast": ("sparse",), "ensemble": ("sparse", "retrieval")})
    assert found.name == "ensemble" and "more than chance" in found.reason


def test_without_a_blend_the_highest_is_the_default_and_of_equal_ones_the_last():
    dev = dev_of(50, {"names": 2.0, "sparse": 0.5})
    assert choose_default(dev, Blending({}, {}), ("names", "sparse")).name == "sparse"
    dev.pairs.scores["more"] = dev.pairs.scores["sparse"]
    assert choose_default(dev, Blending({}, {}), ("names", "sparse", "more")).name == "more"
    assert choose_default(dev, Blending({}, {}), ("names",)) == DefaultScorer("names", "")


def test_no_scorer_is_praised_where_all_that_each_says_is_wrong():
    dev = dev_of(50, {"names": 0.0, "sparse": 0.0})
    for name, scores in dev.pairs.scores.items():
        dev.pairs.scores[name] = -scores
    found = choose_default(dev, Blending({}, {}), ("names", "sparse"))
    assert found.name == "sparse" and found.reason.startswith("the first 5 labels of each scorer")


def test_a_few_documents_decide_nothing():
    assert not Lead.of(np.full(3, 0.2), 5).is_beyond_chance
    assert Lead.of(np.full(30, 0.2), 5).is_beyond_chance
    assert not Lead.of(np.tile([0.2, -0.2], 30), 5).is_beyond_chance
