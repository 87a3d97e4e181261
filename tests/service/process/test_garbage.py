"""What lives for long is not searched for garbage, except where something is to be freed."""

import gc
import weakref

from longtail.service.process.memory import collect_cycles


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


def test_a_service_that_is_ready_leaves_out_what_it_has_loaded(open_client, monkeypatch):
    monkeypatch.setattr("longtail.service.versions.redeploy.gc", gc)
    before = gc.get_freeze_count()
    with open_client() as client:
        assert client.get("/readyz").status_code == 200
        assert gc.get_freeze_count() > before
