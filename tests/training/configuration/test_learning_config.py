"""What the configuration of negatives and losses takes, and what it refuses, by name."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from models.errors import ConfigError
from training.configuration.learning import LearningConfig

SAMPLED = {"q": {"kind": "uniform"}, "w": "importance", "m": 8}
SUBSET = {"q": {"kind": "uniform_subset"}, "m": 8}


def read(negatives=None, **loss) -> LearningConfig:
    content = {"negatives": negatives, "loss": loss} if loss else {"negatives": negatives}
    return LearningConfig.model_validate(content)


def test_the_default_is_the_loss_of_depl():
    assert LearningConfig().loss.kind == "depl"


@pytest.mark.parametrize(
    ("negatives", "loss"),
    [
        (SAMPLED, {"kind": "softmax"}),
        (SAMPLED | {"shared": True}, {"kind": "decoupled", "part": "cosine_contrastive"}),
        ({"q": {"kind": "within_batch"}, "w": "constant"}, {"kind": "softmax"}),
        ({"q": {"kind": "all"}, "w": "tail"}, {"kind": "softmax"}),
        ({"q": {"kind": "hard", "share": 1}, "w": "constant", "m": 4}, {"kind": "softmax"}),
        (SUBSET, {"kind": "ordered", "vartheta": {"kind": "top_k", "k": 8}}),
        (SUBSET, {"kind": "ordered", "vartheta": {"kind": "given", "weights": [2, 1, 1, 0]}}),
        (SUBSET, {"kind": "ordered", "phi": "ramp", "ramp_width": 0.5}),
        ({"q": {"kind": "all"}}, {"kind": "ordered"}),
        (None, {"kind": "soft_top_k", "k": 3}),
    ],
)
def test_possible_combinations_are_taken(negatives, loss):
    config = read(negatives, **loss)
    assert config.loss.kind == loss["kind"]
    config.check(num_labels=100, num_hard=10)


@pytest.mark.parametrize(
    ("negatives", "loss", "message"),
    [
        (
            {"q": {"kind": "hard", "share": 1}, "w": "importance", "m": 4},
            {"kind": "softmax"},
            "w 'importance' needs log q of every label, which q 'hard' with share 1 can't give",
        ),
        (SAMPLED | {"m": None}, {"kind": "softmax"}, "q 'uniform' needs m"),
        (
            {"q": {"kind": "within_batch"}, "w": "constant", "m": 9},
            {"kind": "softmax"},
            "m is 9, but q 'within_batch' settles how many",
        ),
        (
            {"q": {"kind": "softmax"}, "w": "importance", "m": 9, "shared": True},
            {"kind": "softmax"},
            "q 'softmax' can't be drawn once for all pairs",
        ),
        (
            {"q": {"kind": "all"}, "w": "importance", "exclude": "none"},
            {"kind": "softmax"},
            "would count each positive twice",
        ),
        (SUBSET, {"kind": "softmax"}, "loss 'softmax' needs w"),
        (None, {"kind": "decoupled"}, "loss 'decoupled' needs 'negatives'"),
        (SAMPLED, {"kind": "depl"}, "loss 'depl' is taken over the batch's label subset"),
        (SUBSET | {"w": "tail"}, {"kind": "ordered"}, "drop w 'tail'"),
        (SAMPLED | {"w": None}, {"kind": "ordered"}, "not q 'uniform'"),
        (SUBSET | {"exclude": "none"}, {"kind": "ordered"}, "the positive among the negatives"),
        (
            SUBSET,
            {"kind": "ordered", "vartheta": {"kind": "top_k", "k": 9}},
            "vartheta has 9 ranks, but m is 8; wanted B >= k",
        ),
        (
            SUBSET,
            {"kind": "ordered", "vartheta": {"kind": "power_law", "k": 2, "exponent": -1}},
            "vartheta increases: exponent -1.0",
        ),
        (
            SUBSET,
            {"kind": "ordered", "vartheta": {"kind": "given", "weights": [2, 1, 3]}},
            "vartheta increases: 1.0 at rank 2, then 3.0",
        ),
        (
            SUBSET,
            {"kind": "ordered", "vartheta": {"kind": "given", "weights": [0, 0]}},
            "vartheta is 0 at every rank",
        ),
        (SUBSET, {"kind": "ordered", "ramp_width": 2}, "ramp_width is given, but phi is 'hinge'"),
        (SAMPLED | {"w": "best"}, {"kind": "softmax"}, "'tail'"),
        (SAMPLED | {"q": {"kind": "zipf"}}, {"kind": "softmax"}, "'frequency'"),
    ],
)
def test_impossible_combinations_are_refused_by_name(negatives, loss, message):
    with pytest.raises(ValidationError) as refusal:
        read(negatives, **loss)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("negatives", "loss", "message"),
    [
        (SAMPLED, {"kind": "softmax"}, "m is 8, but q 'uniform' has 6 labels"),
        (
            {"q": {"kind": "hard", "share": 1}, "w": "constant", "m": 4},
            {"kind": "softmax"},
            "m is 4, but q 'hard' has 3 labels",
        ),
        (None, {"kind": "soft_top_k", "k": 7}, "k is 7, of 7 labels"),
        (
            {"q": {"kind": "all"}},
            {"kind": "ordered", "vartheta": {"kind": "top_k", "k": 7}},
            "vartheta has 7 ranks, but a pair has at most 6 negatives",
        ),
    ],
)
def test_what_so_few_labels_make_impossible_is_refused(negatives, loss, message):
    config = read(negatives, **loss)
    with pytest.raises(ConfigError, match=message):
        config.check(num_labels=7, num_hard=3)


def test_with_the_positive_in_the_support_all_labels_can_be_drawn():
    read(SAMPLED | {"m": 7, "exclude": "none"}, kind="softmax").check(num_labels=7, num_hard=0)
