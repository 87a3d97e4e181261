"""What lives for long is not searched for garbage, except where something is to be freed."""

import gc
import weakref

from longtail.service.process.compute_threads import collect_cycles


class Node:
    """A circle of one."""

    def __init__(self):
        self.itself = self


def test_circles_are_freed_even_where_they_were_left_out_before():
    gc.disable()
    try:
        node = Node()
        ref = weakref.ref(node)
        gc.freeze()
        del node
        gc.collect()
        assert ref() is not None
        collect_cycles()
        assert ref() is None
        assert gc.get_freeze_count() > 0
    finally:
        gc.enable()
