"""Metrics on draws of documents, kept in files by setting and seed, and the tables made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64
from safetensors.numpy import load_file

from longtail.models.metrics import RankedEvaluation
from longtail.training.evaluation.significance import holm
from longtail.training.runtime.kept import save_arrays
from research.experiments.bootstrap import Draws, interval_of, measured_on, two_sided_p

_LEVEL = 0.05
Drawn = Mapping[str, Float64[np.ndarray, "draw"]]
"""Metrics on every draw, the sample itself first, by name."""


@dataclass(frozen=True, slots=True)
class KeptDraws:
    """The draws of an experiment in its folder.

    Attributes:
        folder: For the files.
        groups: The documents' groups; those of one text have one number, and are drawn together.
    """

    folder: Path
    groups: Int64[np.ndarray, document]

    def keep(
        self,
        setting: str,
        seed: int,
        joined: RankedEvaluation,
        weights: Float64[np.ndarray, label],
        subsets: Mapping[str, Bool[np.ndarray, label]],
    ) -> None:
        """Measure a ranking on the draws (see `measured_on`), and write that."""
        self.folder.mkdir(parents=True, exist_ok=True)
        found = measured_on(Draws.of(self.groups, 1), [joined], weights, subsets)
        save_arrays(self._path(setting, seed), found)

    def over_seeds(self, setting: str, seeds: Sequence[int]) -> Drawn | None:
        """Return the metrics of a setting on draws of documents and of these seeds.

        None where one of them was not kept.
        """
        paths = [self._path(setting, seed) for seed in seeds]
        if not all(path.exists() for path in paths):
            return None
        found = [load_file(path) for path in paths]
        times = Draws.of(self.groups, len(seeds)).seeds
        return {
            name: (np.stack([each[name] for each in found], axis=1) * times).sum(axis=1)
            / len(seeds)
            for name in found[0]
        }

    def _path(self, setting: str, seed: int) -> Path:
        return self.folder / f"{setting.replace(' ', '-')}.{seed}.safetensors"


def interval_tables(
    drawn: Mapping[str, Drawn], reference: str, metrics: Sequence[str]
) -> dict[str, Any]:
    """Return tables of metrics, and of differences from a setting, in percent with intervals.

    A difference that is beyond chance is bold: its two-sided p-value, corrected by Holm's method
    for all differences of the table, is below 5 %.

    Args:
        drawn: By setting; the same draws.
        reference: One of the settings.
        metrics: The columns.
    """
    columns = [{"name": "setting"}, *({"name": metric} for metric in metrics)]
    values = [
        [name, *(_shown(100 * own[metric]) for metric in metrics)] for name, own in drawn.items()
    ]
    others = [name for name in drawn if name != reference]
    apart = [
        [100 * (drawn[name][metric] - drawn[reference][metric]) for metric in metrics]
        for name in others
    ]
    corrected = holm([two_sided_p(each) for row in apart for each in row])
    differences: list[list[Any]] = []
    for number, (name, row) in enumerate(zip(others, apart, strict=True)):
        own = corrected[number * len(metrics) : (number + 1) * len(metrics)]
        cells = [
            f"**{_shown(each)}**" if p is not None and p < _LEVEL else _shown(each)
            for each, p in zip(row, own, strict=True)
        ]
        differences.append([name, *cells])
    return {
        "intervals": {"columns": columns, "rows": values},
        "differences": {"columns": columns, "rows": differences},
    }


def _shown(values: Float64[np.ndarray, draw]) -> str:
    found = interval_of(values)
    return f"{found.value:.2f} [{found.low:.1f}, {found.high:.1f}]"
