"""Corpora as training reads them: documents in splits, and the labels that they share.

`open_dataset` takes a folder or a file in one of the forms of `longtail.models.corpus.forms`.
Text streams; memory is bounded by the label matrices and the catalogue.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import copy
from functools import cached_property
from pathlib import Path

import numpy as np

from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.models.corpus.documents import columns_of
from longtail.models.corpus.files import CorpusFiles, find_files, without_labels
from longtail.models.corpus.forms import SPLIT_NAMES, DocumentSource
from longtail.models.corpus.raw import Division
from longtail.models.errors import DataError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.training.data.labels import (
    labels_of_documents,
    labels_of_file,
    warn_of_look_alikes,
    with_unseen,
)
from longtail.training.data.splits import Document, Split, SplitScan, describe_problems

__all__ = ["SPLIT_NAMES", "Dataset", "Document", "Split", "SplitScan", "open_dataset"]

logger = logging.getLogger(__name__)

_OF_THE_MODEL = "the model"


class Dataset:
    """A corpus: its splits and the labels that they share. Made by `open_dataset`."""

    splits: Mapping[str, Split]
    """Its parts by name."""

    def __init__(
        self,
        files: CorpusFiles,
        known: LabelCatalogue | None = None,
        *,
        max_problems: int = 20,
    ) -> None:
        """Read the label file, where there is one.

        Args:
            files: The files of the corpus.
            known: Labels of a model, which come first where it has neither a label file nor
                training documents.
            max_problems: How many of them are listed for each file.
        """
        is_told = files.labels is not None or "train" in files.splits
        if not is_told and known is None:
            raise DataError(without_labels(files.folder, files.form))
        self.folder = files.folder
        self.options = files.options
        self.label_file = files.labels.name if files.labels else None if is_told else _OF_THE_MODEL
        self.remark = files.remark
        self.is_given = files.is_given
        self.split_names = tuple(files.splits)
        self._files = files
        self._skip_bad = files.options.skip_bad
        self._max_problems = max_problems
        self._told: set[str] = set()
        self._listed: LabelCatalogue | None = None
        self._known = None if is_told else known
        if files.labels:
            self._listed = labels_of_file(files.labels, files, max_problems)
        self.splits = {name: self._split_of(name, each) for name, each in files.splits.items()}
        if files.remark:
            logger.warning("%s: %s", files.folder, files.remark)

    @property
    def paths(self) -> list[Path]:
        """Its files, sorted."""
        return self._files.paths

    @property
    def division(self) -> Division | None:
        """What the splits of a corpus in one file follow from; None: it is not divided."""
        return self._files.division

    @cached_property
    def text_columns(self) -> tuple[str, ...]:
        """The columns, or fields, that the texts are made of; empty where that is not known."""
        return columns_of(next(iter(self._files.splits.values()))).text

    def written_from(self, names: tuple[str, ...], options: CorpusOptions) -> Dataset:
        """Return this corpus as one whose files were written from other columns of text."""
        view = self._view()
        view.__dict__["text_columns"] = names
        view.options = options
        return view

    def split(self, name: str) -> Split:
        """Return one of the parts."""
        if name not in self.splits:
            names = ", ".join(map(repr, self.split_names))
            raise DataError(
                f"{self.folder}: no split {name!r}; it has {names}; {self._advice_for(name)}"
            )
        return self.splits[name]

    def with_splits(
        self, splits: Mapping[str, Split], labels: LabelCatalogue | None = None
    ) -> Dataset:
        """Return this corpus with some splits replaced or added.

        Files and fingerprint are the same; the numbers of its catalogue are those of the split
        "train" that it has then.

        Args:
            splits: By name; all of them, where there are other labels.
            labels: That the splits are over; None: those of this corpus.
        """
        view, merged = self._view(), {**self.splits, **splits}
        if labels is not None:
            view.__dict__["labels"] = labels
        view.splits = {name: merged[name] for name in SPLIT_NAMES if name in merged}
        view.split_names = tuple(view.splits)
        view.__dict__.pop("catalogue", None)  # kept with the numbers of the split before
        return view

    @cached_property
    def catalogue(self) -> LabelCatalogue:
        """The labels, with their number of training documents; reads the training split.

        The order is that of the label file; without one, falling number of training documents,
        then the text of the label, those that only other documents carry last. Without a training
        split all the numbers are 0.
        """
        if "train" not in self.splits:
            return self.labels
        labels = self.split("train").scan().labels
        counts = np.bincount(labels.indices, minlength=labels.shape[1])
        if num_untrained := int(np.count_nonzero(counts == 0)):
            logger.info(
                "%s: %d of %d labels have no training document",
                self.folder,
                num_untrained,
                len(counts),
            )
        return self.labels.replaced(training_count=counts.tolist())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, over the files of the corpus and the reading options."""
        return self._files.fingerprint()

    def check(self) -> None:
        """Read every split, so that one error lists the lines of all that can't be used."""
        found = [split.found for split in self.splits.values()]
        if not self._skip_bad and any(scan.num_skipped for scan in found):
            raise DataError(describe_problems(self.folder, found))
        for split in self.splits.values():
            split.scan()

    @cached_property
    def labels(self) -> LabelCatalogue:
        """The labels without their numbers; reads no documents where there is a label file.

        Those that the documents of a corpus carry and that the model lacks come after the model's.
        """
        if self._known is not None:
            return with_unseen(self._known, self._files)
        found = self._listed or labels_of_documents(self._files, self._max_problems)
        warn_of_look_alikes(self.folder, found)
        return found

    def _view(self) -> Dataset:
        view = copy(self)
        view.__dict__["labels"] = self.labels  # which its splits refer to
        return view

    def _advice_for(self, name: str) -> str:
        """Return what to do for want of a split: no model is measured on its training documents."""
        other = next((f"use --split {x}, or " for x in ("test", "dev") if x in self.splits), "")
        file = next(iter(self._files.form.split_files.get(name, (name,))))
        if name == "dev":
            return (
                f"{other}keep a tenth of the training documents as {file!r} and train again (on "
                "those that 'longtail train' held out the model was trained in the end)"
            )
        how = "give a folder with" if self.folder.is_file() else "add"
        return f"{other}{how} documents that the model was not trained on as {file!r}"

    def _split_of(self, name: str, source: DocumentSource) -> Split:
        return Split(
            source,
            lambda: self.labels,
            label_file=self.label_file,
            is_measured=name != "train",
            skip_bad=self._skip_bad,
            max_problems=self._max_problems,
            told=self._told,
        )


def open_dataset(
    data: Path,
    options: CorpusOptions | None = None,
    known: LabelCatalogue | None = None,
    *,
    max_problems: int = 20,
    division: Division | None = None,
    called: str | None = None,
) -> Dataset:
    """Return a corpus, whichever of the forms of `longtail.models.corpus.forms` it has.

    Labels are read now where there is a file of them, documents when they are first asked for.

    Args:
        data: Folder of the corpus, whose files that belong to no format are left alone; or one
            file, whose documents are divided into splits by a hash of their id or their text.
        options: What its files don't say themselves; None: all is recognised.
        known: Labels of the model that it is to measure, which are its labels, with those that only
            its documents carry, where it has neither a label file nor training documents.
        max_problems: How many lines that can't be used are listed; all are counted.
        division: What one file is divided by; None: by ids, where documents have some.
        called: What messages call it instead of its path, as it is a copy of a program's documents.
    """
    files = find_files(data, options or RECOGNISED, division)
    if called is not None:
        files = files.called(called)
    return Dataset(files, known, max_problems=max_problems)
