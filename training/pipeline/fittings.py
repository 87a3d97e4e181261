"""All that fits scorers without an encoder, and how a run uses it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError
from safetensors.numpy import load_file

from longtail.models.errors import ConfigError
from longtail.models.files.durable import read_json, write_json_durably
from longtail.models.kinds.registry import KINDS, with_own_models
from longtail.models.kinds.scorer import ScorerKind
from longtail.training.configuration.run import TrainingConfig, problems_in_words
from longtail.training.fitting import FittedOn, Fitting
from longtail.training.lexical.fit import NamesFitting
from longtail.training.lexical.word_vectors import WordVectorsFitting
from longtail.training.memory.fit import NeighboursFitting
from longtail.training.memory.vectors import WordNeighboursFitting
from longtail.training.runtime.kept import kept, save_arrays
from longtail.training.runtime.run_log import stage_cost

FITTINGS: dict[str, Fitting] = {
    each.name: each
    for each in (NamesFitting(), NeighboursFitting(), WordVectorsFitting(), WordNeighboursFitting())
}
"""By the name of the scorer; the sparse model and those of an encoder are fitted by the run."""


def register(fitting: Fitting) -> None:
    """Add what fits a scorer that is registered in `longtail.models.kinds.registry`."""
    found = [kind for kind in with_own_models([fitting.name]) if not kind.needs_encoder]
    if not found or fitting.name in FITTINGS:
        raise ConfigError(
            f"scorer {fitting.name!r}: expected the name of a registered scorer without an encoder "
            "that nothing fits yet; register its ScorerKind first"
        )
    FITTINGS[fitting.name] = fitting


def with_scorer_settings(config: TrainingConfig) -> TrainingConfig:
    """Return a configuration with all settings of scorers, defaults among them."""
    given = config.scorer_settings
    if other := sorted(set(given).difference(config.scorers)):
        raise ConfigError(f"scorer_settings: got {', '.join(other)}; expected names of `scorers`")
    own = [kind.name for kind in with_own_models(config.scorers) if not kind.needs_encoder]
    if unfitted := [name for name in own if name not in FITTINGS]:
        raise ConfigError(
            f"scorers: nothing is registered that fits {', '.join(unfitted)}; leave it out, or "
            "import the package that registers it"
        )
    found = {name: settings_of(name, given.get(name, {})) for name in {*own, *given}}
    kept = {name: each.model_dump(mode="json") for name, each in found.items() if each is not None}
    return config.model_copy(update={"scorer_settings": kept})


def settings_of(name: str, given: Mapping[str, Any]) -> BaseModel | None:
    """Return the settings of a scorer; None where it has none."""
    settings = FITTINGS[name].settings if name in FITTINGS else None
    if settings is None:
        if given:
            raise ConfigError(f"scorer_settings.{name}: this scorer has none; leave it out")
        return None
    try:
        return settings.model_validate(given)
    except ValidationError as error:
        raise ConfigError(f"scorer_settings.{name}: {problems_in_words(error)}") from error


def fit_scorers(
    scorers: Collection[str],
    on: FittedOn,
    settings: Mapping[str, Mapping[str, Any]],
    folder: Path,
    *,
    suffix: str = "",
    before: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the models of scorers that need no encoder, for `ModelParts.models`.

    Args:
        scorers: Those that are wanted.
        on: The documents.
        settings: By the name of the scorer.
        folder: The run's folder, which keeps what was fitted there.
        suffix: Tells this fit from another one of the same run.
        before: Models that were fitted before on other documents; one stays where nothing is
            learned from these.
    """
    found: dict[str, Any] = {}
    for name in filter(scorers.__contains__, FITTINGS):
        known = before.get(name)
        with stage_cost(folder, f"{name}{suffix}"):
            of_scorer = settings_of(name, settings.get(name, {}))
            on = replace(on, models=dict(found))
            fit = partial(FITTINGS[name].fit, on, of_scorer, known)
            model = _kept(KINDS[name], on, folder / f"{name}{suffix}", fit)
        model = known if model is None else model
        if model is not None:
            found[name] = model
    return found


def _kept(kind: ScorerKind, on: FittedOn, folder: Path, fit: Callable[[], Any]) -> Any | None:
    def read(texts: Path) -> Any:
        arrays = load_file(folder / kind.file)
        return kind.read(arrays, read_json(texts), on.sparse, len(on.catalogue))

    def write(texts: Path, model: Any) -> None:
        save_arrays(folder / kind.file, kind.arrays(model))
        write_json_durably(texts, kind.texts(model))

    return kept(folder / "texts.json", fit, read, write)
