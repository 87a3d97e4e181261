"""Runs of the ablations: what they share is trained once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from longtail.models.bundle.registry import Registry
from longtail.models.errors import ConfigError
from longtail.models.files.durable import read_json, write_json_durably
from longtail.models.names import ENSEMBLE, RETRIEVAL
from longtail.models.ranking.top_k import Ranking
from longtail.training.assessment.assess import Assessment, assess_bundle
from longtail.training.assessment.compare import read_predictions, write_all_predictions
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import Dataset
from longtail.training.evaluation.by_frequency import ALL_LABELS, FREQUENCY_BINS, TAIL_BIN
from longtail.training.pipeline.train import Run, train
from longtail.training.runtime.run_log import read_stage_costs
from research.experiments.depl.ablations import (
    _AFTER_CLASSIFIER,
    _DEV_NOTE,
    _PLACES,
    BY_NAME,
    configured,
)
from research.experiments.depl.evidence import Arm, Evidence
from research.experiments.trials import Estimate, Found, Trial, Values


@dataclass(frozen=True, slots=True)
class AblationRuns:
    """Trains settings, measures them, and keeps figures and rankings.

    Attributes:
        dataset: The corpus.
        base: The configuration that settings change.
        split: What is measured on.
        folder: The experiment's folder.
    """

    dataset: Dataset
    base: TrainingConfig
    split: str
    folder: Path

    def figures(self, trial: Trial) -> Values:
        """Return the figures of a scorer, after training its setting if that was not done yet."""
        path = self._figures(trial.setting, trial.seed)
        if not path.exists():
            self._measure(trial.setting, trial.seed, path)
        found: Values = read_json(path)["scorers"][trial.task]
        return found

    def evidence(self, found: Found) -> Evidence:
        """Return what the report is made of.

        Args:
            found: The figures of trials that were run.
        """
        truth = self.dataset.split(self.split).scan().labels

        def rank(arm: Arm, seed: int) -> Ranking:
            path = self._measured(arm.setting, seed) / f"{arm.scorer}.npz"
            return read_predictions(path, *truth.shape)

        counts = self.dataset.catalogue.training_counts
        return Evidence(found, rank, truth, counts, self._seconds(found))

    def described(self) -> str:
        """Return what was trained and measured on, in words."""
        split, base = self.dataset.split(self.split).scan().labels, self.base
        is_fitted_here = self.split == "dev" and ENSEMBLE in base.scorers
        num_training = self.dataset.split("train").scan().labels.shape[0]
        return (
            f"{self.split} split: {split.shape[0]:,} documents, {split.shape[1]:,} labels, "
            f"{num_training:,} training documents. Base: {base.classifier.epochs} and "
            f"{base.retrieval.epochs} epochs of classifier and dual encoder, "
            f"{base.document_max_tokens} tokens a document, {base.descriptions.num_keywords} "
            f"keywords in {base.descriptions.max_tokens} tokens, {base.retrieval.hard_negatives} "
            f"hard negatives.{' ' + _DEV_NOTE if is_fitted_here else ''}"
        )

    def _seconds(self, found: Found) -> dict[str, Estimate]:
        """Return what a run of each setting took by the clock, without what others did for it."""
        return {
            name: Estimate(
                tuple(
                    read_json(self._figures(name, seed))["seconds"]
                    for seed in found[RETRIEVAL][name]["P@1"].seeds
                )
            )
            for name in found[RETRIEVAL]
            if self.twin(name) == name
        }

    def twin(self, name: str) -> str:
        """Return the first setting with the same configuration: itself, or one that it repeats."""
        expected, names = configured(self.base, name, 0).settings_used, list(BY_NAME)
        earlier = names[: names.index(name)]
        same = (other for other in earlier if _settings_or_none(self.base, other) == expected)
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
        found = assess_bundle(bundle, self.dataset, self.split, reliability=False)
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
    target is there whole or not at all; files of neither may be changed in place.
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
        return configured(base, name, 0).settings_used
    except ConfigError:
        return None


def _shared_stages(folder: Path, config: TrainingConfig) -> dict[str, Path]:
    """Return where the result of a stage lies that other settings may have, too."""
    settings = config.settings_used
    decided_by = {
        "sparse": {name: settings[name] for name in ("seed", "sparse")},
        "classifier": {
            name: value for name, value in settings.items() if name not in _AFTER_CLASSIFIER
        },
    }
    return {stage: folder / f"{stage}-{_digest(some)}" for stage, some in decided_by.items()}


def _digest(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _figures(found: Assessment, scorer: str) -> Values:
    """Return the metrics over all labels by their names, those of bins with the bin behind."""
    subsets = found.evaluation.scorers[scorer]
    values = dict(subsets[ALL_LABELS].values)
    for name in (TAIL_BIN, *FREQUENCY_BINS):
        values |= {f"{metric} ({name})": x for metric, x in subsets[name].values.items()}
    return values
