"""The scorers of one model: the trained scorers and their blends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.bundle.manifest import Calibration
from longtail.models.errors import RequestError
from longtail.models.kinds.placement import Placement
from longtail.models.kinds.registry import KINDS
from longtail.models.kinds.scorer import Scorer
from longtail.models.labels.selection import LabelSelector
from longtail.models.names import HYBRID, HYBRID_OF, CorrectionName
from longtail.models.options import PROPENSITY, Option, RankingOptions
from longtail.models.parts.batches import Extent, TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.ranking.threshold_algorithm import (
    SUM,
    Combination,
    Sources,
    combined_scores,
    rank,
)
from longtail.models.ranking.top_k import NO_LABEL, IndexChoice, Ranking
from longtail.models.results import BlendedScorer, Evidence, TokenExplanation
from longtail.models.scorers.blending import Blend, DialledBlend, FittedBlend, MeanBlend
from longtail.models.scorers.calibration import IDENTITY
from longtail.models.scorers.propensity import WeighedCombination, propensity_weights
from longtail.models.scorers.scan import scan


@dataclass(frozen=True, slots=True)
class Resolved:
    """The options of a query, resolved for one model.

    Attributes:
        scorer: Name of the scorer.
        correction: The correction that is added to its scores.
        tail_dial: tau, the strength of logit adjustment.
        is_weighed: Whether probability times inverse propensity ranks, and not the score.
        calibration: For the probability, if not the scorer's: that of a short text.
    """

    scorer: str
    correction: CorrectionName
    tail_dial: float
    is_weighed: bool = False
    calibration: Calibration | None = None


def concerned(
    hooks: Iterable[tuple[Option | None, Callable[..., Any], Any]], options: RankingOptions
) -> list[tuple[Callable[..., Any], Any]]:
    """Return the hooks of the fitted parts that a query uses, each with the value of the part.

    Args:
        hooks: `FittedPart.option`, a method, and the value of the part.
        options: Options of the query.
    """
    return [
        (hook, value)
        for option, hook, value in hooks
        if option is None or options.of_part(option.name) is not None
    ]


class ScorerSet:
    """Ranks and scores labels by any scorer of a model.

    Attributes:
        names: Names of the scorers and blends.
        default: The scorer for queries that name none.
        num_labels: Number of labels of the model.
        selector: Finds the labels that filters name.
        left_out: Others of the bundle that were not loaded, as they need the encoder.
    """

    left_out: tuple[str, ...] = ()

    def __init__(self, parts: ModelParts, placement: Placement, default: str) -> None:
        """Make the scorers.

        Args:
            parts: The trained model.
            placement: Where it computes.
            default: The scorer for queries that name none; empty: the first.
        """
        self.names = parts.scorers
        self.default = default or self.names[0]
        self.num_labels = len(parts.catalogue)
        self._in_use = parts.catalogue.in_use
        self.selector = LabelSelector(parts.catalogue)
        self._calibrations = parts.calibrations
        self._scorers: dict[str, Scorer] = {
            name: kind.make(model, parts, placement)
            for name, kind in KINDS.items()
            if (model := kind.model_of(parts)) is not None
        }
        self._blends = _blends(parts)
        self._counts = parts.catalogue.training_counts
        self._num_documents = parts.num_training_documents
        assert {*self._scorers, *self._blends} == {*self.names}

    def with_blending(self, parts: ModelParts) -> ScorerSet:
        """Return the same scorers with the blends and calibrations of other parts.

        Args:
            parts: Those of this model but for calibrations, blends and fitted parts.
        """
        other = copy(self)
        other._calibrations = parts.calibrations
        other.names = parts.scorers
        other._blends = _blends(parts)
        return other

    @property
    def index_choices(self) -> dict[str, IndexChoice]:
        """The library that searches the label vectors, by scorer that has label vectors."""
        choices = {name: scorer.index_choice for name, scorer in self._scorers.items()}
        return {name: choice for name, choice in choices.items() if choice is not None}

    def resolve(self, options: RankingOptions) -> Resolved:
        """Return the options of a query, resolved for this model."""
        scorer = self.default if options.scorer is None else options.scorer
        correction = self.correction_of(scorer, options.correction)
        is_weighed = options.aim == PROPENSITY
        if is_weighed and correction != self.correction_of(scorer):
            raise RequestError(
                f"aim is {PROPENSITY!r} without the correction of scorer {scorer!r}, which leaves "
                "no probabilities to weigh; leave out one of the two"
            )
        if is_weighed and (scorer not in self._calibrations or not self._num_documents):
            raise RequestError(
                f"aim is {PROPENSITY!r}, and scorer {scorer!r} has no probabilities that were "
                "fitted on a dev split; leave the aim out, or use another scorer"
            )
        return Resolved(scorer, correction, options.tail_dial, is_weighed)

    def rank(
        self, batch: TextBatch, options: RankingOptions, query: Resolved | None = None
    ) -> Ranking:
        """Return the exact k best labels of each text.

        With the aim "propensity" only labels that pass the threshold are ranked; else it is
        ignored.

        Args:
            batch: The texts.
            options: Options of the query.
            query: The result of `resolve` for these options; None: they are resolved here.
        """
        query = query or self.resolve(options)
        if options.k > self.num_labels:
            raise RequestError(
                f"k is {options.k}; expected 1 to {self.num_labels}, the number of labels"
            )
        selection = self.selector.select(options.label_filter)
        least = None if isinstance(options.threshold, str) else options.threshold
        scorers, combine = self._scored(batch, query, least)
        arguments = (scorers, combine, options.k, self.num_labels, selection)
        return scan(*arguments) or rank(*arguments)

    def score(
        self,
        batch: TextBatch,
        labels: Int64[np.ndarray, "text m"],
        options: RankingOptions,
        query: Resolved | None = None,
    ) -> Float32[np.ndarray, "text m"]:
        """Return the scores of given labels of each text, to the bit those of `rank`.

        The arguments are those of `rank`.
        """
        scorers, combine = self._scored(batch, query or self.resolve(options))
        rows = np.arange(len(labels), dtype=np.int64)
        scores = combined_scores(scorers, combine, rows, labels)
        return np.where(self._in_use[labels], scores, np.float32(-np.inf))

    def score_by_all(
        self, batch: TextBatch, labels: Int64[np.ndarray, "text m"]
    ) -> dict[str, Float32[np.ndarray, "text m"]]:
        """Return the scores of blends, and of each scorer as a blend takes them."""
        found = {name: self._member_scores(batch, labels, name) for name in self._scorers}
        for name, blend in self._blends.items():
            of_members = np.stack([found[member] for member in blend.members])
            found[name] = DialledBlend.of(blend, 0.0).combine(of_members, labels)
        return {name: found[name] for name in self.names}

    def _member_scores(
        self, batch: TextBatch, labels: Int64[np.ndarray, "text m"], name: str
    ) -> Float32[np.ndarray, "text m"]:
        sources = self._scorers[name].member_sources(batch)
        rows = np.arange(len(labels), dtype=np.int64)
        scores = combined_scores([sources], SUM, rows, labels)
        return np.where(self._in_use[labels], scores, np.float32(-np.inf))

    def contributions(
        self, batch: TextBatch, text: int, labels: Sequence[int]
    ) -> Mapping[int, TokenExplanation]:
        """Return what a text's tokens add to label scores, by the first scorer that has it."""
        parts: dict[int, TokenExplanation] = {}
        for scorer in self._scorers.values():
            parts = {**scorer.contributions(batch, text, labels), **parts}
        return parts

    def evidence(
        self, batch: TextBatch, labels: Int64[np.ndarray, "text m"], options: RankingOptions
    ) -> list[list[Evidence]]:
        """Return the evidence for labels of each text, none for `NO_LABEL`, by the scorer asked."""
        parts = self._blend_parts(batch, labels, self.resolve(options).scorer)
        found = []
        for text, row in enumerate(labels.tolist()):
            of_text = [label for label in row if label != NO_LABEL]
            merged = {label: Evidence(blend=parts.get((text, label), ())) for label in of_text}
            for scorer in self._scorers.values():
                for label, each in scorer.evidence(batch, text, of_text).items():
                    before = merged[label]
                    merged[label] = replace(
                        before,
                        name=before.name or each.name,
                        documents=before.documents or each.documents,
                    )
            found.append([merged.get(label, Evidence()) for label in row])
        return found

    def _blend_parts(
        self, batch: TextBatch, labels: Int64[np.ndarray, "text m"], scorer: str
    ) -> dict[tuple[int, int], tuple[BlendedScorer, ...]]:
        """Return what the members of a fitted blend say, by text and label; else nothing."""
        blend = self._blends.get(scorer)
        if not isinstance(blend, FittedBlend) or not labels.size:
            return {}
        scores = [self._member_scores(batch, labels, name) for name in blend.members]
        weights, added = blend.weights(labels), blend.evidence(np.stack(scores), labels)
        return {
            (text, int(labels[text, at])): tuple(
                BlendedScorer(name, float(weights[i, text, at]), float(added[i, text, at]))
                for i, name in enumerate(blend.members)
            )
            for text, at in np.ndindex(labels.shape)
        }

    def correction_of(self, scorer: str, requested: str | None = None) -> CorrectionName:
        """Return the correction of a scorer: the requested one, or its own by default.

        Args:
            scorer: One of `names`.
            requested: "none", or the correction that it was trained with (None: this one).
        """
        self._check(scorer)
        own: CorrectionName = "none"
        if scorer in self._scorers:
            own = self._scorers[scorer].correction
        if requested is None or requested == own:
            return own
        if requested == "none":
            return "none"
        expected = "'none'" if own == "none" else f"'none' or {own!r}"
        raise RequestError(
            f"correction is {requested!r} and scorer {scorer!r}, which was not trained with it, so "
            f"that it would bias the scores; expected {expected}"
        )

    def calibration_of(self, scorer: str) -> Calibration | None:
        """Return the calibration from a scorer's scores to log-odds; None if it has none."""
        own = IDENTITY if self._gives_logits(scorer) else None
        return self._calibrations.get(scorer, own)

    def gives_probabilities(self, scorer: str) -> bool:
        """Whether a scorer gives probabilities."""
        self._check(scorer)
        return self.calibration_of(scorer) is not None

    def needs_encoder(self, scorer: str) -> bool:
        """Whether a scorer, or a member of a blend, needs the encoder."""
        return any(KINDS[name].needs_encoder for name in self._members(scorer))

    def prepare(self, batch: TextBatch, scorer: str) -> None:
        """Prepare the texts for a scorer, except for the encoder's part."""
        for name in self._members(scorer):
            self._scorers[name].prepare(batch)

    def extents(self, batch: TextBatch, scorer: str) -> list[Extent]:
        """Return how much of each text a scorer, or the members of a blend, read."""
        members = self._members(scorer)
        known = [
            self._scorers[name].known_tokens(batch, is_alone=len(members) == 1) for name in members
        ]
        return batch.extents(reduce(np.maximum, known), by_encoder=self.needs_encoder(scorer))

    def is_overconfident(self, scorer: str) -> bool:
        """Whether a scorer's probabilities are too high for labels with few training documents.

        Only those of a scorer that compares texts are, whose calibration is of all labels alike.
        """
        calibration = self.calibration_of(scorer)
        is_of_all = calibration is not None and len(calibration.counts) == 1
        return is_of_all and scorer in self._scorers and KINDS[scorer].compares_texts

    def knows(self, scorer: str, label: int) -> bool:
        """Whether a scorer, or a member of a blend, can score a label."""
        return bool(self._in_use[label]) and any(
            label in self._scorers[name].labels for name in self._members(scorer)
        )

    def _check(self, scorer: str) -> None:
        if scorer not in self.names:
            raise RequestError(
                f"scorer {scorer!r} is not in this bundle; it has "
                f"{', '.join((*self.names, *self.left_out))}"
            )

    def _members(self, scorer: str) -> tuple[str, ...]:
        """Return the scorer, or the members of a blend."""
        self._check(scorer)
        return self._blends[scorer].members if scorer in self._blends else (scorer,)

    def _gives_logits(self, scorer: str) -> bool:
        """Whether the sigmoid of a scorer's scores is a probability without any calibration."""
        if isinstance(self._blends.get(scorer), FittedBlend):
            return True
        return all(KINDS[x].gives_logits for x in self._members(scorer))

    def _scored(
        self, batch: TextBatch, query: Resolved, threshold: float | None = None
    ) -> tuple[Sequence[Sources], Combination]:
        """Return what a query is ranked by; if weighed, only labels that pass the threshold."""
        scorers, combine = self._by_score(batch, query)
        if not query.is_weighed:
            return scorers, combine
        calibration = query.calibration or self._calibrations[query.scorer]
        weights = self._propensities
        return scorers, WeighedCombination(
            combine, calibration, self._counts, weights, threshold or 0.0, float(weights.max())
        )

    @cached_property
    def _propensities(self) -> Float32[np.ndarray, label]:
        assert self._num_documents
        return propensity_weights(self._counts, self._num_documents).astype(np.float32)

    def _by_score(self, batch: TextBatch, query: Resolved) -> tuple[Sequence[Sources], Combination]:
        """Return what makes the scores; scorers in a blend have their own corrections."""
        blend = self._blends.get(query.scorer)
        if blend is None:
            scorer = self._scorers[query.scorer]
            return [scorer.sources(batch, query.correction, query.tail_dial)], SUM
        # The tail dial is added to the blend, and not to its members.
        sources = [self._scorers[name].member_sources(batch) for name in blend.members]
        return sources, DialledBlend.of(blend, query.tail_dial)


def _blends(parts: ModelParts) -> dict[str, Blend]:
    """Return the scorers that are made of others."""
    counts, log_priors = parts.catalogue.training_counts, parts.catalogue.log_priors
    blends: dict[str, Blend] = {}
    if HYBRID in parts.scorers:
        blends[HYBRID] = MeanBlend(HYBRID_OF, log_priors)
    for name, fitted in parts.blends.items():
        calibrations = [parts.calibrations[member] for member in fitted.weights]
        blends[name] = FittedBlend(fitted, calibrations, counts, log_priors)
    return blends
