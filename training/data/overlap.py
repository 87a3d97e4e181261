"""Documents with equal texts in different splits of a corpus: they are measured on in one alone.

Texts are equal if they differ in white space alone. A document of dev or test whose text is in
train too, or of test whose text is in dev, would be known before it is measured.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from longtail.models.bundle.trained_on import DEV, TRAIN, TrainedOn
from longtail.models.corpus.forms import SPLIT_NAMES
from longtail.models.errors import DataError
from longtail.training.data.dataset import Dataset
from longtail.training.data.splits import Split

logger = logging.getLogger(__name__)

MOST_SHARED = 0.05
"""Share of a split's documents that may be left out; more are no accident."""
FEW_SHARED = 5
"""Documents that may be left out, however small the split is."""


def with_splits_apart(dataset: Dataset) -> Dataset:
    """Return the corpus without documents of dev and test whose text an earlier split has.

    The log says how many. Documents that are divided by a hash of their ids may be left out in any
    number, for the division is not the user's.
    """
    texts = {name: split.scan().texts for name, split in dataset.splits.items()}
    changed: dict[str, Split] = {}
    for name in dataset.split_names[1:]:
        rank = SPLIT_NAMES.index(name)
        earlier = [each for each in texts if SPLIT_NAMES.index(each) < rank]
        shared = np.isin(texts[name], np.concatenate([texts[each] for each in earlier]))
        num_shared = int(np.count_nonzero(shared))
        if num_shared:
            others = " or ".join(earlier)
            _check_few(dataset, name, others, num_shared, len(shared))
            logger.warning(
                "%s: %d of %d documents of %s have the text of a document of %s, and are left out",
                dataset.folder, num_shared, len(shared), name, others,
            )  # fmt: skip
            changed[name] = dataset.splits[name].part(~shared)
    return dataset.with_splits(changed) if changed else dataset


def _check_few(
    dataset: Dataset, name: str, others: str, num_shared: int, num_documents: int
) -> None:
    is_few = num_shared <= max(FEW_SHARED, MOST_SHARED * num_documents)
    if num_shared < num_documents and (is_few or dataset.division):
        return
    raise DataError(
        f"{dataset.folder}: {num_shared} of {num_documents} documents of {name} have the text of a "
        f"document of {others}; expected none, as figures and probabilities from documents that "
        f"were trained on are wrong; remove these documents from {name} or from the other split, "
        f"or give {name} other documents"
    )


def record_of(dataset: Dataset, *, has_digests: bool = True) -> TrainedOn:
    """Return the record of the documents that a model is trained on, for its bundle.

    Args:
        dataset: The corpus, with its splits apart.
        has_digests: Whether to record digests of texts; False where a bundle is to reveal nothing
            of them.
    """
    record = TrainedOn(dataset.text_columns, dataset.options.to_json(), dataset.division)
    if not has_digests:
        return record
    none, splits = np.array([], dtype=np.uint64), dataset.splits
    digests = {
        f"{name}_texts": np.unique(splits[name].scan().texts) if name in splits else none
        for name in (TRAIN, DEV)
    }
    return replace(record, digests=digests)
