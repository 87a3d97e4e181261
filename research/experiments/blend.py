"""What each part of the blend without an encoder is worth: it is left out, all else stays.

Everything is fitted on the training documents but those that are held out where the corpus has no
dev split. The final fit on all of them is left out, so that the blends can be fitted again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import typer
from jaxtyping import Bool, Float32, Int64
from matplotlib.figure import Figure

from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.errors import DataError
from longtail.models.lexical.matcher import FEATURES, Matches
from longtail.models.lexical.name_model import NameModel
from longtail.models.metrics import inverse_propensities, join_truth
from longtail.models.names import ENSEMBLE, NAMES, NEIGHBOURS, SPARSE
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.assessment.assess import split_batches
from longtail.training.calibration.blends import COUNTS, fit_blend
from longtail.training.calibration.fit import fit_calibration
from longtail.training.calibration.scored_pairs import PairCollector, ScoredPairs
from longtail.training.calibration.unseen import pairs_without_documents
from longtail.training.commands.options import JsonOption
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.documents import TrainingDocuments
from longtail.training.evaluation.by_frequency import ALL_LABELS, FREQUENCY_BINS, TAIL_BIN, evaluate
from longtail.training.evaluation.plots import new_figure
from longtail.training.pipeline.encoder_free import fit_encoder_free
from research.experiments.findings import Finding, findings_record, run_tests
from research.experiments.kept_draws import KeptDraws, interval_tables
from research.experiments.runner import Experiment, Report, run_experiment
from research.experiments.trials import (
    Found,
    Trial,
    TrialStore,
    Values,
    choose_settings,
    error_or_nan,
    settings_record,
)
from research.options import (
    CorpusArgument,
    ExperimentOption,
    MeasuredSplitOption,
    SeedsOption,
    SettingsOption,
)

WHOLE = "all"
COSINE = "names by cosine"
ONE_SET = "one set of weights"
STAND_INS_TOO = "stand-ins beside unseen labels"
STAND_INS = "stand-ins for unseen labels"
NOTHING_UNSEEN = "no unseen labels"
_TASK = "blend"
_K = 10
_CHOSEN_HELD_OUT = 0.1
_COSINE = FEATURES.index("cosine")
_FIGURES = ("P@1", "P@5", "nDCG@5", "PSP@5", "macro-F1@5 (1-9)", "R@10 (0)")


@dataclass(frozen=True, slots=True)
class Setting:
    """A blend with something left out.

    Attributes:
        members: The scorers that it blends.
        counts: Training documents at its knots.
        by_cosine: Whether names are scored by their cosine with the text alone.
        has_unseen: Whether labels with one training document also count as labels with none.
        drops_unseen: Whether the dev split's own labels without documents are not looked at, as
            where it has none.
    """

    members: tuple[str, ...] = (SPARSE, NAMES, NEIGHBOURS)
    counts: tuple[int, ...] = COUNTS
    by_cosine: bool = False
    has_unseen: bool = False
    drops_unseen: bool = False


SETTINGS: dict[str, Setting] = {
    WHOLE: Setting(),
    "without names": Setting((SPARSE, NEIGHBOURS)),
    COSINE: Setting(by_cosine=True),
    "without neighbours": Setting((SPARSE, NAMES)),
    ONE_SET: Setting(counts=(0,)),
    STAND_INS_TOO: Setting(has_unseen=True),
    STAND_INS: Setting(has_unseen=True, drops_unseen=True),
    NOTHING_UNSEEN: Setting(drops_unseen=True),
    "sparse alone": Setting((SPARSE,)),
    "names alone": Setting((NAMES,)),
    "neighbours alone": Setting((NEIGHBOURS,)),
}
"""By name, in the order of the report."""


class CosineNames(NameModel):
    """Scores the labels whose names are found by the cosine of name and text."""

    def score(self, matches: Matches) -> Float32[np.ndarray, match]:
        """Return the cosines of matches."""
        found: Float32[np.ndarray, match] = matches.seen[:, _COSINE].copy()
        return found


@dataclass(frozen=True, slots=True)
class Fitted:
    """What blends are made of, for one seed and way of scoring names.

    Attributes:
        predictor: The scorers' predictor, without a blend.
        pairs: Pairs of the dev split.
        unseen: Some of them, as if their labels had no training document.
        calibrations: Calibration of each scorer.
        measured: The documents that are measured on.
    """

    predictor: Predictor
    pairs: ScoredPairs
    unseen: ScoredPairs | None
    calibrations: dict[str, Calibration]
    measured: Sequence[TextBatch]


def command(
    data: CorpusArgument,
    output: ExperimentOption = Path("runs/blend"),
    seeds: SeedsOption = 3,
    settings: SettingsOption = None,
    split: MeasuredSplitOption = "dev",
    json_file: JsonOption = None,
) -> None:
    """Leave out each part of the blend of sparse, names and neighbours."""

    def make() -> Experiment:
        return blend_experiment(open_dataset(data), split, seeds, settings, output)

    typer.echo(run_experiment(make, output, data=data, json_file=json_file))


def blend_experiment(
    dataset: Dataset, split: str, num_seeds: int, settings: str | None, folder: Path
) -> Experiment:
    """Return the experiment.

    Args:
        dataset: The corpus.
        split: "dev" or "test"; blends are fitted on dev.
        num_seeds: Seeds 0 to this number less one.
        settings: Names between commas; None for all.
        folder: For what is fitted.
    """
    names = choose_settings(SETTINGS, settings)
    documents = TrainingDocuments.read(dataset, _CHOSEN_HELD_OUT)
    if documents.dev is None:
        raise DataError(f"{dataset.folder}: no dev split, and too few documents to hold one out")
    corpus = documents.corpus.with_splits({"train": documents.train, "dev": documents.dev})
    fit = fitting(documents, corpus, split, folder)
    kept = KeptDraws(folder / "draws", text_groups(corpus, split))

    def run(store: TrialStore, device: str) -> Found:
        del device  # nothing of it needs one
        trials = [Trial(_TASK, name, seed) for seed in range(num_seeds) for name in names]
        return store.run(trials, lambda trial: _run_trial(corpus, split, fit, kept, trial))

    return Experiment(
        "blend", dataset, split, num_seeds, {"counts": COUNTS}, run,
        lambda found: _report(found, kept, num_seeds),
    )  # fmt: skip


def text_groups(corpus: Dataset, split: str) -> Int64[np.ndarray, document]:
    """Return a number for each document of a split: the same for equal texts."""
    numbers: dict[bytes, int] = {}
    digests = (hashlib.sha256(text.encode()).digest() for text in corpus.split(split).texts())
    return np.array([numbers.setdefault(each, len(numbers)) for each in digests], dtype=np.int64)


def fitting(
    documents: TrainingDocuments, corpus: Dataset, split: str, folder: Path
) -> Callable[[int, bool], Fitted]:
    """Return what fits the scorers of a seed, and keeps the last ones."""

    @lru_cache(maxsize=1)
    def parts_of(seed: int) -> ModelParts:
        scorers = (SPARSE, NAMES, NEIGHBOURS, ENSEMBLE)
        config = TrainingConfig.model_validate({"seed": seed, "scorers": scorers})
        found = fit_encoder_free(documents, config, folder / f"seed-{seed}")
        return ModelParts(found.catalogue, found.sparse, None, found.models)

    @lru_cache(maxsize=2)
    def fit(seed: int, by_cosine: bool) -> Fitted:
        parts = parts_of(seed)
        if by_cosine and (names := parts.models.get(NAMES)) is not None:
            changed = CosineNames(
                names.catalogue, names.counts, names.history, names.trees, names.languages
            )
            parts = replace(parts, models={**parts.models, NAMES: changed})
        predictor = Predictor(parts)
        truth = corpus.split("dev").scan().labels
        collector = PairCollector(predictor, truth)
        dev = list(collector.watch(split_batches(predictor, corpus.split("dev"), "dev")))
        measured = dev
        if split != "dev":
            measured = list(split_batches(predictor, corpus.split(split), split))
        pairs = collector.pairs
        curves = {name: fit_calibration(*pairs.of(name)) for name in predictor.scorers.names}
        known = {name: curve for name, curve in curves.items() if curve is not None}
        counts = predictor.catalogue.training_counts
        unseen = pairs_without_documents(pairs, dev, counts, parts)
        return Fitted(predictor, pairs, unseen, known, measured)

    return fit


def _run_trial(
    corpus: Dataset,
    split: str,
    fit: Callable[[int, bool], Fitted],
    kept: KeptDraws,
    trial: Trial,
) -> Values:
    """Fit the blend of a setting on dev, rank the split with it, and return its figures."""
    setting = SETTINGS[trial.setting]
    fitted = fit(trial.seed, setting.by_cosine)
    predictor, counts = fitted.predictor, fitted.predictor.catalogue.training_counts
    members = [name for name in setting.members if name in fitted.calibrations]
    pairs = _only_seen(fitted.pairs, counts) if setting.drops_unseen else fitted.pairs
    blend = fit_blend(
        pairs, members, fitted.calibrations, counts,
        unseen=fitted.unseen if setting.has_unseen else None, counts=setting.counts,
    )  # fmt: skip
    ranking = _ranked(predictor, blend, fitted)
    truth = corpus.split(split).scan().labels
    num_documents = corpus.split("train").scan().labels.shape[0]
    k = min(_K, len(counts))
    ks = [each for each in (1, 5, 10) if each <= k]
    found = evaluate({ENSEMBLE: ranking}, truth, counts, num_documents, ks).scorers[ENSEMBLE]
    if k == _K:
        weights = inverse_propensities(counts, num_documents)
        joined = join_truth(ranking.labels, truth)
        kept.keep(trial.setting, trial.seed, joined, weights, _drawn_subsets(counts))
    overall = found[ALL_LABELS].values
    figures = {name: overall[name] for name in _FIGURES[:4] if name in overall}
    figures["macro-F1@5 (1-9)"] = found[TAIL_BIN].values.get("macro-F1@5", 0.0)
    for name in FREQUENCY_BINS:
        figures[f"R@10 ({name})"] = found[name].values.get("R@10", 0.0)
    return figures


def _drawn_subsets(counts: Int64[np.ndarray, label]) -> dict[str, Bool[np.ndarray, label]]:
    return {"1-9": (counts >= 1) & (counts <= 9), "0": counts == 0}


def _only_seen(pairs: ScoredPairs, training_counts: Int64[np.ndarray, label]) -> ScoredPairs:
    """Return the pairs of labels with training documents."""
    is_seen = (pairs.labels != NO_LABEL) & (training_counts[pairs.labels] > 0)
    weights = np.where(is_seen, pairs.weights, np.float32(0))
    return replace(pairs, weights=weights, is_true=pairs.is_true & is_seen)


def _ranked(predictor: Predictor, blend: RarityBlend, fitted: Fitted) -> Ranking:
    blended = predictor.with_blending(fitted.calibrations, {ENSEMBLE: blend})
    options = RankingOptions(k=min(_K, len(predictor.catalogue)), scorer=ENSEMBLE)
    return Ranking.joined([blended.rank(batch, options) for batch in fitted.measured])


def _findings() -> list[Finding]:
    """Return what leaving out each part may cost; no paper says so, so tests are two-sided."""
    parts = {
        "without names": "names help", COSINE: "learned matches beat the cosine",
        "without neighbours": "neighbours help", ONE_SET: "weights by rarity help",
    }  # fmt: skip
    findings = [
        Finding(
            "stand-ins for unseen labels help", _TASK, figure, STAND_INS, (NOTHING_UNSEEN,),
            is_expected=False,
        )
        for figure in ("P@5", "R@10 (0)")
    ]  # fmt: skip
    return findings + [
        Finding(claim, _TASK, figure, WHOLE, (setting,), is_expected=False)
        for setting, claim in parts.items()
        for figure in ("P@5", "PSP@5", "macro-F1@5 (1-9)", "R@10 (0)")
    ]  # fmt: skip


def _report(found: Found, kept: KeptDraws, num_seeds: int) -> Report:
    drawn = {name: kept.over_seeds(name, range(num_seeds)) for name in found[_TASK]}
    whole = {name: each for name, each in drawn.items() if each is not None}
    metrics = [name for name in _FIGURES if not name.startswith("macro-F1")]
    tables = {
        "settings": settings_record(found[_TASK], _FIGURES),
        "findings": findings_record(run_tests(found, _findings())),
        **(interval_tables(whole, WHOLE, metrics) if WHOLE in whole else {}),
    }
    words = (
        f"Intervals: 95 %, over draws of documents and seeds. Differences from {WHOLE!r}; bold: "
        "beyond chance, corrected by Holm's method for all of the table."
    )
    return Report(tables, draw_blend(found), words)


def draw_blend(found: Found) -> Figure:
    """Draw R@10 by the labels' training documents, a line for each setting."""
    figure = new_figure(8.0, 4.5)
    axes = figure.subplots()
    places = np.arange(len(FREQUENCY_BINS))
    for name, estimates in found[_TASK].items():
        values = [estimates[f"R@10 ({band})"] for band in FREQUENCY_BINS]
        axes.errorbar(
            places, [100 * each.mean for each in values],
            yerr=[100 * error_or_nan(each) for each in values],
            label=name, marker="o", capsize=2, linewidth=2.5 if name == WHOLE else 1.2,
        )  # fmt: skip
    axes.set_xticks(places, list(FREQUENCY_BINS))
    axes.set_xlabel("training documents of the label")
    axes.set_ylabel("R@10 (%)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure
