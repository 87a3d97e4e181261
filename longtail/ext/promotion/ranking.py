"""Both versions on the same documents: rankings over one numbering of labels, and speed.

The labels are those of the corpus, then those that only a version knows: a version that lacks a
label of the corpus can't find it, and is measured so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.ext.promotion.paired import K
from longtail.models.bundle.bundle import Bundle
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.models.scorers.calibration import probabilities_of
from longtail.training.data.chunks import chunks
from longtail.training.data.dataset import Dataset
from longtail.training.evaluation.metrics import RankedEvaluation, join_truth

NUM_TIMED = 40
"""Texts, spread over the split, that both versions are timed on."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a registry, opened and loaded.

    Attributes:
        number: Number of the version.
        bundle: Its files.
        predictor: Ranks by its default scorer, as a service does.
    """

    number: int
    bundle: Bundle
    predictor: Predictor

    @classmethod
    def load(cls, number: int, bundle: Bundle) -> Version:
        """Load a version.

        Raises:
            BundleCorruptError: Parts of the bundle contradict each other.
        """
        return cls(number, bundle, Predictor.of_bundle(bundle))

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(info.size_bytes for info in self.bundle.manifest.files.values())


class Numbering:
    """One number for each label of the corpus and of both versions."""

    def __init__(self, dataset: Dataset, catalogues: Sequence[LabelCatalogue]) -> None:
        """Number the labels of the corpus first, then those of the versions that it lacks."""
        everywhere = [dataset.labels, *catalogues]
        ids = dict.fromkeys(label.id for catalogue in everywhere for label in catalogue)
        self.number_of = {label_id: number for number, label_id in enumerate(ids)}

    def rows_of(self, catalogue: LabelCatalogue) -> Int64[np.ndarray, row]:
        """Return the number of each label of a catalogue, in its order."""
        return np.array([self.number_of[label.id] for label in catalogue], dtype=np.int64)

    def training_counts(self, catalogue: LabelCatalogue) -> Int64[np.ndarray, label]:
        """Return the training documents of each label by what a catalogue says; 0 if it lacks it.

        Args:
            catalogue: Catalogue of the version whose training documents are counted.
        """
        counts = np.zeros(len(self.number_of), dtype=np.int64)
        counts[self.rows_of(catalogue)] = catalogue.training_counts
        return counts

    def truth(self, matrix: Float32[csr_array, "document listed"]) -> csr_array:
        """Return the labels of documents with a column for each number."""
        shape = (matrix.shape[0], len(self.number_of))
        return csr_array((matrix.data, matrix.indices, matrix.indptr), shape=shape)


@dataclass(frozen=True, slots=True)
class Answers:
    """A version's answers for the documents.

    Attributes:
        joined: Its best five labels beside the truth, by their common numbers.
        num_not_finite: Number of their scores that are not finite.
        num_empty: Documents without any label.
        probabilities: Of these labels, if its scorer is calibrated; nan where there is no label.
    """

    joined: RankedEvaluation
    num_not_finite: int
    num_empty: int
    probabilities: Float64[np.ndarray, "document k"] | None

    @property
    def judged(self) -> tuple[Float64[np.ndarray, pair], Bool[np.ndarray, pair]] | None:
        """The probabilities of all labels and whether each is right; None without any."""
        if self.probabilities is None or np.isnan(self.probabilities).all():
            return None
        is_there = ~np.isnan(self.probabilities)
        return self.probabilities[is_there], self.joined.is_hit[is_there]


def answer(
    version: Version, texts: Sequence[str], truth: csr_array, numbering: Numbering
) -> Answers:
    """Rank documents by a version's default scorer, and join the rankings with the truth.

    Args:
        version: The model.
        texts: Texts of the documents.
        truth: Their labels, by `numbering`.
        numbering: Numbering of the labels.
    """
    predictor = version.predictor
    options = RankingOptions(k=min(K, len(predictor.catalogue)))
    ranking = Ranking.joined(
        [predictor.rank(predictor.read(chunk), options) for chunk in chunks(texts)]
    )
    is_label = ranking.labels != NO_LABEL
    labels = np.where(is_label, numbering.rows_of(predictor.catalogue)[ranking.labels], NO_LABEL)
    padding = ((0, 0), (0, K - options.k))
    calibration = predictor.parts.calibrations.get(predictor.scorers.default)
    probabilities = None
    if calibration is not None:
        probabilities = np.where(is_label, probabilities_of(calibration, ranking.scores), np.nan)
        probabilities = np.pad(probabilities, padding, constant_values=np.nan)
    return Answers(
        joined=join_truth(np.pad(labels, padding, constant_values=NO_LABEL), truth),
        num_not_finite=int(np.count_nonzero(is_label & ~np.isfinite(ranking.scores))),
        num_empty=int(np.count_nonzero(~is_label.any(axis=1))),
        probabilities=probabilities,
    )


def milliseconds_a_text(versions: Sequence[Version], texts: Sequence[str]) -> list[float]:
    """Return the median time that each version takes for a text alone.

    The versions take turns on each text, each first in turn, so that other load of the machine
    affects all of them.

    Args:
        versions: The versions to time.
        texts: Each is answered once by every version; before them the first one, untimed.
    """
    for version in versions:
        _answer_one(version, texts[0])
    seconds: list[list[float]] = [[] for _ in versions]
    for turn, text in enumerate(texts):
        for place in range(len(versions)):
            number = (turn + place) % len(versions)
            started = time.perf_counter()
            _answer_one(versions[number], text)
            seconds[number].append(time.perf_counter() - started)
    return [1000 * float(np.median(each)) for each in seconds]


def _answer_one(version: Version, text: str) -> None:
    predictor = version.predictor
    options = RankingOptions(k=min(K, len(predictor.catalogue)))
    predictor.rank(predictor.read([text]), options)
