"""Which verdicts an answer follows."""

import math

import numpy as np
import pytest

from longtail.ext.learn.judged import JudgedTexts
from longtail.ext.learn.verdicts import TextVerdicts
from longtail.models.bundle.manifest import Followed


def judged(right: set[int], wrong: set[int]) -> JudgedTexts:
    return JudgedTexts.of([TextVerdicts("a text", "", frozenset(right), frozenset(wrong))])


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        ({1: 0.1}, {}, (1, 1, 0)),  # among the first
        ({8: 0.6}, {}, (1, 1, 0)),  # probable enough
        ({8: 0.1}, {}, (0, 0, 0)),
        ({1: 0.3, 8: 0.1}, {}, (0, 1, 0)),  # one of two: the text is not answered as was said
        ({}, {2: 0.1}, (1, 0, 1)),  # improbable, so it is not answered
        ({}, {8: 0.6}, (0, 0, 0)),
        ({1: 0.3}, {2: 0.4}, (0, 1, 0)),  # above the accepted one
        ({1: 0.3}, {2: 0.2}, (1, 1, 1)),
        ({8: -math.inf}, {}, (0, 0, 0)),  # a label that the model lacks
    ],
)
def test_accepted_labels_are_answered_and_rejected_ones_are_not(right, wrong, expected):
    texts = judged(set(right), set(wrong))
    found = texts.followed(
        np.array([[1, 2, 3]]),
        np.array([list(right.values())]).reshape(1, -1),
        np.array([list(wrong.values())]).reshape(1, -1),
        threshold=0.5,
    )
    assert found == Followed(*expected)
