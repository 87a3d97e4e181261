"""Which verdicts an answer follows."""

import math

import numpy as np
import pytest

from longtail.models.bundle.learned_from import Followed
from longtail.models.ranking.top_k import NO_LABEL
from longtail.training.updating.judged import JudgedTexts
from longtail.training.updating.verdicts import TextVerdicts


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


def test_texts_with_fewer_verdicts_are_padded():
    texts = JudgedTexts.of(
        [
            TextVerdicts("one", "", frozenset({7, 3}), frozenset()),
            TextVerdicts("two", "", frozenset({9}), frozenset({1})),
        ]
    )
    assert texts.said == Followed(2, 3, 1) and texts.said.verdicts == 4
    assert texts.right.tolist() == [[3, 7], [9, NO_LABEL]]
    found = texts.followed(
        np.array([[3], [0]]), np.array([[0.0, 0.9], [0.9, 0.0]]), np.array([[0.0], [0.1]]), 0.5
    )
    assert found == Followed(2, 3, 1)
    assert texts.known_in(8).right.tolist() == [[3, 7], [NO_LABEL, NO_LABEL]]
    assert JudgedTexts.of([]).said == Followed(0, 0, 0)
