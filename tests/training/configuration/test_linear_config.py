"""The linear scorers' configuration: what a method uses has a default, the rest is refused."""

from typing import get_args

import pytest
from pydantic import ValidationError

from longtail.training.configuration.linear import (
    WITH_REGULARISER,
    WITH_TREE,
    LinearConfig,
    MethodName,
)

METHODS = get_args(MethodName)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_what_it_uses_and_no_more(method):
    config = LinearConfig(method=method)
    assert (config.num_negatives is None) == (method == "softmax")
    assert (config.regulariser is None) == (method not in WITH_REGULARISER)
    assert (config.tree is None) == (method not in WITH_TREE)
    assert LinearConfig.model_validate(config.model_dump()) == config


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"method": "softmax", "num_negatives": 2}, "num_negatives decides nothing with method"),
        ({"method": "uniform", "tree": {}}, "tree decides nothing with method 'uniform'; expected"),
        ({"method": "nce", "num_negatives": None}, "num_negatives is missing for method 'nce'"),
        ({"num_negatives": 4}, "num_negatives decides nothing with no method; expected with"),
        ({"method": None}, "there is no method; expected one, or 'negatives' and 'loss'"),
        ({"num_negatives": 0}, "greater than or equal to 1"),
        ({"learning_rate": float("inf")}, "finite"),
        ({"rate": 1}, "Extra inputs"),
    ],
)
def test_what_can_not_be_or_decides_nothing_is_refused(content, words):
    with pytest.raises(ValidationError, match=words):
        LinearConfig.model_validate(content)
