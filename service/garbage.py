"""Python's search for circles of objects that nothing else refers to.

It goes through all objects that live for long, and nothing else runs meanwhile: with the compute
libraries loaded that takes some tenths of a second. So those are left out of it, once they are
there, and looked at only where a model is to be freed. What is left are the requests that wait; of
some thousand of them it takes a tenth of a second, so it is not done every two seconds. The search
among the youngest is made rarer too: by default it looks at requests that will be answered soon,
and took a seventh of the event loop's time.
"""

from __future__ import annotations

import gc

_NEW_OBJECTS = 20_000
"""More objects than at the last search among the youngest for another one; Python's default is 700.
One search in a hundred is among all: after two million."""


def search_rarely() -> None:
    """Let searches be rare, for the whole process."""
    gc.set_threshold(_NEW_OBJECTS, 10, 10)


def collect_garbage() -> None:
    """Free all circles now, wherever they are, and leave what remains out of later searches."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
