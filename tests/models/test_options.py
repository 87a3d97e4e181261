"""Options of a query that no model could answer are refused by name, value and expectation."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from longtail.models.labels.filters import LabelFilter
from longtail.models.options import RankingOptions


def make(**given: Any) -> RankingOptions:
    """Make options as a caller does; here, the test run would refuse other types before us."""
    options = object.__new__(RankingOptions)
    for field in fields(RankingOptions):
        object.__setattr__(options, field.name, given.get(field.name, field.default))
    options.__post_init__()
    return options


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
