"""One comparison of arrays of floating-point numbers, with an absolute part."""

import numpy as np


def assert_all_close(actual, expected, rtol: float) -> None:
    """Refuse numbers that differ by more than `rtol` of themselves and of the largest expected one.

    A number near 0 that comes from a sum has the rounding errors of the terms, which are larger.
    """
    expected = np.asarray(expected, dtype=np.float64)
    finite = np.abs(expected[np.isfinite(expected)])
    atol = rtol * finite.max(initial=0.0)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=rtol, atol=atol)


def assert_same_answers(answers, expected) -> None:
    """Fail unless texts have the same labels in the same order, with nearly the same scores.

    A bundle's BERT is read without Transformers, and its sums are in another order.
    """
    for answer, wanted in zip(answers, expected, strict=True):
        assert [label.id for label in answer.labels] == [label.id for label in wanted.labels]
        scores, wanted_scores = ([x.score for x in each.labels] for each in (answer, wanted))
        assert_all_close(scores, wanted_scores, rtol=1e-4)
