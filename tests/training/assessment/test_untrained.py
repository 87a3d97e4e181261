"""What is said where a version was trained on most documents of a split."""

import numpy as np
import pytest

from longtail.models.errors import DataError
from longtail.training.assessment.untrained import LeftOut


@pytest.mark.parametrize(("split", "is_advised"), [("test", False), ("train", True)])
@pytest.mark.parametrize("num_unrecognised", [0, 90])
def test_no_advice_asks_for_the_split_that_is_in_force(split, is_advised, num_unrecognised):
    left_out = LeftOut(np.arange(100) < 90, num_unrecognised)
    with pytest.raises(DataError) as raised:
        left_out.check("data.csv", split, "version 2")
    said = str(raised.value)
    assert ("use --split test" in said) == is_advised
    assert ("the ids that the training had" in said) == bool(num_unrecognised)
    assert said.partition("others; ")[2]  # there is advice, always
