"""Which files of a folder are its corpus, and in which of the formats they are."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from models.errors import DataError
from training.formats.documents import EXTREME_CLASSIFICATION, FORMATS, Format

logger = logging.getLogger(__name__)

SPLIT_NAMES = ("train", "dev", "test")


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """The files of a corpus.

    Attributes:
        folder: Where they lie.
        form: Their format.
        splits: Documents of each split there is, in the order of `SPLIT_NAMES`.
        labels: The label file, where there is one.
    """

    folder: Path
    form: Format
    splits: Mapping[str, Path]
    labels: Path | None

    @property
    def paths(self) -> list[Path]:
        """All of them, sorted."""
        return sorted([*self.splits.values(), *([self.labels] if self.labels else [])])

    def fingerprint(self) -> str:
        """Return the SHA-256, in hexadecimal, over the names and bytes of these files."""
        combined = hashlib.sha256()
        for path in self.paths:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            combined.update(f"{path.name}\n{digest}\n".encode())
        return combined.hexdigest()


def find_files(folder: Path) -> CorpusFiles:
    """Return the files of the corpus in a folder; those that belong to no format are left alone.

    Raises:
        DataError: No file or files of two formats are there, a file is there twice, or one is
            missing that the format needs.
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
    splits = {name: path for _, name, path in found}
    labels = _one_of(folder, form.label_files)
    needs_labels = form is EXTREME_CLASSIFICATION or "train" not in splits
    if needs_labels and not labels:
        raise DataError(f"{folder}: no labels; expected {either(form.label_files)} (also with .gz)")
    _warn_of_filters(folder)
    return CorpusFiles(folder, form, splits, labels)


def either(names: tuple[str, ...]) -> str:
    """Return the names as a choice."""
    return " or ".join(names)


def _warn_of_filters(folder: Path) -> None:
    # Label pairs that the repository leaves out when it measures some of its data sets.
    for path in sorted(folder.glob("filter_labels_*.txt")):
        logger.warning(
            "%s is not applied: metrics can't be compared with those published for the filtered "
            "data",
            path,
        )


def _one_of(folder: Path, names: tuple[str, ...]) -> Path | None:
    found = [path for name in names if (path := _existing(folder, name))]
    if len(found) > 1:
        raise DataError(f"{folder}: both {found[0].name} and {found[1].name}; keep one of them")
    return found[0] if found else None


def _existing(folder: Path, name: str) -> Path | None:
    # The file of this name, plain or compressed.
    found = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(found) > 1:
        raise DataError(f"{folder}: both {name} and {name}.gz; keep one of them")
    return found[0] if found else None
