"""What scikit-learn's users get for input that can't be used."""

from __future__ import annotations

from longtail.models.errors import DataError


class InvalidInputError(DataError, ValueError):
    """Texts, labels or parameters of an estimator are not as they have to be."""
