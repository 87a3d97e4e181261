"""Python's search for circles of objects that nothing else refers to.

It goes through all objects that live for long, and nothing else runs meanwhile: with the compute
libraries loaded that takes some tenths of a second. So those are left out of it, once they are
there, and looked at only where a model is to be freed. What is left are the requests that wait; of
some thousand of them it takes a tenth of a second, so it is not done every two seconds.
"""

from __future__ import annotations

import gc

_YOUNG_SEARCHES = 200
"""Searches among younger objects for one among all; Python does a full one after every tenth. Under
ten times the load that can be borne, it is one in some fifty seconds."""


def search_rarely() -> None:
    """Let full searches be rare, for the whole process."""
    youngest, young, _ = gc.get_threshold()
    gc.set_threshold(youngest, young, _YOUNG_SEARCHES)


def collect_garbage() -> None:
    """Free all circles now, wherever they are, and leave what remains out of later searches."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
