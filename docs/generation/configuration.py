"""The keys of a training run's configuration, from the pydantic models that read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from docs.generation.markdown import code, sentence, table
from docs.generation.types import default_of, describe, sections_of
from longtail.training.configuration.run import TrainingConfig

_HEADINGS = ("key", "default", "values", "meaning")


def render() -> str:
    """Return the part of the page: the top level, then each section, then each kind of a part."""
    parts = ["## Top level", _keys(TrainingConfig)]
    seen: set[type[BaseModel]] = {TrainingConfig}
    for name, models in _sections(TrainingConfig, "", seen):
        parts.append(f"## `{name}`")
        for model in models:
            kind = model.model_fields.get("kind")
            if kind is not None:
                parts.append(f"### `{name}: {{kind: {kind.default}}}`")
            parts += [_about(model), _keys(model)]
    return "\n\n".join(filter(None, parts))


def _sections(
    model: type[BaseModel], prefix: str, seen: set[type[BaseModel]]
) -> Iterator[tuple[str, list[type[BaseModel]]]]:
    """Yield the sections below a model, each with its models: several where there are kinds."""
    for name, field in model.model_fields.items():
        models = [section for section in sections_of(field.annotation) if section not in seen]
        if not models:
            continue
        seen.update(models)
        path = f"{prefix}{name}"
        yield path, models
        for section in models:
            yield from _sections(section, f"{path}.", seen)


def sections_in(model: type[BaseModel]) -> Iterator[tuple[str, list[type[BaseModel]]]]:
    """Yield the keys of a model that are sections, each with its models."""
    for name, field in model.model_fields.items():
        if models := sections_of(field.annotation):
            yield name, models


def _keys(model: type[BaseModel]) -> str:
    rows = [
        (f"`{name}`", _default(field), describe(field.annotation, tuple(field.metadata)),
         meaning_of(model, name))
        for name, field in model.model_fields.items()
        if name != "kind"
    ]  # fmt: skip
    return table(_HEADINGS, rows)


def _default(field: FieldInfo) -> str:
    default = default_of(field)
    if default is ...:
        return "required"
    if isinstance(default, BaseModel):
        kind: Any = getattr(default, "kind", None)
        return f"`{{kind: {kind}}}`" if kind else "its defaults"
    return code(default) or "none"


def meaning_of(model: type[BaseModel], name: str) -> str:
    """Return the description of a key: its own, else a base's, else that of its section."""
    bases = [base for base in model.__mro__ if name in getattr(base, "model_fields", {})]
    own = (base.model_fields[name].description for base in bases)
    sections = sections_of(model.model_fields[name].annotation)
    return sentence(next(filter(None, own), "")) or (_about(sections[0]) if sections else "")


def _about(model: type[BaseModel]) -> str:
    return sentence(model.__doc__)
