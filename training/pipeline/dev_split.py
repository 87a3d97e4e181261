"""What a finished model learns of the dev split: probabilities, blends, parts, and its metrics.

The split is encoded once and ranked once by every scorer; what is known of its documents (tokens,
features, vectors) is held until the ensemble, which is fitted on them, has ranked them too.

The default scorer is chosen last. A blend ranks the documents that it was fitted on a little better
than others, and a blend of a part of them ranks a little worse. On a small dev split both are as
large as the differences between good scorers, so a difference decides only where it is larger than
chance.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64
from scipy.sparse import csr_array

from longtail.models.errors import ConfigError
from longtail.models.files.durable import read_json, write_json_durably
from longtail.models.kinds.registry import KINDS, kinds_of_new_labels, without_encoder
from longtail.models.names import ENSEMBLE, FAST, NAMES, RETRIEVAL, SPARSE, Precision
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.loading import take_fastest_backend
from longtail.models.predict.predictor import Predictor
from longtail.training.assessment.assess import (
    KS,
    MAX_K,
    rank_batches,
    rows_of,
    split_batches,
)
from longtail.training.calibration.ensemble import (
    Blending,
    blending_from_json,
    blending_to_json,
    calibrations_of,
    fit_blending,
)
from longtail.training.calibration.members import CUT_OFF, DevRanking
from longtail.training.calibration.scored_pairs import (
    PairCollector,
    ScoredPairs,
    score_given,
    spread_rows,
)
from longtail.training.calibration.unseen import lacks_unseen_labels, pairs_without_documents
from longtail.training.configuration.run import BESIDE, TrainingConfig
from longtail.training.data.documents import TrainingDocuments
from longtail.training.data.splits import Split
from longtail.training.evaluation.by_frequency import evaluate
from longtail.training.fitted.registry import with_fitted
from longtail.training.runtime.kept import kept, kept_text
from longtail.training.runtime.run_log import stage_cost

CONFIDENCE_Z = 1.96
"""Standard errors of a mean difference from which on it is larger than chance: 95 %, two-sided."""
_NUM_FOLDS = 5


class DefaultScorer(NamedTuple):
    """The scorer of requests that name none.

    Attributes:
        name: Its name.
        reason: Why it is this one, as a sentence with the figures; empty where there is one alone.
    """

    name: str
    reason: str


class Lead(NamedTuple):
    """How much better one scorer ranks documents than another.

    Attributes:
        mean: Mean difference of nDCG@k over the documents, as a fraction.
        error: Its standard error.
    """

    mean: float
    error: float

    @classmethod
    def of(cls, differences: Float64[np.ndarray, document], k: int) -> Lead:
        """Return the lead with one document more, which takes 1/k from the first scorer.

        So a few documents that all prefer the first one decide nothing.
        """
        values = np.append(differences, -1 / k)
        error = float(values.std(ddof=1)) / math.sqrt(len(values))
        return cls(float(values.mean()), error)

    @property
    def margin(self) -> float:
        """Difference that chance explains."""
        return CONFIDENCE_Z * self.error

    @property
    def is_beyond_chance(self) -> bool:
        """Whether the first scorer is better."""
        return self.mean > self.margin


def choose_default(dev: DevRanking, blending: Blending, scorers: Sequence[str]) -> DefaultScorer:
    """Return the blend without an encoder, or a scorer that ranks dev better beyond chance.

    The measure is nDCG@k. An answer with an encoder costs several times as much, so that
    `ensemble` has to be better than `fast`, and any other scorer better than the blend. Blends are
    cross-fitted: each part of the documents is ranked by a blend that is fitted on the others. k is
    5, or less where there are fewer labels. Without a blend, the scorer with the highest nDCG@k is
    chosen; of equal ones the last.
    """
    dev = dev.thinned()
    k = min(CUT_OFF, len(dev.catalogue))
    values = {name: dev.values(_scores(dev, blending, name), ["nDCG"]) for name in scorers}
    best = max(reversed(values), key=lambda name: float(values[name].mean()))
    if len(values) == 1:
        return DefaultScorer(best, "")
    if not values[best].any():
        nothing = f"the first {k} labels of each scorer are all wrong on dev"
        return DefaultScorer(best, f"{nothing}; see what 'longtail inspect' says of the labels")
    blends = [name for name in (FAST, ENSEMBLE) if name in blending.blends]
    chosen, *rivals = dict.fromkeys([*blends, best])
    if not rivals:
        others = ", ".join(f"{x} {_percent(values[x])}" for x in values if x != best)
        highest = f"{best} has the highest nDCG@{k} on dev, {_percent(values[best])}"
        return DefaultScorer(best, f"{highest} (others: {others})")
    for rival in rivals:
        lead = Lead.of(values[rival] - values[chosen], k)
        measured = (
            f"nDCG@{k} on dev is {_percent(values[rival])} with {rival} and "
            f"{_percent(values[chosen])} with {chosen}, blends on documents that they were not "
            "fitted on; the difference is"
        )
        chance = f"chance (95 %: {100 * lead.margin:.2f} points)"
        chosen = rival if lead.is_beyond_chance else chosen
        reason = f"{measured} {'more than' if chosen == rival else 'within'} {chance}"
    return DefaultScorer(chosen, f"{reason}, so {chosen} is the default")


def _percent(values: Float64[np.ndarray, document]) -> str:
    return f"{100 * float(values.mean()):.2f} %"


def _scores(dev: DevRanking, blending: Blending, name: str) -> Float32[np.ndarray, "document m"]:
    if (blend := blending.blends.get(name)) is None:
        return dev.pairs.scores[name]
    return dev.cross_fitted(list(blend.weights), blending.calibrations, _NUM_FOLDS)


logger = logging.getLogger(__name__)

_MAX_FITTED = 6000
"""Documents that calibrations and blends are fitted on, at most; more only take longer."""
CHOICE_METRICS = ("P@5", "P@1")
"""The first measured one compares versions, on dev."""


class OnDev(NamedTuple):
    """What a finished model reached on the dev split; empty without one.

    Attributes:
        metrics: By scorer, subset of the labels, and name.
        thresholds: By scorer (see `Manifest`).
        default: The scorer of requests that name none; None: the first one.
    """

    metrics: dict[str, Any]
    thresholds: dict[str, float]
    default: DefaultScorer | None


def finish_on_dev(
    documents: TrainingDocuments,
    parts: ModelParts,
    config: TrainingConfig,
    folder: Path,
    *,
    is_reduced: bool = False,
    precision: Precision = "float32",
) -> tuple[ModelParts, OnDev]:
    """Return a model with calibrations, blends and all fitted parts, and what it reaches with them.

    Without documents to choose by, it is the model as it was.

    Args:
        documents: Those of the run.
        parts: The model, without them.
        config: Names the scorers that the model is to have; blends are made of the others.
        folder: The run's folder; what was fitted there is not fitted again.
        is_reduced: Whether scorers are left out that help no blend.
        precision: What its encoder computes in.
    """
    chosen = config.default_scorer
    named = None if chosen is None else DefaultScorer(chosen, "it was configured")
    on_dev = OnDev({}, {}, named)
    if documents.dev is None:
        logger.warning(
            "%s has no dev split: no probabilities are calibrated, there is no ensemble, and the "
            "default scorer is not chosen",
            documents.corpus.folder,
        )
    else:
        blends = {ENSEMBLE: tuple(KINDS), FAST: without_encoder()}
        wanted = {name: made_of for name, made_of in blends.items() if name in config.scorers}
        with stage_cost(folder, "probabilities"):
            kept_in = folder / "blending"
            num_documents = len(documents.train)
            dev = DevSplit(documents.dev, parts, num_documents, kept_in, precision)
            found = dev.blending(wanted)
            default = named or dev.default(found)
            if is_reduced:
                parts, found = _reduced(parts, found, default.name)
            parts = with_fitted(parts, dev, found, default.name, kept_in)
        with stage_cost(folder, "dev metrics"):
            metrics = dev.metrics(found)
        parts = replace(parts, calibrations=found.calibrations, blends=found.blends)
        on_dev = OnDev({x: metrics[x] for x in parts.scorers}, found.thresholds, default)
    if named is not None and named.name not in parts.scorers:
        raise ConfigError(
            f"default_scorer is {named.name!r}, which could not be fitted on the documents; "
            f"expected one of {', '.join(parts.scorers)}, or null"
        )
    return parts, on_dev


def _reduced(parts: ModelParts, blending: Blending, default: str) -> tuple[ModelParts, Blending]:
    """Return both without the scorers that help no blend and are not the default one.

    One that can score labels without training documents stays.
    """
    weights = [name for blend in blending.blends.values() for name in blend.weights]
    used = {SPARSE, RETRIEVAL, default, *blending.blends, *weights}
    used |= {other for name, other in BESIDE if name in used}
    if not kinds_of_new_labels(used & set(parts.scorers)):
        used.add(NAMES)
    if out := [name for name in parts.models if name not in used]:
        logger.info("left out, as blends rank dev no better with them: %s", ", ".join(out))
    models = {name: model for name, model in parts.models.items() if name in used}
    return replace(parts, models=models), blending.of(used)


class DevSplit:
    """The dev split, ranked by every scorer of a model that is trained to its end.

    What is fitted is kept in a folder, and read where it is there already.
    """

    def __init__(
        self,
        split: Split,
        parts: ModelParts,
        num_training_documents: int,
        folder: Path,
        precision: Precision = "float32",
    ) -> None:
        """Rank the documents with a copy of the model, as a service does.

        Args:
            split: The documents.
            parts: The model, without probabilities and blends.
            num_training_documents: For the propensities.
            folder: Keeps what is fitted.
            precision: What its encoder computes in.
        """
        if parts.dense is not None:
            encoder = copy.deepcopy(parts.dense.encoder)
            parts = replace(parts, dense=replace(parts.dense, encoder=encoder))
        self.predictor = Predictor(parts, precision=precision)
        if parts.dense is not None and self.predictor.device == "cpu":
            take_fastest_backend(parts.dense.encoder)
        self.num_training_documents = num_training_documents
        self.truth: Float32[csr_array, "document label"] = split.scan().labels
        self._folder = folder
        self._ranked = PairCollector(self.predictor, self.truth)
        batches = split_batches(self.predictor, split, "dev")
        self._batches = list(self._ranked.watch(batches))
        self._scored: ScoredPairs | None = None

    def blending(self, blends: Mapping[str, tuple[str, ...]]) -> Blending:
        """Return calibrations and blends.

        Args:
            blends: By the name of each blend to be made, the scorers that it may be made of.
        """
        found: Blending = kept_text(
            self._folder / "blending.json",
            lambda: fit_blending(self._fitted_on, blends),
            blending_from_json,
            blending_to_json,
        )
        return found

    def gain(self, candidates: Sequence[str], added: Sequence[str]) -> tuple[Lead, tuple[str, ...]]:
        """Return how much scorers add to a blend of others, and these: the best ones of some."""
        dev = self._fitted_on.thinned()
        calibrations = calibrations_of(dev.pairs)
        known = tuple(x for x in candidates if x in calibrations)
        if not known:
            return Lead(0.0, 0.0), (SPARSE,)
        members = dev.choose(known, calibrations)
        more = (*members, *(x for x in added if x in calibrations))
        values = [
            dev.values(dev.cross_fitted(each, calibrations), ["nDCG"]) for each in (more, members)
        ]
        return Lead.of(values[0] - values[1], min(CUT_OFF, len(dev.catalogue))), members

    def default(self, blending: Blending) -> DefaultScorer:
        """Return the default scorer."""
        blended = self.predictor.with_blending(blending.calibrations, blending.blends)
        return kept(
            self._folder / "default.json",
            lambda: choose_default(self._fitted_on, blending, blended.scorers.names),
            lambda path: DefaultScorer(**read_json(path)),
            lambda path, chosen: write_json_durably(path, chosen._asdict()),
        )

    def metrics(self, blending: Blending) -> dict[str, Any]:
        """Return the metrics of every scorer, as fractions, by scorer, labels and metric."""
        predictor = self.predictor.with_blending(blending.calibrations, blending.blends)
        counts = predictor.catalogue.training_counts
        ks = [each for each in KS if each <= len(counts)]
        rows = rows_of(predictor, RankingOptions(k=min(MAX_K, len(counts))))
        rankings = rank_batches(predictor, self._batches, rows, self._ranked)
        evaluation = evaluate(rankings, self.truth, counts, self.num_training_documents, ks)
        table = evaluation.overall_table()
        logger.info("dev split of %d documents:\n%s", evaluation.num_documents, table)
        return {
            name: {subset: dict(each.values) for subset, each in evaluation.scorers[name].items()}
            for name in predictor.scorers.names
        }

    @cached_property
    def _fitted_on(self) -> DevRanking:
        """What calibrations and blends are fitted on."""
        catalogue, pairs = self.predictor.catalogue, self._ranked.pairs
        counts, parts, unseen = catalogue.training_counts, self.predictor.parts, None
        if lacks_unseen_labels(pairs, counts):
            unseen = pairs_without_documents(pairs, self._batches, counts, parts)
        rows = spread_rows(len(pairs.labels), _MAX_FITTED)
        return DevRanking.of(
            pairs.of_documents(rows), self.truth[rows], catalogue, self.num_training_documents,
            None if unseen is None else unseen.of_documents(rows),
        )  # fmt: skip

    def scored(self, blending: Blending) -> ScoredPairs:
        """Return the pairs with the scores of the blends, too; these are made once."""
        if self._scored is None:
            pairs = self._ranked.pairs
            whole = self.predictor.with_blending(blending.calibrations, blending.blends)
            own = {
                name: score_given(whole, self._batches, pairs.labels, name)
                for name in blending.blends
            }
            self._scored = replace(pairs, scores=pairs.scores | own)
        return self._scored

    def batches(self) -> Sequence[TextBatch]:
        """Return the documents, ready to be ranked."""
        return self._batches
