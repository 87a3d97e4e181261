"""Which labels stand below which, against plain recursion over random relations."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.filters import LabelFilter
from longtail.models.labels.hierarchy import LabelHierarchy
from longtail.models.labels.selection import LabelSelector


def catalogue_of(broader: list[list[int]], **options) -> LabelCatalogue:
    """Labels by number, each with the numbers of its broader ones."""
    labels = (
        Label(f"L{row}", f"label {row}", broader=tuple(f"L{each}" for each in above))
        for row, above in enumerate(broader)
    )
    return LabelCatalogue(labels, **options)


ANIMALS = catalogue_of([[], [0], [0], [1, 2], [], [99]])
"""0 over 1 and 2, both over 3; 4 alone; 5 below a concept that is no label."""


def test_relations_go_both_ways_and_end_at_the_catalogue():
    hierarchy = LabelHierarchy(ANIMALS)
    assert hierarchy.narrower(0) == (1, 2)
    assert hierarchy.broader(3) == (1, 2)
    assert hierarchy.below(0).tolist() == [0, 1, 2, 3]
    assert hierarchy.above(3).tolist() == [0, 1, 2, 3]
    assert hierarchy.tops == [0]
    assert hierarchy.broader(5) == () and hierarchy.below(5).tolist() == [5]
    assert bool(hierarchy) and ANIMALS.has_hierarchy
    plain = catalogue_of([[], [99]])
    assert not LabelHierarchy(plain) and not plain.has_hierarchy


@given(st.lists(st.lists(st.integers(0, 9), max_size=2), min_size=10, max_size=10))
def test_every_label_with_relations_is_below_a_top(broader):
    hierarchy = LabelHierarchy(catalogue_of(broader))
    below = {each for top in hierarchy.tops for each in hierarchy.below(top).tolist()}
    for row in range(10):
        assert (row in below) == bool(hierarchy.narrower(row) or hierarchy.broader(row))
    for top in hierarchy.tops:  # no top stands below another one
        others = (hierarchy.below(each).tolist() for each in hierarchy.tops if each != top)
        assert all(top not in found for found in others)


@given(
    st.integers(1, 12).flatmap(
        lambda size: st.lists(
            st.lists(st.integers(0, size), max_size=3), min_size=size, max_size=size
        )
    )
)
def test_ancestors_are_the_transitive_closure(broader):
    size = len(broader)
    step = np.eye(size, dtype=bool)
    for row, above in enumerate(broader):
        step[row, [each for each in above if each < size]] = True
    closure = step
    for _ in range(size):
        closure = (closure.astype(int) @ step) > 0
    hierarchy = LabelHierarchy(catalogue_of(broader))
    assert (hierarchy.ancestors().toarray() > 0).tolist() == closure.tolist()
    for row in range(size):
        assert hierarchy.below(row).tolist() == np.flatnonzero(closure[:, row]).tolist()


def select(catalogue: LabelCatalogue = ANIMALS, **fields) -> list[int]:
    found = LabelSelector(catalogue).select(LabelFilter(**fields))
    assert found is not None
    return found.labels.tolist()


def test_under_keeps_a_label_and_all_below_it():
    assert select(under=("L1",)) == [1, 3]
    assert select(under=("L1", "L4")) == [1, 3, 4]
    assert select(under=("L0",), exclude=("L3",)) == [0, 1, 2]
    assert select(under=("L0",), include=("L2", "L4")) == [2]
    assert select(under=("L4",), include=("L2",)) == []
    assert not LabelFilter(under=("L0",)).is_empty
