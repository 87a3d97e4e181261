"""How well labels are found that no training document carries: labels are hidden, fold by fold.

Few corpora have many documents of labels without training documents. So 5 % of the labels that
training documents carry are hidden, five times others: taken out of what each scorer learned, their
documents stay. A classifier of `sparse` knows no other label, so it is the same without those of
the hidden ones; `names` forgets that their names were right, but for the trees, which know no
label; vectors of words are trained again; remembered documents lend other labels. Measured on dev,
of which each half is ranked by a blend that is fitted on the other half:

- R@10 (hidden): of the hidden labels, ranked among all, over the documents that carry one;
- P@5, nDCG@5 and PSP@5 of all labels.

± is the standard error over the documents of all folds; those of `without NAME` are of the
difference from the blend of all scorers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int64
from scipy.sparse import csr_array

from longtail.models.kinds.registry import KINDS
from longtail.models.memory.memory import NeighbourMemory
from longtail.models.metrics import document_values_at
from longtail.models.names import WORD_NEIGHBOURS, WORD_VECTORS
from longtail.models.parts.model_parts import ModelParts
from longtail.models.predict.predictor import Predictor
from longtail.models.scorers.sparse import SparseModel
from longtail.training.calibration.ensemble import fit_blending
from longtail.training.calibration.members import DevRanking
from longtail.training.calibration.scored_pairs import PairCollector, spread_rows
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import Dataset
from longtail.training.data.documents import TrainingDocuments
from longtail.training.lexical.word_vectors import WordVectorsSettings, fit_word_vectors
from longtail.training.memory.vectors import vector_memory
from longtail.training.pipeline.encoder_free import (
    EncoderFree,
    fit_encoder_free,
    with_texts_decided,
)

NUM_FOLDS, SHARE = 5, 0.05
MOST_DOCUMENTS = 2000
"""Most dev documents that are ranked."""
BATCH = 256
BLEND = "blend"
WITHOUT = "blend without "
K = 10
OF_ALL = ("P@5", "nDCG@5", "PSP@5")
MEASURES = (f"R@{K} (hidden)", *OF_ALL)
Values = dict[str, np.ndarray]
Differences = dict[str, dict[str, float]]
"""By measure: mean and standard error."""


@dataclass(frozen=True, slots=True)
class DevTexts:
    """Documents that are measured on.

    Attributes:
        texts: Texts of each part.
        truth: Its labels.
    """

    texts: Sequence[str]
    truth: Float32[csr_array, "document label"]


def hidden_folds(
    training_counts: Int64[np.ndarray, label], seed: int
) -> Iterator[Bool[np.ndarray, label]]:
    """Yield which labels are hidden in each fold: 5 % of those with documents, no label twice."""
    order = np.random.default_rng(seed).permutation(np.flatnonzero(training_counts))
    size = max(1, round(SHARE * len(order)))
    for start in range(0, NUM_FOLDS * size, size):
        is_hidden = np.zeros(len(training_counts), dtype=np.bool_)
        is_hidden[order[start : start + size]] = True
        yield is_hidden


def without_hidden(found: EncoderFree, is_hidden: Bool[np.ndarray, label]) -> ModelParts:
    """Return a model as if no training document had carried the hidden labels."""
    sparse, counts = found.sparse, np.where(is_hidden, 0, found.catalogue.training_counts)
    rows = np.flatnonzero(~is_hidden[sparse.labels])
    weights = csr_array(sparse.weights[rows])
    sparse = SparseModel.of_rows(sparse.tfidf, weights, sparse.bias[rows], sparse.labels[rows])
    models = {
        name: KINDS[name].without_documents(model, is_hidden)
        for name, model in found.models.items()
    }
    truth = csr_array(found.truth * np.where(is_hidden, np.float32(0), np.float32(1)))
    truth.eliminate_zeros()
    ids = [str(row) for row in range(truth.shape[0])]
    for name, model in models.items():
        if isinstance(model, NeighbourMemory):
            models[name] = NeighbourMemory.of_documents(
                found.features, truth, ids,
                num_neighbours=model.num_neighbours, temperature=model.temperature,
            )  # fmt: skip
    catalogue = found.catalogue.replaced(training_count=counts.tolist())
    if WORD_VECTORS in models:  # words, too, have learned from the documents of a label
        models[WORD_VECTORS] = fit_word_vectors(
            found.features, truth, catalogue, sparse.tfidf, WordVectorsSettings(), 0
        )
    if WORD_NEIGHBOURS in models:
        vectors = models[WORD_VECTORS].encode(found.features)
        models[WORD_NEIGHBOURS] = vector_memory(vectors, truth, ids)
    return ModelParts(catalogue, sparse, None, models)


def measured(
    parts: ModelParts, dev: DevTexts, is_hidden: Bool[np.ndarray, label], num_documents: int
) -> dict[str, Values]:
    """Return the measures of each document, by scorer; blends are of all and of all but one.

    Args:
        parts: The model without the hidden labels.
        dev: What to measure on; blends are fitted on each half of it and measured on the other.
        is_hidden: Whether a label is hidden.
        num_documents: That the model was trained on.
    """
    predictor = Predictor(parts, device="cpu")
    collector = PairCollector(predictor, dev.truth)
    starts = range(0, len(dev.texts), BATCH)
    batches = (predictor.read(dev.texts[start : start + BATCH]) for start in starts)
    for _ in collector.watch(batches):
        pass
    ranking = DevRanking.of(collector.pairs, dev.truth, predictor.catalogue, num_documents)
    calibrations = fit_blending(ranking, {}).calibrations
    scorers = tuple(name for name in predictor.scorers.names if name in calibrations)
    scores = {name: ranking.pairs.scores[name] for name in scorers}
    scores[BLEND] = ranking.cross_fitted(scorers, calibrations)
    for name in scorers if len(scorers) > 2 else ():
        others = [other for other in scorers if other != name]
        scores[WITHOUT + name] = ranking.cross_fitted(others, calibrations)
    return {name: _values(ranking, own, is_hidden) for name, own in scores.items()}


def _values(
    ranking: DevRanking, scores: Float32[np.ndarray, "document m"], is_hidden: np.ndarray
) -> Values:
    """Return the measures of each document, in percent; recall is of those with hidden labels."""
    joined = ranking.joined(scores, K)
    of_hidden = joined.restricted_to(is_hidden)
    values = document_values_at(joined, 5, ranking.propensity_weights)
    recall = of_hidden.is_hit.sum(axis=1) / of_hidden.num_true
    return {f"R@{K} (hidden)": 100 * recall, **{name: 100 * values[name] for name in OF_ALL}}


def hidden_differences(found: EncoderFree, dev: DevTexts) -> dict[str, Differences]:
    """Return `differences` over the folds of hidden labels."""
    folds: dict[str, list[Values]] = {}
    for is_hidden in hidden_folds(found.catalogue.training_counts, 0):
        parts = without_hidden(found, is_hidden)
        for name, values in measured(parts, dev, is_hidden, found.truth.shape[0]).items():
            folds.setdefault(name, []).append(values)
    return differences(folds)


def trained(corpus: Dataset, config: TrainingConfig, work: Path) -> tuple[EncoderFree, DevTexts]:
    """Return all that needs no encoder, as a run trains it, and some documents of dev.

    Raises:
        SystemExit: There is no dev split, and the corpus is too small to hold documents out.
    """
    documents = TrainingDocuments.read(corpus, config.held_out_dev)
    if (dev := documents.dev) is None:
        raise SystemExit(f"{corpus.folder}: too small to hold documents out")
    found = fit_encoder_free(documents, with_texts_decided(config, documents), work)
    texts, truth = list(dev.texts()), dev.scan().labels
    rows = spread_rows(len(texts), MOST_DOCUMENTS)
    return found, DevTexts([texts[row] for row in rows.tolist()], csr_array(truth[rows]))


def differences(folds: Mapping[str, Sequence[Values]]) -> dict[str, Differences]:
    """Return means over the documents of all folds with standard errors, by scorer and measure.

    Those of a blend without a scorer are of its differences from the blend of all. A measure that
    fewer than two documents have is left out.
    """
    found: dict[str, Differences] = {}
    for name, own in folds.items():
        found[name] = {}
        for measure in MEASURES:
            values = np.concatenate([each[measure] for each in own])
            if name.startswith(WITHOUT):
                values = values - np.concatenate([each[measure] for each in folds[BLEND]])
            if len(values) < 2:
                continue
            error = float(values.std(ddof=1)) / math.sqrt(len(values))
            found[name][measure] = {"mean": float(values.mean()), "standard_error": error}
    return found
