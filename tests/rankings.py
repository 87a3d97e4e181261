"""Rankings of made-up scores: a source of them, many rounds of few labels, and comparisons."""

from contextlib import ExitStack, contextmanager
from unittest import mock

import numpy as np
from scipy.sparse import csr_array

from longtail.models.ranking.top_k import NO_LABEL, top_of_scores


def dense(rows, num_columns):
    """The matrix of `Rows`, with 0 where they have nothing."""
    shape = (len(rows.indptr) - 1, num_columns)
    return csr_array((rows.data, rows.indices, rows.indptr), shape=shape).toarray()


class DenseSource:
    """A `Source` over a matrix of scores; -inf where a label can't be scored."""

    def __init__(self, scores):
        self.scores = scores
        self.num_queries = len(scores)
        self.labels = np.flatnonzero(np.isfinite(scores).any(axis=0))
        self.num_labels = max(1, len(self.labels))
        self.num_read = 0
        self.touched = set()

    def top(self, rows, m):
        self.num_read = max(self.num_read, m)
        best = top_of_scores(self.scores[rows], m)
        self.touched |= set(best.labels.flat)
        return best

    def score(self, rows, labels):
        self.touched |= set(labels.flat)
        found = np.take_along_axis(self.scores[rows], np.maximum(labels, 0), axis=1)
        return np.where(labels == NO_LABEL, np.float32(-np.inf), found)


@contextmanager
def shallow(first_named=1):
    """Never score all labels, and let the sources name so few together in the first round."""
    with ExitStack() as stack:
        for name, value in (("threshold_algorithm._FIRST_DEPTH", first_named),
                            ("top_k._ALWAYS_UP_TO", 0)):  # fmt: skip
            stack.enter_context(mock.patch(f"longtail.models.ranking.{name}", value))
        yield


def assert_same(found, wanted):
    """Fail unless two rankings are the same to the bit."""
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_array_equal(found.scores, wanted.scores)
