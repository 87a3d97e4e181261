"""Log-odds of short texts: a line through those of documents, and what is refused as one."""

import numpy as np
import pytest

from longtail.models.bundle.manifest import Calibration
from longtail.models.fitted.familiar_range import FAMILIAR_RANGE, FamiliarRange, ShortTexts
from longtail.models.scorers.calibration import log_odds_of

BENT = Calibration(knots=(-1.0, 2.0), slopes=(0.5, 1.0, 4.0), intercept=-3.0)
LINE = ShortTexts(known_words=(2, 8, 32), shifts=(-1.0, 0.5, 0.0), factors=(0.5, 0.75, 1.0))
SCORES = np.linspace(-4, 6, 50).astype(np.float32)


@pytest.mark.parametrize(
    ("known", "shift", "factor"),
    [(0, -1.0, 0.5), (2, -1.0, 0.5), (4, -0.25, 0.625), (16, 0.25, 0.875)],
)
def test_the_line_lies_between_its_knots_in_the_logarithm_of_the_words(known, shift, factor):
    found = log_odds_of(LINE.of_text(BENT, known), SCORES)
    np.testing.assert_allclose(found, shift + factor * log_odds_of(BENT, SCORES), atol=1e-12)
    assert (np.diff(found) > 0).all()


def test_documents_stay_as_they_are():
    assert LINE.of_text(BENT, 32) is None
    assert LINE.of_text(BENT, 1000) is None


@pytest.mark.parametrize(
    "wrong",
    [
        ((8, 2, 32), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
        ((0, 32), (0.0, 0.0), (1.0, 1.0)),
        ((), (), ()),
        ((2, 32), (0.0,), (1.0, 1.0)),
        ((2, 32), (0.0, 0.5), (1.0, 1.0)),
        ((2, 32), (0.0, 0.0), (0.0, 1.0)),
        ((2, 32), (float("nan"), 0.0), (1.0, 1.0)),
    ],
)
def test_lines_that_change_the_order_or_documents_are_refused(wrong):
    with pytest.raises((ValueError, TypeError), match="expected"):
        ShortTexts(*wrong)


def test_they_lie_in_the_file_of_what_documents_are_like():
    found = FamiliarRange(100, 0.01, 32, 500, 0.2, None, {"sparse": LINE})
    assert FAMILIAR_RANGE.from_json(FAMILIAR_RANGE.to_json(found), 1) == found
    with pytest.raises(ValueError, match="shifts: missing"):
        FAMILIAR_RANGE.from_json(FAMILIAR_RANGE.to_json(found).replace("shifts", "moves"), 1)
