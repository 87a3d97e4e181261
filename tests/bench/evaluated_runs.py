"""Folders of `longtail evaluate --predictions`, each of a run with a seed of its own."""

from __future__ import annotations

import filecmp
import itertools
from collections.abc import Sequence
from pathlib import Path

from longtail.models.errors import DataError
from longtail.training.assessment.compare import PREDICTIONS_NAME


def prediction_files(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files of every scorer that each run has predictions of, in the order of the runs.

    Raises:
        DataError: A folder has no predictions, no scorer is in all of them, or two runs agree in
            every byte, so that they are one run given twice, or had the same seed.
    """
    names = {each: {x.stem for x in (each / PREDICTIONS_NAME).glob("*.npz")} for each in folders}
    for folder, found in names.items():
        if not found:
            raise DataError(
                f"{folder}: has no {PREDICTIONS_NAME}/*.npz; "
                "give what 'longtail evaluate --predictions --output' wrote"
            )
    common = sorted(set.intersection(*names.values()))
    if not common:
        raise DataError(f"no scorer has predictions in all of {', '.join(map(str, folders))}")
    files = {name: [each / PREDICTIONS_NAME / f"{name}.npz" for each in folders] for name in common}
    for (i, first), (j, second) in itertools.combinations(enumerate(folders), 2):
        if all(filecmp.cmp(paths[i], paths[j], shallow=False) for paths in files.values()):
            raise DataError(
                f"{first} and {second} have the same predictions; give runs of different seeds"
            )
    return files


def seeds_of(folders: Sequence[Path], seeds: Sequence[int] | None) -> list[int]:
    """Return the seed of each run, 0, 1, 2, ... where none are given.

    Raises:
        DataError: They are not as many as the runs, or one is there twice.
    """
    found = list(range(len(folders))) if seeds is None else list(seeds)
    if len(found) != len(folders) or len(set(found)) != len(found):
        raise DataError(f"{len(folders)} runs, and seeds {found}; give one of its own for each run")
    return found
