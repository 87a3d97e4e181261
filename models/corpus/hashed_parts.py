"""The splits of a corpus in one file: a document's split follows from a hash of its id or its text.

Of ten ids (of ten texts, where documents have no ids) eight are to train on, one each for dev and
test. The hash is BLAKE2b, of 8 bytes, of the UTF-8 bytes, with a personalisation of its own. So
neither the order of the documents nor a seed changes a split, and no document changes its split
when others are added, or, with ids, when its text is edited.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from longtail.models.corpus.forms import SPLIT_NAMES
from longtail.models.corpus.raw import Division, RawDocument

LEAST_DIVIDED = 200
"""Fewer different ids or texts are not divided: a tenth of them would say too little."""
LEAST_GROUPS = 50
"""Fewer groups are not divided: a split could be empty."""
SHARES = {"train": 8, "dev": 1, "test": 1}
"""Tenths of the texts."""
_PERSONALISATION = b"longtail parts"
_NAME_OF_TENTH = [name for name in SPLIT_NAMES for _ in range(SHARES[name])]


def part_of(key: str) -> str:
    """Return the name of the split that an id or a text is in."""
    return _NAME_OF_TENTH[_hash_of(key) % len(_NAME_OF_TENTH)]


def part_of_document(document: RawDocument, division: Division) -> str:
    """Return the name of the split that a document is in."""
    return part_of((_id_of(document) if division == "id" else None) or document.text)


def _id_of(document: RawDocument) -> str | None:
    """Return what keeps documents in one split: their group, where they have one, or their id."""
    return document.group or document.id


def division_of(documents: Iterable[RawDocument]) -> Division | None:
    """Return what documents are to be divided by; None: there are too few to be divided.

    By their groups, where these are named; by their ids, if there are `LEAST_DIVIDED` different
    ones; else by their texts. Reads no more documents than it needs.
    """
    ids: set[int] = set()
    texts: set[int] = set()
    least_ids, has_groups = LEAST_DIVIDED, False
    for document in documents:
        texts.add(_hash_of(document.text))
        if document.group:
            least_ids, has_groups = LEAST_GROUPS, True
        if name := _id_of(document):
            ids.add(_hash_of(name))
        if len(texts) >= LEAST_DIVIDED and (len(ids) >= least_ids or not ids):
            return "id" if ids else "text"
    return "text" if len(texts) >= LEAST_DIVIDED and not has_groups else None


def _hash_of(key: str) -> int:
    content = key.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8, person=_PERSONALISATION).digest()
    return int.from_bytes(digest, "big")
