"""The splits of a corpus in one file: which one a document is in, by a hash of its text.

Of ten texts eight are to train on, one each for dev and test. The hash is BLAKE2b, of 8 bytes, of
the text's UTF-8 bytes, with a personalisation of its own. So equal texts are in one split, neither
the order of the documents nor a seed changes it, and no document changes it when others are added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from training.formats.forms import SPLIT_NAMES

LEAST_DIVIDED = 200
"""Fewer different texts are not divided: a tenth of them would say too little."""
SHARES = {"train": 8, "dev": 1, "test": 1}
"""Tenths of the texts."""
_PERSONALISATION = b"longtail parts"
_NAME_OF_TENTH = [name for name in SPLIT_NAMES for _ in range(SHARES[name])]


def part_of(text: str) -> str:
    """Return the name of the split that a text is in."""
    return _NAME_OF_TENTH[_hash_of(text) % len(_NAME_OF_TENTH)]


def are_enough(texts: Iterable[str]) -> bool:
    """Return whether there are `LEAST_DIVIDED` different texts; reads no more of them."""
    seen: set[int] = set()
    for text in texts:
        seen.add(_hash_of(text))
        if len(seen) >= LEAST_DIVIDED:
            return True
    return False


def _hash_of(text: str) -> int:
    content = text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8, person=_PERSONALISATION).digest()
    return int.from_bytes(digest, "big")
