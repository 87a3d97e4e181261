"""Corpora as training reads them: a folder with documents, in splits, and the labels they share.

`open_dataset` takes any folder in one of the formats of `training.formats`. Text streams; memory is
bounded by the label matrices and the catalogue.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cached_property
from pathlib import Path

import numpy as np

from models.errors import DataError
from models.labels import Label, LabelCatalogue
from training.formats import (
    EXTREME_CLASSIFICATION,
    FORMATS,
    Format,
    RawDocument,
    read_documents,
    read_labels,
)
from training.problems import Problem, ProblemList, list_problems
from training.splits import Document, Split, SplitScan, describe_problems

__all__ = ["SPLIT_NAMES", "Dataset", "Document", "Split", "SplitScan", "open_dataset"]

SPLIT_NAMES = ("train", "dev", "test")


class Dataset:
    """A corpus in a folder: its splits and the labels that they share. Made by `open_dataset`."""

    def __init__(
        self,
        folder: Path,
        form: Format,
        files: dict[str, Path],
        label_file: Path | None,
        *,
        skip_bad: bool = False,
        max_problems: int = 20,
    ) -> None:
        """Read the label file, where there is one; `open_dataset` finds it.

        Args:
            folder: Folder of the corpus.
            form: Format of its files.
            files: File of each split that there is.
            label_file: File of the labels; where there is none, the training documents tell them.
            skip_bad: Whether documents that can't be used are skipped rather than refused.
            max_problems: How many of them are listed for each file.

        Raises:
            DataError: The label file holds lines that can't be used, or none.
        """
        self.folder = folder
        self.form = form
        self.split_names = tuple(name for name in SPLIT_NAMES if name in files)
        self._files = files
        self._label_file = label_file
        self._skip_bad = skip_bad
        self._listed = _labels_of_file(label_file, form, max_problems) if label_file else None
        labels_from = f"the training documents; to have more, give {_either(form.label_files)}"
        if label_file:
            labels_from = label_file.name
        self._splits = {
            name: Split(
                files[name],
                form,
                lambda: self.labels,
                labels_from=labels_from,
                skip_bad=skip_bad,
                max_problems=max_problems,
            )
            for name in self.split_names
        }

    def split(self, name: str) -> Split:
        """Return one of the parts.

        Raises:
            DataError: There is no such part.
        """
        if name not in self._splits:
            raise DataError(
                f"{self.folder}: no split {name!r}; it has {', '.join(map(repr, self.split_names))}"
            )
        return self._splits[name]

    @cached_property
    def catalogue(self) -> LabelCatalogue:
        """The labels, with their number of training documents; reads the training split.

        The order is that of the label file; without one, falling number of training documents,
        then the text of the label. Without a training split all the numbers are 0.

        Raises:
            DataError: Training documents can't be used, or labels can't be read.
        """
        if "train" not in self._splits:
            return self.labels
        labels = self.split("train").scan().labels
        counts = np.bincount(labels.indices, minlength=labels.shape[1])
        return self.labels.replaced(training_count=counts.tolist())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, over the names and bytes of the corpus's own files."""
        files = [*self._files.values(), *([self._label_file] if self._label_file else [])]
        combined = hashlib.sha256()
        for path in sorted(files):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            combined.update(f"{path.name}\n{digest}\n".encode())
        return combined.hexdigest()

    def check(self) -> None:
        """Read every split, so that one error lists the lines of all that can't be used.

        Raises:
            DataError: There are such lines, and they are not to be skipped; or a file can't be read
                to its end.
        """
        found = [split.found for split in self._splits.values()]
        if not self._skip_bad and any(scan.num_skipped for scan in found):
            raise DataError(describe_problems(self.folder, found))

    @cached_property
    def labels(self) -> LabelCatalogue:
        """The labels without their numbers; reads no documents where there is a label file.

        Raises:
            DataError: There is no label file, and the training documents tell no labels.
        """
        return self._listed or _labels_of_documents(self._files["train"], self.form)


def open_dataset(folder: Path, *, skip_bad: bool = False, max_problems: int = 20) -> Dataset:
    """Return the corpus that lies in a folder, in whichever format of `training.formats` it has.

    Labels are read now where there is a file of them, documents when they are first asked for.

    Args:
        folder: Folder of the corpus; files that belong to no format are left alone.
        skip_bad: Whether documents that can't be used are skipped, counted and logged rather than
            refused. A label file must be right in every line all the same.
        max_problems: How many lines that can't be used are listed; all are counted.

    Raises:
        DataError: No file or files of two formats are there, a file is there twice, the label file
            is missing where the format has one, or it holds lines that can't be used.
    """
    found = [
        (form, name, path)
        for form in FORMATS
        for name, file in form.split_files.items()
        if (path := _existing(folder, file))
    ]
    if not found:
        looked_for = "; ".join(f"{x.name}: {', '.join(x.split_files.values())}" for x in FORMATS)
        what = "no documents" if folder.is_dir() else "no such folder"
        raise DataError(f"{folder}: {what}; looked for {looked_for} (each also with .gz)")
    form = found[0][0]
    if any(other is not form for other, _, _ in found):
        names = ", ".join(path.name for _, _, path in found)
        raise DataError(f"{folder}: files of two formats ({names}); keep those of one")
    files = {name: path for _, name, path in found}
    label_file = _find_labels(folder, form)
    if not label_file and (form is EXTREME_CLASSIFICATION or "train" not in files):
        wanted = _either(form.label_files)
        raise DataError(f"{folder}: no labels; wanted {wanted} (also with .gz)")
    return Dataset(folder, form, files, label_file, skip_bad=skip_bad, max_problems=max_problems)


def _find_labels(folder: Path, form: Format) -> Path | None:
    found = [path for name in form.label_files if (path := _existing(folder, name))]
    if len(found) > 1:
        raise DataError(f"{folder}: both {found[0].name} and {found[1].name}; keep one of them")
    return found[0] if found else None


def _existing(folder: Path, name: str) -> Path | None:
    # The file of this name, plain or compressed.
    found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(found) > 1:
        raise DataError(f"{folder}: both {name} and {name}.gz; keep one of them")
    return found[0] if found else None


def _labels_of_file(path: Path, form: Format, max_problems: int) -> LabelCatalogue:
    labels: list[Label] = []
    line_of: dict[str, int] = {}
    problems = ProblemList(path, max_problems)
    for item in read_labels(path, form):
        if isinstance(item, Problem):
            problems.add(item)
        elif (first := line_of.setdefault(item.label.id, item.line)) != item.line:
            problems.add(Problem(item.line, f"id {item.label.id!r} again, as on line {first}"))
        else:
            labels.append(item.label)
    if problems.num_problems:
        listed = list_problems(problems.kept, problems.num_problems)
        raise DataError(
            f"{path}: {problems.num_problems} labels can't be used; "
            f"mend them, for a label can't be skipped\n{listed}"
        )
    if not labels:
        raise DataError(f"{path}: no labels; give one a line")
    return LabelCatalogue(labels)


def _labels_of_documents(path: Path, form: Format) -> LabelCatalogue:
    counts: Counter[str] = Counter()
    for item in read_documents(path, form):
        # Bad lines are reported when the split is scanned.
        if isinstance(item, RawDocument):
            counts.update({str(label) for label in item.labels})
    if not counts:
        raise DataError(
            f"{path}: no document that can be used has a label; "
            f"give some, or a label file ({_either(form.label_files)})"
        )
    return LabelCatalogue(Label(x, x) for x in sorted(counts, key=lambda x: (-counts[x], x)))


def _either(names: tuple[str, ...]) -> str:
    return " or ".join(names)
