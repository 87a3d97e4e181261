"""Listed scores against a dense matrix in which all else is -inf."""

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from longtail.models.labels.selection import Selection
from longtail.models.ranking.listed import ListedSource
from longtail.models.ranking.threshold_algorithm import SUM, rank
from longtail.models.ranking.top_k import Source, top_of_scores

NO_SCORE = -np.inf
SCORES = st.sampled_from([NO_SCORE, NO_SCORE, 0.0, -0.0, 1.0, -2.5, 3.25])


def listed(dense: np.ndarray) -> csr_array:
    """The same as a sparse matrix, whose entries may be 0."""
    rows, columns = np.nonzero(dense > NO_SCORE)
    starts = np.searchsorted(rows, np.arange(len(dense) + 1))
    return csr_array((dense[rows, columns], columns, starts), shape=dense.shape)


DENSE = st.tuples(st.integers(0, 4), st.integers(1, 9)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=SCORES)
)


@settings(max_examples=80)
@given(dense=DENSE, m=st.integers(1, 12), data=st.data())
def test_the_best_labels_are_those_of_all(dense, m, data):
    source = ListedSource(listed(dense))
    assert isinstance(source, Source)
    assert source.num_queries == len(dense)
    assert source.num_labels == max(1, (dense > NO_SCORE).sum(axis=1).max(initial=0))
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(dense))))) if len(dense) else [],
                    dtype=np.int64)  # fmt: skip
    found, wanted = source.top(rows, m), top_of_scores(dense[rows], m)
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_array_equal(found.scores, wanted.scores)
    again = source.score(rows, found.labels)
    np.testing.assert_array_equal(again, found.scores)


@settings(max_examples=80)
@given(first=DENSE, k=st.integers(1, 9), data=st.data())
def test_it_is_ranked_alone_among_some_and_in_sums(first, k, data):
    """By both ways: all scored, or by sorted access."""
    shape = first.shape
    second = data.draw(arrays(np.float32, shape, elements=SCORES))
    some = np.array(data.draw(st.lists(st.booleans(), min_size=shape[1], max_size=shape[1])))
    selection = data.draw(st.sampled_from([None, Selection(some)])) if some.any() else None
    sources = [ListedSource(listed(each)) for each in (first, second)]
    for total, own in ((first, sources[:1]), (first + second, sources)):
        masked = total.copy()
        if selection is not None:
            masked[:, ~some] = NO_SCORE
        wanted = top_of_scores(masked, k)
        for up_to in (0, 1024):
            with (
                mock.patch("longtail.models.ranking.threshold_algorithm._FIRST_DEPTH", 1),
                mock.patch("longtail.models.ranking.exhaustive._ALWAYS_UP_TO", up_to),
                mock.patch("longtail.models.ranking.exhaustive._SHARE", 1 if up_to else 10**9),
            ):
                found = rank([own], SUM, k, shape[1], selection)
            np.testing.assert_array_equal(found.labels, wanted.labels)
            np.testing.assert_array_equal(found.scores, wanted.scores)
