"""What a model knows of unlabelled documents before it is said which of them to label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.sparse import csr_array, vstack

from longtail.models.errors import ConfigError
from longtail.models.names import NEIGHBOURS
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.models.scorers.calibration import probabilities_of

NUM_CANDIDATES = 100
"""Labels of a document that are looked at: the best by the scorer."""
RARE_BELOW = 10
"""A label with fewer training documents is rare."""
_CHUNK_TEXTS = 512


@dataclass(frozen=True, slots=True)
class Pool:
    """Documents that can be chosen, as a model sees them.

    Attributes:
        features: Tf-idf rows by the model's vocabulary, of length 1 or 0.
        uncertainties: sum over candidates of p(1 - p): the variance of the number of labels, which
            is how many labels the model is in doubt about.
        rare_labels: sum of p over the rare candidates: how many rare labels a document is expected
            to carry.
        covered: Cosine to the nearest training document; 0 where the model remembers none.
        labels: Candidates, the best first; `NO_LABEL` where there are fewer.
        probabilities: Of the candidates; 0 at `NO_LABEL`.
    """

    features: Float32[csr_array, "document feature"]
    uncertainties: Float64[np.ndarray, document]
    rare_labels: Float64[np.ndarray, document]
    covered: Float32[np.ndarray, document]
    labels: Int64[np.ndarray, "document candidate"]
    probabilities: Float32[np.ndarray, "document candidate"]

    def __len__(self) -> int:
        return len(self.uncertainties)

    @classmethod
    def joined(cls, parts: Sequence[Pool]) -> Pool:
        """Return the documents of several pools of one model, in their order."""
        return cls(
            csr_array(vstack([part.features for part in parts], format="csr")),
            np.concatenate([part.uncertainties for part in parts]),
            np.concatenate([part.rare_labels for part in parts]),
            np.concatenate([part.covered for part in parts]),
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.probabilities for part in parts]),
        )


def scorer_with_probabilities(predictor: Predictor, scorer: str | None = None) -> str:
    """Return the name of the scorer that documents are looked at by.

    Args:
        predictor: The model.
        scorer: One of its scorers; None: the default one.

    Raises:
        ConfigError: There is none of this name, or it has no calibrated probabilities.
    """
    name = predictor.default_scorer if scorer is None else scorer
    if name not in predictor.scorers:
        known = ", ".join(predictor.scorers)
        raise ConfigError(f"--scorer: got {name!r}, expected one of the model's: {known}")
    if name not in predictor.calibrations:
        raise ConfigError(
            f"scorer {name!r} gives no probabilities, which say what a document would teach; train "
            "with a dev split, or with at least 200 documents, or name another --scorer"
        )
    return name


def read_pool(
    predictor: Predictor,
    texts: Sequence[str],
    scorer: str,
    progress: Callable[[int], object] = int,
) -> Pool:
    """Return what a model knows of texts, some of them at a time.

    Args:
        predictor: The model.
        texts: At least one; none of them blank.
        scorer: What `scorer_with_probabilities` returned.
        progress: Called with a number of texts whenever so many were read.

    Raises:
        RequestError: A text can't be ranked.
    """
    parts = []
    for start in range(0, len(texts), _CHUNK_TEXTS):
        batch = predictor.read(texts[start : start + _CHUNK_TEXTS])
        parts.append(_looked_at(predictor, batch, scorer))
        progress(len(batch.texts))
    return Pool.joined(parts)


def _looked_at(predictor: Predictor, batch: TextBatch, scorer: str) -> Pool:
    counts = predictor.catalogue.training_counts
    k = min(NUM_CANDIDATES, len(counts))
    ranking = predictor.rank(batch, RankingOptions(k=k, scorer=scorer))
    probabilities = _probabilities(predictor, ranking, scorer)
    is_rare = counts[ranking.labels] < RARE_BELOW
    remembers = NEIGHBOURS in predictor.scorers
    return Pool(
        features=batch.features,
        uncertainties=(probabilities * (1 - probabilities)).sum(axis=1),
        rare_labels=np.where(is_rare, probabilities, 0).sum(axis=1),
        covered=(
            batch.neighbours.similarities[:, 0]
            if remembers
            else np.zeros(len(batch.texts), dtype=np.float32)
        ),
        labels=ranking.labels,
        probabilities=probabilities.astype(np.float32),
    )


def _probabilities(
    predictor: Predictor, ranking: Ranking, scorer: str
) -> Float64[np.ndarray, "document candidate"]:
    found = probabilities_of(predictor.calibrations[scorer], ranking.scores)
    return np.where(ranking.labels == NO_LABEL, 0.0, found)
