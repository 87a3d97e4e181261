"""A dev split for a corpus that has none: some training documents, chosen by a hash of their text.

The hash is BLAKE2b, of 8 bytes, of the text's UTF-8 bytes as they are; its own personalisation
keeps it apart from hashes by which the corpus itself may have been divided. Texts are taken by
rising hash, each with all of its documents, and passed over where these no longer fit. So equal
texts are on one side, and neither the order of the documents nor a seed changes a side; few
documents change it when others are added.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, UInt64

from longtail.training.data.dataset import Dataset

logger = logging.getLogger(__name__)

MOST_HELD_OUT = 5_000
"""Documents of a dev split that is made, whatever the share."""
LEAST_HELD_OUT = 20
"""Fewer say too little to choose and to calibrate on."""
_PERSONALISATION = b"longtail dev"


def with_held_out_dev(dataset: Dataset, share: float) -> Dataset | None:
    """Return the corpus with its training documents divided into "train" and "dev".

    All else, the order of the labels and the fingerprint too, is that of the corpus; the numbers
    of its catalogue are of the documents that are left to train on. Of the texts, one is held at a
    time, and a hash of each.

    Args:
        dataset: A corpus without a dev split.
        share: Largest share of the training documents that is held out.

    Returns:
        The view; None, with a warning, where fewer than `LEAST_HELD_OUT` documents would be held
        out, or either part would carry no label.
    """
    training = dataset.split("train")
    is_held_out = held_out_rows(training.texts(), share)
    num_held_out, num_documents = int(np.count_nonzero(is_held_out)), len(is_held_out)
    if num_held_out < LEAST_HELD_OUT:
        logger.warning(
            "%s: no dev split, and %d of %d training documents would be too few for one (at least "
            "%d are needed)", dataset.folder, num_held_out, num_documents, LEAST_HELD_OUT,
        )  # fmt: skip
        return None
    kept, held_out = training.part(~is_held_out), training.part(is_held_out)
    if not (kept.scan().labels.nnz and held_out.scan().labels.nnz):
        logger.warning(
            "%s: no dev split, and of two parts of the training documents one would carry no label",
            dataset.folder,
        )
        return None
    logger.log(
        logging.INFO if dataset.is_given else logging.WARNING,
        "%s: no dev split, so %d of %d training documents are held out: all is chosen and "
        "calibrated on them; keep a tenth as a file of its own, dev: promises, learning and "
        "vocabulary changes need it", dataset.folder, num_held_out, num_documents,
    )  # fmt: skip
    return dataset.with_splits({"train": kept, "dev": held_out})


def held_out_rows(
    texts: Iterable[str], share: float, most: int = MOST_HELD_OUT
) -> Bool[np.ndarray, document]:
    """Return which documents are held out.

    Args:
        texts: Texts of all documents; one is held at a time.
        share: Largest share of the documents that is held out, from 0 to 1.
        most: And at most this number.
    """
    hashes = np.fromiter(map(_hash_of, texts), dtype=np.uint64)
    distinct, counts = np.unique(hashes, return_counts=True)
    room = min(int(share * len(hashes)), most)
    return np.isin(hashes, _fitting(distinct, counts.tolist(), room))


def _fitting(
    hashes: UInt64[np.ndarray, text], counts: list[int], room: int
) -> UInt64[np.ndarray, chosen]:
    """Return the first texts whose documents fit in the room that those before them left."""
    chosen = []
    for row, count in enumerate(counts):
        if room == 0:
            break
        if count <= room:
            chosen.append(row)
            room -= count
    return hashes[chosen]


def _hash_of(text: str) -> int:
    content = text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=8, person=_PERSONALISATION).digest()
    return int.from_bytes(digest, "big")
