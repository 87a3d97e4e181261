"""The ablations of DEPL (Zhang et al. 2023, section 6.2 and A.1.5): settings of one configuration.

A setting is a whole training run with one thing changed. What it has in common with another, the
sparse model or the classifier that the dual encoder starts from, is trained once.

    measured/SETTING.SEED/   figures.json; the rankings of each scorer, as `evaluate` writes them
    shared/                  sparse models and classifiers, by a digest of what decided them
    work/SETTING.SEED/       a run that is not done yet
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from longtail.models.errors import ConfigError
from longtail.models.files.typed_json import problem_in_words
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.names import CLASSIFIER, HYBRID
from longtail.training.configuration.run import TrainingConfig
from research.experiments.trials import Trial, choose_settings

BASE = "base"
_LONG_TEXT = "tokens_32"
_PLACES = 10  # of the rankings that are kept
_DEV_NOTE = (
    "The weights of the ensemble were found on this split, so its figures are somewhat too high."
)
_AFTER_CLASSIFIER = (
    "scorers", "warmup_texts", "sparse", "descriptions", "retrieval", "linear",
)  # fmt: skip
"""Settings that the classifier's stage, which comes before the dual encoder's, does not read."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """One setting: what is changed in the base configuration.

    Attributes:
        name: The setting's name.
        what: It is, in words.
        changes: Sections of the configuration, with the keys that get another value.
        without: Scorers that are left out.
        against: The setting that differs from it in the one thing that it is to tell of.
        needs: What there has to be: scorers, or fields of labels.
    """

    name: str
    what: str
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    against: str = BASE
    needs: tuple[str, ...] = ()


def _text(**keys: Any) -> dict[str, dict[str, Any]]:
    """Return the change of the label text: 20 keywords, as in A.1.3, but for what is given."""
    whole = {"num_keywords": 20, "alternative_names": 0, "parents": False}
    return {"descriptions": {**whole, **keys}}


def _keywords(number: int) -> Ablation:
    # A keyword has two word pieces or fewer on average, the name and what surrounds it 16.
    change = {"num_keywords": number, "max_tokens": 16 + 2 * number}
    return Ablation(f"keywords_{number}", f"{number} keywords, uncut", _text(**change))


ABLATIONS: tuple[Ablation, ...] = (
    Ablation(BASE, "the configuration as it is"),
    Ablation(
        "name_only", "no keywords (DE-ret)",
        {"descriptions": {"num_keywords": 0, "alternative_names": 0, "parents": False}},
    ),
    *(
        Ablation(f"tokens_{n}", f"20 keywords, label texts cut to {n} tokens", _text(max_tokens=n))
        for n in (8, 16, 32)
    ),
    *(_keywords(number) for number in (8, 16, 32)),
    Ablation(
        "alternative_names", "up to 3 other names before the keywords, in 32 tokens",
        _text(alternative_names=3, max_tokens=32),
        against=_LONG_TEXT, needs=("alternative_names",),
    ),
    Ablation(
        "parents", "the names of broader labels before the keywords, in 32 tokens",
        _text(parents=True, max_tokens=32), against=_LONG_TEXT, needs=("parents",),
    ),
    Ablation(
        "names_and_parents", "both before the keywords, in 32 tokens",
        _text(alternative_names=3, parents=True, max_tokens=32),
        against=_LONG_TEXT, needs=("alternative_names", "parents"),
    ),
    Ablation(
        "cls_labels", "labels pooled by [CLS], not by the mean",
        {"retrieval": {"label_pooling": "cls"}},
    ),
    Ablation(
        "word_labels", "labels pooled by the mean over their words, without [CLS] and [SEP]",
        {"retrieval": {"label_pooling": "words"}},
    ),
    Ablation(
        "no_pretraining", "no classifier is trained first", {"classifier": {"epochs": 0}},
    ),
    *(
        Ablation(
            f"hard_{n}", f"{n or 'no'} hard negatives a document",
            {"retrieval": {"hard_negatives": n}},
        )
        for n in (0, 5, 10)
    ),
    Ablation(
        "no_classifier", "the dual encoder is trained alone, as DEPL in the paper",
        without=(CLASSIFIER, HYBRID), needs=(CLASSIFIER,),
    ),
)  # fmt: skip
"""All settings; each but the first is compared with the one that it names."""

BY_NAME = {ablation.name: ablation for ablation in ABLATIONS}


def choose_ablations(
    requested: str | None, base: TrainingConfig, catalogue: LabelCatalogue
) -> list[str]:
    """Return the names of the settings to run, in the order of `ABLATIONS`, the base with them.

    Args:
        requested: Names between commas; None for all that this corpus and configuration can have.
        base: The configuration.
        catalogue: The labels of the corpus.
    """
    chosen = choose_settings(BY_NAME, requested)
    there: set[str] = set(base.scorers)
    there |= {name for name in ("alternative_names", "parents") if _has(catalogue, name)}
    lacking = {
        name: missing
        for name in chosen
        if (missing := [need for need in BY_NAME[name].needs if need not in there])
    }
    if requested is not None and lacking:
        said = "; ".join(f"{name!r} needs {', '.join(some)}" for name, some in lacking.items())
        raise ConfigError(
            f"--settings: {said}, which neither the labels of the corpus nor the scorers of the "
            "configuration have; leave it out"
        )
    return [name for name in BY_NAME if name == BASE or (name in chosen and name not in lacking)]


def _has(catalogue: LabelCatalogue, name: str) -> bool:
    return any(getattr(label, name) for label in catalogue)


def configured(base: TrainingConfig, name: str, seed: int) -> TrainingConfig:
    """Return the configuration of a setting.

    Args:
        base: What it changes.
        name: One of `ABLATIONS`.
        seed: The run's seed.
    """
    ablation, content = BY_NAME[name], base.model_dump(exclude_unset=True)
    for section, keys in ablation.changes.items():
        content[section] = content.get(section, {}) | keys
    if ablation.without:
        content["scorers"] = [name for name in base.scorers if name not in ablation.without]
    try:
        return TrainingConfig.model_validate(content | {"seed": seed})
    except ValidationError as error:
        said = "; ".join(
            f"{'.'.join(map(str, x['loc']))}: {problem_in_words(x, repr)}" for x in error.errors()
        )
        raise ConfigError(
            f"depl setting {name!r} of this configuration: {said}; leave it out with --settings"
        ) from error


def with_epochs(base: TrainingConfig, epochs: int) -> TrainingConfig:
    """Return the configuration with another number of epochs in both neural stages."""
    content = base.model_dump(exclude_unset=True)
    for section in ("classifier", "retrieval"):
        content[section] = content.get(section, {}) | {"epochs": epochs}
    return TrainingConfig.model_validate(content)


def ablation_trials(names: Iterable[str], base: TrainingConfig, num_seeds: int) -> list[Trial]:
    """Return the trials: every scorer of every setting with one seed before the next seed.

    Args:
        names: The settings' names.
        base: The configuration; its seed is not used.
        num_seeds: Seeds 0 to this number less one.
    """
    kept = list(names)
    return [
        Trial(scorer, name, seed)
        for seed in range(num_seeds)
        for name in kept
        for scorer in configured(base, name, seed).scorers
    ]
