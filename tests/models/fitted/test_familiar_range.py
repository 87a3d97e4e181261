"""Bounds of held-out documents: how many documents of their kind are outside, and who is warned."""

import numpy as np
import pytest

from longtail.models.fitted.familiar_range import FamiliarRange
from longtail.models.results import Familiarity


def documents(num, seed, *, has_nearest=True):
    rng = np.random.default_rng(seed)
    lengths = np.maximum(5, rng.lognormal(4, 0.5, num)).astype(int)
    known = rng.binomial(lengths, 0.9)
    nearest = rng.beta(5, 5, num).tolist() if has_nearest else [None] * num
    rows = zip(lengths.tolist(), known.tolist(), nearest, strict=True)
    return [Familiarity(*row) for row in rows]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (Familiarity(4, 4, None), "4 known words"),
        (Familiarity(9000, 9000, None), "9000 known words"),
        (Familiarity(100, 30, None), "70% of its words are unknown"),
        (Familiarity(50, 45, 0.0), "similarity"),
        (Familiarity(0, 0, None), "0 known words"),
    ],
)
def test_a_text_that_is_outside_is_told_with_the_reason(text, told):
    found = FamiliarRange.of_documents(documents(500, 1))
    (warning,) = found.warnings_about(text)
    assert (warning.code, warning.label_ids) == ("unlike-training", ())
    assert told in warning.detail
    assert not found.warnings_about(Familiarity(55, 50, 0.5))
