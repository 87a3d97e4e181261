"""Python's search for circles of objects that nothing else refers to.

It goes through all objects that live for long, and nothing else runs meanwhile: with the compute
libraries loaded that takes some tenths of a second. So those are left out of it, once they are
there, and looked at only where a model is to be freed.
"""

from __future__ import annotations

import gc


def collect_garbage() -> None:
    """Free all circles now, wherever they are, and leave what remains out of later searches."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
