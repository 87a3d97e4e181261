"""All that fits parts of models, and how a finished model gets them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from longtail.models.errors import ConfigError
from longtail.models.fitted.label_counts import LABEL_COUNTS, LabelCounts
from longtail.models.fitted.label_figures import LABEL_FIGURES, LabelFigures
from longtail.models.fitted.registry import PARTS
from longtail.models.fitted.registry import register as register_part
from longtail.models.parts.model_parts import ModelParts
from longtail.training.calibration.ensemble import Blending
from longtail.training.fitted.familiar_range import FamiliarRangeFitting
from longtail.training.fitted.fitting import PartFitting, RankedDevDocuments
from longtail.training.fitted.promises import PromisesFitting
from longtail.training.runtime.kept import kept_text


class LabelCountsFitting(PartFitting[LabelCounts]):
    """Takes thresholds fitted with the blends (see `longtail.training.calibration.thresholds`)."""

    part = LABEL_COUNTS

    def fit(self, dev: RankedDevDocuments, blending: Blending, default: str) -> LabelCounts:
        """Return the thresholds by place."""
        del dev, default
        return blending.label_counts


class LabelFiguresFitting(PartFitting[LabelFigures | None]):
    """Counts how often each label is predicted and right."""

    part = LABEL_FIGURES

    def fit(self, dev: RankedDevDocuments, blending: Blending, default: str) -> LabelFigures | None:
        """Return the figures; None: the default scorer has no threshold."""
        if (threshold := blending.thresholds.get(default)) is None:
            return None
        num_labels = len(dev.predictor.catalogue)
        calibration = blending.calibrations[default]
        return dev.scored(blending).count(default, calibration, threshold, num_labels)


_FITTINGS = (
    FamiliarRangeFitting(), LabelFiguresFitting(), LabelCountsFitting(),
    PromisesFitting(),
)  # fmt: skip
FITTINGS: dict[str, PartFitting[Any]] = {each.part.name: each for each in _FITTINGS}
"""By the name of the part; others are fitted by commands alone."""


def register(fitting: PartFitting[Any]) -> None:
    """Add what fits a part; the part is registered too where it is not yet."""
    name = fitting.part.name
    if name in FITTINGS:
        raise ConfigError(f"fitted part {name!r}: expected the name of one that nothing fits yet")
    if name not in PARTS:
        register_part(fitting.part)
    FITTINGS[name] = fitting


def with_fitted(
    parts: ModelParts,
    dev: RankedDevDocuments,
    blending: Blending,
    default: str,
    folder: Path,
) -> ModelParts:
    """Return a model with all parts that are fitted on a dev split.

    Args:
        parts: The model.
        dev: The documents.
        blending: Fitted on them.
        default: The scorer of queries that name none.
        folder: Keeps what is fitted; what is there already is read.
    """
    fitted = {}
    for name, fitting in FITTINGS.items():
        part = fitting.part
        read = partial(part.from_json, num_labels=len(parts.catalogue))
        fit = partial(fitting.fit, dev, blending, default)
        value = kept_text(folder / part.file, fit, read, part.to_json)
        if value:
            fitted[name] = value
    return replace(parts, fitted=fitted)
