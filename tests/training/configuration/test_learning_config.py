"""What the configuration of negatives and losses takes, and what it refuses, by name."""

import pytest
from pydantic import ValidationError

from longtail.models.errors import ConfigError
from longtail.training.configuration.learning import LearningConfig

SAMPLED = {"distribution": {"kind": "uniform"}, "weighting": "importance", "num_negatives": 8}
SUBSET = {"distribution": {"kind": "uniform_subset"}, "num_negatives": 8}


def read(negatives=None, **loss) -> LearningConfig:
    content = {"negatives": negatives, "loss": loss} if loss else {"negatives": negatives}
    return LearningConfig.model_validate(content)


@pytest.mark.parametrize(
    ("negatives", "loss", "message"),
    [
        (
            {"distribution": {"kind": "within_batch"}, "weighting": "constant", "num_negatives": 9},
            {"kind": "softmax"},
            "num_negatives is 9, but distribution 'within_batch' settles how many",
        ),
        (
            {"distribution": {"kind": "all"}, "weighting": "importance", "exclude": "none"},
            {"kind": "softmax"},
            "would count each positive twice",
        ),
        (SAMPLED | {"weighting": None}, {"kind": "ordered"}, "got distribution 'uniform'"),
        (SUBSET | {"exclude": "none"}, {"kind": "ordered"}, "the positive among the negatives"),
        (
            SUBSET,
            {"kind": "ordered", "rank_weights": [2, 1, 3]},
            "rank_weights increase: 1.0 at rank 2, then 3.0",
        ),
    ],
)
def test_impossible_combinations_are_refused_by_name(negatives, loss, message):
    with pytest.raises(ValidationError) as refusal:
        read(negatives, **loss)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("negatives", "loss", "message"),
    [
        (
            SAMPLED,
            {"kind": "softmax"},
            "num_negatives is 8, but distribution 'uniform' has 6 labels",
        ),
        (
            {
                "distribution": {"kind": "hard", "share": 1},
                "weighting": "constant",
                "num_negatives": 4,
            },
            {"kind": "softmax"},
            "num_negatives is 4, but distribution 'hard' has 3 labels",
        ),
        (
            {"distribution": {"kind": "all"}},
            {"kind": "ordered", "rank_weights": 7},
            "rank_weights has 7 ranks, but a pair has at most 6 negatives",
        ),
    ],
)
def test_what_so_few_labels_make_impossible_is_refused(negatives, loss, message):
    config = read(negatives, **loss)
    with pytest.raises(ConfigError, match=message):
        config.check(num_labels=7, num_hard=3)
