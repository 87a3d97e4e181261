"""The ablations of DEPL (Zhang et al. 2023, section 6.2 and A.1.5): settings of one configuration.

A setting is a whole training run with one thing changed. What it has in common with another, the
sparse model or the classifier that the dual encoder starts from, is trained once.

    measured/SETTING.SEED/   figures.json; the rankings of each scorer, as `evaluate` writes them
    shared/                  sparse models and classifiers, by a digest of what decided them
    work/SETTING.SEED/       a run that is not done yet
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import ValidationError
from tqdm import tqdm

from models.bundle import Bundle, read_json, write_json_durably
from models.errors import ConfigError
from models.labels import LabelCatalogue
from models.manifest import TEXT
from models.parts import CLASSIFIER, HYBRID, RETRIEVAL, read_parts
from models.predictor import Predictor
from models.ranking import Ranking
from models.registry import Registry
from training.ablation_evidence import Arm, Evidence
from training.assessment import Assessment, assess
from training.config import TrainingConfig
from training.corpus import Dataset
from training.evaluation import ALL_LABELS, FREQUENCY_BINS, TAIL_BIN
from training.experiments import Estimate, Found, Trial, Values, choose_settings
from training.pipeline import Run, train
from training.predictions import read_predictions, write_all_predictions
from training.run_log import read_stage_costs

BASE = "base"
_LONG_TEXT = "tokens_32"
_PLACES = 10  # of the rankings that are kept
_DEV_NOTE = (
    "The weights of the ensemble were found on this split, so its figures are somewhat too high."
)
_AFTER_CLASSIFIER = (
    "scorers", "probes", "sparse", "descriptions", "retrieval", "linear", "ensemble",
)  # fmt: skip
"""Settings that the classifier's stage, which comes before the dual encoder's, does not read."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """One setting: what is changed in the base configuration.

    Attributes:
        name: Of the setting.
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
    Ablation(
        "joint_loss", "the loss of DEPL+c in the paper (Eq. 4)",
        {"retrieval": {"joint": "hybrid"}}, needs=(CLASSIFIER,),
    ),
)  # fmt: skip
"""All settings; each but the first is compared with the one that it names."""

BY_NAME = {ablation.name: ablation for ablation in ABLATIONS}


def choose_ablations(
    wanted: str | None, base: TrainingConfig, catalogue: LabelCatalogue
) -> list[str]:
    """Return the names of the settings to run, in the order of `ABLATIONS`, the base with them.

    Args:
        wanted: Names between commas; None for all that this corpus and configuration can have.
        base: The configuration.
        catalogue: The labels of the corpus.

    Raises:
        ConfigError: One is not known, or the corpus or the configuration can't have it.
    """
    chosen = choose_settings(BY_NAME, wanted)
    there: set[str] = set(base.scorers)
    there |= {name for name in ("alternative_names", "parents") if _has(catalogue, name)}
    lacking = {
        name: missing
        for name in chosen
        if (missing := [need for need in BY_NAME[name].needs if need not in there])
    }
    if wanted is not None and lacking:
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
        seed: Of the run.

    Raises:
        ConfigError: The base configuration can't be changed so.
    """
    ablation, content = BY_NAME[name], base.model_dump(exclude_unset=True)
    for section, keys in ablation.changes.items():
        content[section] = content.get(section, {}) | keys
    if ablation.without:
        content["scorers"] = [name for name in base.scorers if name not in ablation.without]
    try:
        return TrainingConfig.model_validate(content | {"seed": seed})
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, x['loc']))}: {x['msg']}" for x in error.errors())
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
        names: Of the settings.
        base: The configuration; its seed is not used.
        num_seeds: Seeds 0 to this number less one.

    Raises:
        ConfigError: The base configuration can't be changed as a setting says.
    """
    kept = list(names)
    return [
        Trial(scorer, name, seed)
        for seed in range(num_seeds)
        for name in kept
        for scorer in configured(base, name, seed).scorers
    ]


@dataclass(frozen=True, slots=True)
class AblationRuns:
    """Trains settings, measures them, and keeps figures and rankings.

    Attributes:
        dataset: The corpus.
        base: The configuration that settings change.
        split: What is measured on.
        folder: Of the experiment.
    """

    dataset: Dataset
    base: TrainingConfig
    split: str
    folder: Path

    def figures(self, trial: Trial) -> Values:
        """Return the figures of a scorer, after training its setting if that was not done yet.

        Raises:
            ConfigError: The setting can't be trained.
            DataError: The corpus can't be used.
        """
        self.measure((trial.setting, trial.seed))
        found: Values = read_json(self._figures(trial.setting, trial.seed))["scorers"][trial.task]
        return found

    def measure(self, run: tuple[str, int]) -> None:
        """Train and measure a setting with a seed, if that was not done yet.

        Raises:
            ConfigError: The setting can't be trained.
            DataError: The corpus can't be used.
        """
        path = self._figures(*run)
        if not path.exists():
            self._measure(*run, path)

    def measure_on_ray(self, trials: Iterable[Trial], num_workers: int) -> None:
        """Train and measure what trials need and was not done yet, by tasks on a cluster.

        The base comes first, as others share its stages. Workers find the corpus and the folder of
        the experiment at the same paths as this process.

        Args:
            trials: Of the experiment.
            num_workers: Tasks at a time on a machine that is no cluster.

        Raises:
            ConfigError: As `measure` does; or Ray is not installed, or its cluster can't be
                reached.
            DataError: As `measure` does.
        """
        from training.ray_tasks import run_tasks

        runs = dict.fromkeys((self.twin(trial.setting), trial.seed) for trial in trials)
        left = [run for run in runs if not self._figures(*run).exists()]
        bases = [run for run in left if run[0] == BASE]
        others = [run for run in left if run[0] != BASE]
        with tqdm(total=len(left), unit="run") as bar:
            for part in filter(None, (bases, others)):
                for _ in run_tasks(self.measure, part, num_workers):
                    bar.update()

    def evidence(self, found: Found) -> Evidence:
        """Return what the report is made of.

        Args:
            found: The figures of trials that were run.
        """
        truth = self.dataset.split(self.split).scan().labels

        def rank(arm: Arm, seed: int) -> Ranking:
            path = self._measured(arm.setting, seed) / f"{arm.scorer}.txt"
            return read_predictions(path, *truth.shape)

        counts = self.dataset.catalogue.training_counts
        return Evidence(found, rank, truth, counts, self._seconds(found))

    def told(self) -> str:
        """Return what was trained and measured on, in words."""
        split, base = self.dataset.split(self.split).scan().labels, self.base
        num_training = self.dataset.split("train").scan().labels.shape[0]
        return (
            f"{self.split} split: {split.shape[0]:,} documents, {split.shape[1]:,} labels, "
            f"{num_training:,} training documents. Base: {base.classifier.epochs} and "
            f"{base.retrieval.epochs} epochs of classifier and dual encoder, "
            f"{base.document_max_tokens} tokens a document, {base.descriptions.num_keywords} "
            f"keywords in {base.descriptions.max_tokens} tokens, {base.retrieval.hard_negatives} "
            f"hard negatives.{' ' + _DEV_NOTE if self.split == 'dev' else ''}"
        )

    def _seconds(self, found: Found) -> dict[str, Estimate]:
        """Return what a run of each setting took by the clock, without what others did for it."""
        return {
            name: Estimate(
                tuple(
                    read_json(self._figures(name, seed))["seconds"]
                    for seed in range(len(found[RETRIEVAL][name]["P@1"].values))
                )
            )
            for name in found[RETRIEVAL]
            if self.twin(name) == name
        }

    def twin(self, name: str) -> str:
        """Return the first setting with the same configuration: itself, or one that it repeats."""
        wanted, names = configured(self.base, name, 0).settings_used(TEXT), list(BY_NAME)
        earlier = names[: names.index(name)]
        same = (other for other in earlier if _settings_or_none(self.base, other) == wanted)
        return next(same, name)

    def _figures(self, name: str, seed: int) -> Path:
        return self._measured(name, seed) / "figures.json"

    def _measured(self, name: str, seed: int) -> Path:
        return self.folder / "measured" / f"{self.twin(name)}.{seed}"

    def _measure(self, name: str, seed: int, path: Path) -> None:
        """Train a setting, measure it, write rankings and figures, and delete the run."""
        work = self.folder / "work" / path.parent.name
        run = Run(configured(self.base, name, seed), self.dataset, work / "run")
        registry = Registry(work / "registry")
        shared = _shared_stages(self.folder / "shared", run.config)
        for stage, kept in shared.items():
            link_folder(kept, run.folder / stage)
        bundle = registry.open(train(run, registry))
        for stage, kept in shared.items():
            link_folder(run.folder / stage, kept)
        found = _assessed(bundle, self.dataset, self.split)
        scorers = bundle.manifest.scorers
        rankings = {scorer: found.rankings[scorer] for scorer in scorers}
        write_all_predictions(rankings, bundle.catalogue, self.dataset.labels, path.parent, _PLACES)
        seconds = round(sum(cost.wall_s for cost in read_stage_costs(run.folder)), 1)
        figures = {scorer: _figures(found, scorer) for scorer in scorers}
        write_json_durably(path, {"seconds": seconds, "scorers": figures})
        shutil.rmtree(work)


def link_folder(source: Path, target: Path) -> None:
    """Give a folder's files another place, where there is a source and no target yet.

    They are hard links, which take no room, where the file system has those, else copies. The
    target is there whole or not at all, whoever else makes the same one at the same time; files of
    neither may be changed in place.

    Raises:
        OSError: The disk is full, or the folder can't be written to.
    """
    if not source.is_dir() or target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    incoming = target.with_name(f".incoming-{target.name}-{uuid4().hex}")
    shutil.copytree(source, incoming, copy_function=_link_or_copy)
    try:
        incoming.rename(target)
    except OSError:
        shutil.rmtree(incoming)
        if not target.exists():
            raise


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _settings_or_none(base: TrainingConfig, name: str) -> dict[str, Any] | None:
    try:
        return configured(base, name, 0).settings_used(TEXT)
    except ConfigError:
        return None


def _shared_stages(folder: Path, config: TrainingConfig) -> dict[str, Path]:
    """Return where the result of a stage lies that other settings may have, too."""
    settings = config.settings_used(TEXT)
    decided_by = {
        "sparse": {name: settings[name] for name in ("seed", "sparse")},
        "classifier": {
            name: value for name, value in settings.items() if name not in _AFTER_CLASSIFIER
        },
    }
    return {stage: folder / f"{stage}-{_digest(some)}" for stage, some in decided_by.items()}


def _digest(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _assessed(bundle: Bundle, dataset: Dataset, split: str) -> Assessment:
    count = bundle.manifest.training_document_count
    return assess(Predictor(read_parts(bundle)), dataset, split, num_training_documents=count)


def _figures(found: Assessment, scorer: str) -> Values:
    """Return the metrics over all labels by their names, those of bins with the bin behind."""
    subsets = found.evaluation.scorers[scorer]
    values = dict(subsets[ALL_LABELS].values)
    for name in (TAIL_BIN, *FREQUENCY_BINS):
        values |= {f"{metric} ({name})": x for metric, x in subsets[name].values.items()}
    return values
