"""What becomes of the fields of a request."""

from types import SimpleNamespace

import pytest

from longtail.models.options import RankingOptions
from longtail.service.engine.queries import LabelSets, options_for
from longtail.service.schemas.requests import Options


@pytest.mark.parametrize(("given", "k"), [({}, 3), ({"k": 5}, 5), ({"k": 2}, 2)])
def test_only_a_k_that_nobody_asked_for_is_at_most_the_number_of_labels(given, k):
    class Model:
        scorers = SimpleNamespace(default="sparse")
        catalogue = range(3)

    assert options_for(Options(**given), Model(), LabelSets()) == RankingOptions(k, "sparse")
