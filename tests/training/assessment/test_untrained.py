import numpy as np
import pytest

from longtail.models.errors import DataError
from longtail.training.assessment.untrained import LeftOut


@pytest.mark.parametrize(("split", "is_advised"), [("dev", True), ("test", False)])
def test_no_advice_asks_for_the_split_that_is_in_force(split, is_advised):
    with pytest.raises(DataError) as caught:
        LeftOut(np.arange(100) < 90).check("data.csv", split, "version 2")
    assert ("use --split test" in str(caught.value)) == is_advised
