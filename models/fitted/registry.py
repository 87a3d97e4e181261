"""All parts fitted on a dev split or by a command, with parts that other packages register."""

from __future__ import annotations

from typing import Any

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import Manifest
from longtail.models.errors import BundleCorruptError, ConfigError
from longtail.models.fitted.familiar_range import FAMILIAR_RANGE
from longtail.models.fitted.label_counts import LABEL_COUNTS
from longtail.models.fitted.label_figures import LABEL_FIGURES
from longtail.models.fitted.part import FittedPart, HasFitted
from longtail.models.fitted.promises import PROMISES
from longtail.models.options import CoreOptions, options_class, register_option
from longtail.models.parts.consistency import contradiction
from longtail.models.parts.model_parts import ModelParts

_PARTS = (FAMILIAR_RANGE, LABEL_FIGURES, LABEL_COUNTS, PROMISES)
PARTS: dict[str, FittedPart[Any]] = {part.name: part for part in _PARTS}
"""By name, in the order in which they take part in answers."""


for _part in _PARTS:
    if _part.option is not None:
        register_option(_part.option)


def request_options() -> type[CoreOptions]:
    """Return the class of the options of requests, those of all parts among them."""
    return options_class()


def register(part: FittedPart[Any]) -> None:
    """Add a part, which is then stored, read, checked and shown as all others."""
    if part.name in PARTS or not part.name.isidentifier():
        raise ConfigError(
            f"fitted part {part.name!r}: expected a name of letters, digits and _ that no other "
            f"part has; there are {', '.join(PARTS)}"
        )
    if part.option is not None:
        register_option(part.option)
    PARTS[part.name] = part


def fitted_texts(parts: ModelParts) -> dict[str, str]:
    """Return the files of all parts that a model has, by name."""
    values = ((part, part.of(parts)) for part in PARTS.values())
    return {part.file: part.to_json(value) for part, value in values if value}


def read_fitted(bundle: Bundle) -> dict[str, Any]:
    """Return the parts that a bundle has, for `ModelParts.fitted`."""
    there = bundle.manifest.files
    return {part.name: part.read(bundle) for part in PARTS.values() if part.file in there}


def check_fitted(bundle: Bundle, parts: ModelParts) -> None:
    """Refuse a part that contradicts the others."""
    for name in parts.fitted:
        part = PARTS[name]
        if problem := part.problem(part.of(parts), parts):
            raise BundleCorruptError(contradiction(bundle, part.file, problem))


def card_lines(bundle: Bundle) -> list[str]:
    """Return what the parts of a bundle say in its model card, in sentences."""
    values = read_fitted(bundle).items()
    return [line for name, value in values for line in PARTS[name].card(value)]


def listed_fields(manifest: Manifest | None, model: HasFitted | None) -> dict[str, Any]:
    """Return what a list of versions says of all parts of one (see `FittedPart.listed`)."""
    listed = (part.listed(manifest, model).items() for part in PARTS.values())
    return {field: value for fields in listed for field, value in fields}
