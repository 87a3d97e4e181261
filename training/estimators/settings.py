"""The configuration of an estimator's run, from its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

from sklearn.utils import check_random_state

from longtail.models.names import NAMES
from longtail.training.configuration.run import TrainingConfig, read_config
from longtail.training.estimators.invalid_input import InvalidInputError

_MOST_SEED = 2**31 - 1


def settings_of(
    config: str | Path | Mapping[str, Any] | None,
    encoder: str | None,
    random_state: Any,
    *,
    has_label_texts: bool,
) -> TrainingConfig:
    """Return what a run of an estimator trains.

    Args:
        config: A YAML file, or top-level keys of the configuration; None: the defaults.
        encoder: Its name, as the configuration has it; None: nothing that needs one is trained.
        random_state: As scikit-learn has it; None: the seed of the configuration.
        has_label_texts: Whether labels are called by words, so that names can be looked for.

    Raises:
        ConfigError: The configuration is not as it has to be.
        InvalidInputError: It names scorers that need an encoder, and there is to be none.
    """
    is_mapping = isinstance(config, Mapping)
    overrides: dict[str, Any] = dict(config) if isinstance(config, Mapping) else {}
    path = None if config is None or is_mapping else Path(str(config))
    if random_state is not None:
        overrides["seed"] = _seed_of(random_state)
    if encoder is not None:
        return read_config(path, overrides | {"encoder": encoder})
    settings = read_config(path, overrides)
    if settings.has_default_scorers:
        found = [name for name in settings.encoder_free_scorers if name in settings.scorers]
        scorers = [name for name in found if name != NAMES or has_label_texts]
        settings = read_config(path, overrides | {"scorers": scorers})
    if settings.is_dense:
        raise InvalidInputError(
            f"encoder is None, and the configuration has {', '.join(settings.scorers)}; name an "
            "encoder, such as encoder='packaged', or leave out the scorers that need one"
        )
    return settings


def _seed_of(random_state: Any) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(_MOST_SEED))
