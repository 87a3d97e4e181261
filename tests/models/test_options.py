"""Options of a query that no model could answer are refused by name, value and expectation."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from longtail.models.errors import RequestError
from longtail.models.labels.filters import LabelFilter
from longtail.models.options import RankingOptions

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"k": "5"}, r"k is '5' \(str\); expected a whole number"),
    ({"k": 2.5}, r"k is 2\.5 \(float\); expected a whole number"),
    ({"k": True}, r"k is True \(bool\); expected a whole number"),
    ({"k": None}, r"k is None \(NoneType\); expected a whole number"),
    ({"k": 0}, "k is 0; expected at least 1, at most the number of labels"),
    ({"scorer": 1}, r"scorer is 1 \(int\); expected a text or None"),
    ({"scorer": ["a"]}, r"scorer is \['a'\] \(list\); expected a text or None"),
    ({"correction": False}, r"correction is False \(bool\); expected a text or None"),
    ({"threshold": "0.5"}, r"threshold is '0\.5' \(str\); expected a probability from 0 to 1"),
    ({"threshold": float("nan")}, "threshold is nan; expected a probability from 0 to 1"),
    ({"threshold": True}, r"threshold is True \(bool\); expected a probability"),
    ({"threshold": 1.1}, r"threshold is 1\.1; expected a probability from 0 to 1"),
    ({"tail_dial": "1"}, r"tail_dial is '1' \(str\); expected a number from 0 to 1000"),
    ({"tail_dial": None}, r"tail_dial is None \(NoneType\); expected a number from 0 to 1000"),
    ({"tail_dial": float("nan")}, "tail_dial is nan; expected a number from 0 to 1000"),
    ({"tail_dial": float("inf")}, "tail_dial is inf; expected a number from 0 to 1000"),
    ({"aim": 3}, r"aim is 3 \(int\); expected a text or None"),
    (
        {"aim": "macro-f1"},
        "aim is 'macro-f1'; expected one of precision, rare_labels, coverage, propensity",
    ),
    ({"aim": "precision", "tail_dial": 0.5}, "aim is 'precision' and tail_dial 0.5; .* only one"),
    ({"label_filter": ["L1"]}, r"label_filter is \['L1'\] \(list\); expected a LabelFilter"),
    ({"explain": 1}, r"explain is 1 \(int\); expected true or false"),
    ({"explain": "yes"}, r"explain is 'yes' \(str\); expected true or false"),
]


def make(**given: Any) -> RankingOptions:
    """Make options as a caller does; here, the test run would refuse other types before us."""
    options = object.__new__(RankingOptions)
    for field in fields(RankingOptions):
        object.__setattr__(options, field.name, given.get(field.name, field.default))
    options.__post_init__()
    return options


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_what_no_model_could_answer_is_refused(given, message):
    with pytest.raises(RequestError, match=message):
        make(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"k": np.int64(3)},
        {"threshold": np.float32(0.5)},
        {"threshold": 0},
        {"threshold": 1},
        {"tail_dial": 2},
        {"tail_dial": 0.0, "aim": "coverage"},
        {"label_filter": LabelFilter(include=("a",))},
    ],
)
def test_numbers_of_other_libraries_and_whole_ones_are_taken(given):
    make(**given)
