"""A version is measured only on documents that it was not trained on.

The record in its bundle tells them (see `longtail.models.bundle.trained_on`). A corpus is read as
it was when the version was trained: by the same columns, and divided in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.trained_on import DEV, TRAIN, TrainedOn, read_trained_on
from longtail.models.corpus.columns import RECOGNISED, TEXT, TEXT_NAMES, CorpusOptions
from longtail.models.corpus.raw import Division
from longtail.models.errors import DataError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.training.data.dataset import Dataset, open_dataset

if TYPE_CHECKING:  # brings all that answers, which the opening of a corpus does not need
    from longtail.models.edit.rewriting import MeasuredOn

logger = logging.getLogger(__name__)

MOST_TRAINED_ON = 0.5
"""Share of a split's documents that may be left out."""
LEAST_LEFT = 20
"""Documents that are left to measure on, where some are left out of a split that had as many."""
_MOST_HELD_OUT = 1000
_LEAST_ALIKE = 0.05
"""Share of a corpus's documents that a version knows if it was read as at training."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Which documents of a split are left out, as versions were trained on them.

    Attributes:
        is_left_out: Whether each document of the split is.
        num_calibrated_on: How many of the others a version was calibrated on.
        unknown: Names of versions whose training documents are not recorded.
    """

    is_left_out: Bool[np.ndarray, document]
    num_calibrated_on: int = 0
    unknown: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many are left out."""
        return int(np.count_nonzero(self.is_left_out))

    def view(self, dataset: Dataset, split_name: str) -> Dataset:
        """Return the corpus without them."""
        if not self.count:
            return dataset
        return dataset.with_splits({split_name: dataset.split(split_name).part(~self.is_left_out)})

    def check(self, dataset: Dataset, split_name: str, who: str) -> None:
        """Refuse to measure on too few documents, or where most documents are left out."""
        total = len(self.is_left_out)
        few = LEAST_LEFT if total >= LEAST_LEFT else 0
        least = max(ceil((1 - MOST_TRAINED_ON) * total), few)
        if not self.count or total - self.count >= least:
            return
        others = "use --split test, or " if "test" in {*dataset.splits} - {split_name} else ""
        raise DataError(
            f"{dataset.folder}, split {split_name!r}: got {self.count} of {total} documents that "
            f"{who} was trained on; expected at least {least} others; {others}give other documents"
        )

    def __str__(self) -> str:
        """Describe the documents left out in a few sentences; empty where there are none."""
        total = len(self.is_left_out)
        said = []
        if self.count:
            said.append(f"{self.count} of {total} documents were trained on and are left out.")
        if self.num_calibrated_on:
            said.append(
                f"{self.num_calibrated_on} of {total - self.count} documents are those that the "
                "version was chosen and calibrated on."
            )
        if self.unknown:
            said.append(
                f"Whether documents were trained on can't be known: {', '.join(self.unknown)} has "
                "no record of the texts."
            )
        return " ".join(said)

    def to_json(self) -> dict[str, object]:
        """Return the counts."""
        return {
            "documents": len(self.is_left_out),
            "trained_on": self.count,
            "calibrated_on": self.num_calibrated_on,
            "unknown_to": list(self.unknown),
        }


def open_as_trained(
    data: Path,
    options: CorpusOptions,
    bundles: Sequence[Bundle],
    known: LabelCatalogue | None = None,
) -> Dataset:
    """Open a corpus as the first of some versions read its own.

    Args:
        data: Folder of the corpus, or one file.
        options: What is said of it; what is not said is as it was when the version was trained,
            where the corpus has these columns.
        bundles: The versions.
        known: As in `open_dataset`.
    """
    if not bundles:
        return open_dataset(data, options, known)
    record = read_trained_on(bundles[0])
    division = division_named(record.divided_by)
    dataset = open_read_as(data, options, record.options, division, known)
    if record.text_columns == (TEXT,) == dataset.text_columns[1:]:  # it has a title, unread then
        before = {"text_columns": (TEXT,), **record.options}
        return open_read_as(data, options, before, division, known)
    return dataset


def held_out(data: Path, bundle: Bundle, split_name: str = DEV) -> MeasuredOn:
    """Return documents of a split that a version was not trained on, at most 1,000."""
    from longtail.models.edit.rewriting import MeasuredOn

    dataset = open_as_trained(data, RECOGNISED, [bundle], bundle.catalogue)
    left_out = find_trained_on([bundle], dataset, split_name)
    split = left_out.view(dataset, split_name).split(split_name)
    num_documents = split.scan().labels.shape[0]
    split = split.part(np.arange(num_documents) % ceil(num_documents / _MOST_HELD_OUT) == 0)
    rows = np.split(split.scan().labels.indices, split.scan().labels.indptr[1:-1])
    ids = [[dataset.labels[row].id for row in each.tolist()] for each in rows]
    return MeasuredOn(list(split.texts()), ids)


def open_read_as(
    data: Path,
    options: CorpusOptions,
    before: Mapping[str, Any],
    division: Division | None,
    known: LabelCatalogue | None = None,
) -> Dataset:
    """Open a corpus as one was read before.

    Args:
        data: Folder of the corpus, or one file.
        options: What is said of it.
        before: Previous options (see `CorpusOptions.to_json`): defaults of options not given.
        division: What one file is divided by.
        known: As in `open_dataset`.
    """
    filled = with_options_of(before, options)
    if "vocabulary" in before and options.vocabulary is None:
        logger.warning(
            "%s: at the training the labels were those of the file %r, which is not remembered; "
            "if they differ here, give --read vocabulary=FILE",
            data, before["vocabulary"],
        )  # fmt: skip
    if filled != options:
        try:
            dataset = open_dataset(data, filled, known, division=division)
            dataset.text_columns  # noqa: B018  # refuses a corpus that lacks them
        except DataError:
            return open_dataset(data, options, known, division=division)
        logger.warning("%s: read with the options of the training: %s", data, filled.to_json())
        return dataset
    return open_dataset(data, options, known, division=division)


def with_options_of(before: Mapping[str, Any], options: CorpusOptions) -> CorpusOptions:
    """Return options, with earlier values where none is given (see `CorpusOptions.to_json`)."""
    given = options.to_json()
    names = {each.name for each in fields(CorpusOptions)} - {"vocabulary"}  # whose folder is lost
    missing: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in before.items()
        if name in names and name not in given
    }
    return replace(options, **missing)


def division_named(name: str | None) -> Division | None:
    """Return the division of this name."""
    return name if name in {"id", "text"} else None  # type: ignore[return-value]


def find_trained_on(bundles: Sequence[Bundle], dataset: Dataset, split_name: str) -> LeftOut:
    """Return which documents of a split are left out, as one of some versions was trained on them.

    Those that a version was calibrated on are left out as well, but for the split "dev", which is
    for that.

    Args:
        bundles: The versions that are measured.
        dataset: What they are measured on, read as they were trained (see `open_as_trained`).
        split_name: Its split.
    """
    texts = dataset.split(split_name).scan().texts
    trained, calibrated = np.zeros((2, len(texts)), dtype=np.bool_)
    unknown = []
    for bundle in bundles:
        record = read_trained_on(bundle)
        _check_columns(bundle, record, dataset)
        if record.digests:
            trained |= record.knows(TRAIN, texts)
            calibrated |= record.knows(DEV, texts)
        elif _is_own_corpus(bundle, dataset):
            trained |= split_name == TRAIN
            calibrated |= split_name == DEV
        else:
            unknown.append(f"version {bundle.folder.name}")
    if split_name != DEV:
        trained |= calibrated
    num_calibrated = int(np.count_nonzero(calibrated & ~trained))
    left_out = LeftOut(trained, num_calibrated, tuple(unknown))
    who = " and ".join(f"version {bundle.folder.name}" for bundle in bundles)
    left_out.check(dataset, split_name, who)
    if said := str(left_out):
        logger.warning("%s, split %r: %s", dataset.folder, split_name, said)
    return left_out


def _is_own_corpus(bundle: Bundle, dataset: Dataset) -> bool:
    """Whether a version without digests was trained on this very corpus, and on nothing else."""
    learned = bundle.manifest.learned_from
    is_alone = learned is None or learned.corpus == dataset.fingerprint
    return is_alone and bundle.manifest.data_fingerprint == dataset.fingerprint


def _check_columns(bundle: Bundle, record: TrainedOn, dataset: Dataset) -> None:
    """Refuse texts of other columns than a version was trained on.

    Its documents could not be recognised then, and another text may be in another split. Columns
    may have been renamed: documents of the corpus are recognised then.
    """
    before, now = _folded(record.text_columns), _folded(dataset.text_columns)
    if not before or before == now or _share_known(record, dataset) >= _LEAST_ALIKE:
        return
    read_from = _listed(dataset.text_columns) or "columns that are not named"
    where = f"{dataset.folder}: the text is that of {read_from}"
    trained = f"version {bundle.folder.name} was trained on {_listed(record.text_columns)}"
    if not now or (dataset.division is None and {*before} <= {*TEXT_NAMES}):
        logger.warning(
            "%s, and %s; none of its documents is recognised, which is right if none was trained "
            "on", where, trained,
        )  # fmt: skip
        return
    raise DataError(
        f"{where}, but {trained}; its training documents can't be recognised so; name the same "
        f"columns with --read text-columns={','.join(record.text_columns)}, or rename those of "
        "the file"
    )


def _share_known(record: TrainedOn, dataset: Dataset) -> float:
    if not record.digests:
        return 0.0
    scans = [dataset.split(name).scan() for name in dataset.split_names]
    known = [record.knows(name, x.texts).mean() for x in scans for name in (TRAIN, DEV)]
    return float(max(known))


def _folded(names: Sequence[str]) -> list[str]:
    return [name.strip().lower() for name in names]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
