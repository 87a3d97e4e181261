"""Errors of the service that have a status of their own."""

from __future__ import annotations

from longtail.models.errors import LongtailError, OverloadedError


class QueueFullError(OverloadedError):
    """There is no room for more work.

    Attributes:
        retry_after_s: Whole seconds after which there may be.
    """

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineError(LongtailError):
    """The time limit of a query passed before its answer was there."""


class ChangeError(LongtailError):
    """The models can't be changed as requested; the served models stay."""


class FeedbackConflictError(LongtailError):
    """The id of an entry of feedback is taken: by another entry, or by one that was deleted."""


class FeedbackStoreError(LongtailError):
    """The store of feedback can't be read or written; predictions don't need it."""
