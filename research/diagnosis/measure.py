"""The quantities of DEPL section 4, measured for every label on the documents that carry it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.sparse import csr_array

from longtail.models.bundle.bundle import Bundle
from longtail.models.errors import ConfigError, DataError
from longtail.models.parts.sparse_storage import read_sparse
from longtail.models.scorers.sparse import SparseModel
from longtail.training.assessment.truth import in_order_of
from longtail.training.data.dataset import Dataset
from research.diagnosis.theory import (
    Normalisation,
    keyword_bound,
    keyword_weights,
    normalise,
    row_dots,
    row_sums,
    theorem_bound,
)

KEYWORD_COUNTS = (8, 16, 32)

_MAX_ENTRIES = 2**21  # (pair, label) scores held at a time, in each of about ten arrays
_EPSILON_QUANTILE = 0.1


@dataclass(frozen=True, slots=True)
class KeywordFindings:
    """What `count` keywords a label keep of its classifier.

    Delta and bound are in the paper's normalisation, the rest in the classifiers' own weights.

    Attributes:
        count: Keywords a label; the k of the paper.
        delta_max: The smallest delta for which Definition 1 holds on all of the label's documents.
        delta_mean: The mean over its documents of the smallest that holds on each.
        bound: `theorem_bound` of `epsilon_min`, `delta_max` and the most negatives of a document.
        missed: Mean share of <x, w_p> over positive weights that is not on keywords: delta / score
            of the classifier without its negative weights; NaN if no document has such a word.
        kept: Share of its documents on which <x, v_p> > <x, v_n> for all negatives n ranked lower.
        sharp_bound: Mean over its documents of the sum of `keyword_bound` over those negatives, at
            most 1: bounds the chance of an error on one of its documents drawn at random.
    """

    count: int
    delta_max: Float64[np.ndarray, label]
    delta_mean: Float64[np.ndarray, label]
    bound: Float64[np.ndarray, label]
    missed: Float64[np.ndarray, label]
    kept: Float64[np.ndarray, label]
    sharp_bound: Float64[np.ndarray, label]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The quantities of DEPL section 4 for the labels that have a classifier and a document.

    Attributes:
        dim: Dimensions of the dense encoder.
        normalisation: The transformation to the paper's conditions.
        labels: Catalogue index of each label, rising.
        num_documents: Its documents that have a negative label ranked below it.
        num_negatives: The most such negatives on one of them: M_p.
        epsilon_min: The least margin over them (Definition 2), in the paper's normalisation.
        epsilon_low: The 10th percentile over its documents of the least margin on each.
        findings: By number of keywords, rising.
    """

    dim: int
    normalisation: Normalisation
    labels: Int64[np.ndarray, label]
    num_documents: Int64[np.ndarray, label]
    num_negatives: Int64[np.ndarray, label]
    epsilon_min: Float64[np.ndarray, label]
    epsilon_low: Float64[np.ndarray, label]
    findings: tuple[KeywordFindings, ...]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Documents, each with one of its labels, ordered by document.

    Attributes:
        document: Row of the document.
        label: Row of the label's classifier.
        num_negatives, epsilon: As in the paper, on this document, in the classifiers' own scale.
        delta, missed, kept, sharp_bound: By number of keywords; delta in the own scale too.
    """

    document: Int64[np.ndarray, pair]
    label: Int64[np.ndarray, pair]
    num_negatives: Int64[np.ndarray, pair]
    epsilon: Float64[np.ndarray, pair]
    delta: Float64[np.ndarray, "k pair"]
    missed: Float64[np.ndarray, "k pair"]
    kept: Float64[np.ndarray, "k pair"]
    sharp_bound: Float64[np.ndarray, "k pair"]


def diagnose_split(
    bundle: Bundle,
    dataset: Dataset,
    split_name: str,
    *,
    dim: int | None = None,
    keyword_counts: Sequence[int] = KEYWORD_COUNTS,
) -> Diagnosis:
    """Diagnose a bundle's labels on a split (see `diagnose`); its encoder is not loaded.

    Args:
        bundle: The model.
        dataset: Its labels must be known to the model, by their ids.
        split_name: The split with the documents.
        dim: Dimensions of the dense encoder that the theory speaks of; None: of the model's own.
        keyword_counts: Numbers of keywords to try, each at least 1.
    """
    if dim is None:
        dim = _dim_of_encoder(bundle)
    model = read_sparse(bundle)
    split = dataset.split(split_name)
    truth = in_order_of(bundle.catalogue, dataset, split.scan().labels)
    features = model.tfidf.transform(split.texts())
    return diagnose(model, features, truth, dim=dim, keyword_counts=keyword_counts)


def _dim_of_encoder(bundle: Bundle) -> int:
    if bundle.manifest.encoder is None:
        raise ConfigError(
            f"bundle {bundle.folder.name!r}: it has no encoder whose dimensions the theory could "
            "speak of; name the number of an encoder that you think of with --dim"
        )
    return bundle.manifest.encoder.dim


def diagnose(
    model: SparseModel,
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document label"],
    *,
    dim: int,
    keyword_counts: Sequence[int] = KEYWORD_COUNTS,
) -> Diagnosis:
    """Measure delta, epsilon and the bounds of every label on the documents that carry it.

    Ranked lower means of a strictly smaller score. Memory: a few dense blocks of scores, whatever
    the number of documents.

    Args:
        model: The classifiers.
        features: The documents' tf-idf rows.
        truth: Their labels, over the whole catalogue.
        dim: Dimensions of the dense encoder.
        keyword_counts: Numbers of keywords to try, each at least 1.
    """
    if not keyword_counts or min(keyword_counts) < 1:
        raise ConfigError(
            f"diagnosis: got keyword counts {list(keyword_counts)!r}, expected some of at least 1"
        )
    counts = sorted(set(keyword_counts))
    norm = normalise(model)
    pairs = _measure_pairs(model, features, csr_array(truth[:, model.labels]), norm, dim, counts)
    has_negative = pairs.num_negatives > 0
    if not has_negative.any():
        raise DataError(
            "diagnosis: no document carries a label with a classifier that ranks above a label "
            "which it lacks; give a split with labels that the model was trained on"
        )
    return _by_label(model.labels, pairs, has_negative, norm, dim, counts)


def _measure_pairs(
    model: SparseModel,
    features: Float32[csr_array, "document feature"],
    truth: Float32[csr_array, "document covered"],
    norm: Normalisation,
    dim: int,
    counts: Sequence[int],
) -> _Pairs:
    document, label = (each.astype(np.int64) for each in truth.nonzero())
    order = np.lexsort((label, document))
    by_pair, by_keywords = (len(order),), (len(counts), len(order))
    pairs = _Pairs(
        document=document[order],
        label=label[order],
        num_negatives=np.zeros(by_pair, dtype=np.int64),
        epsilon=np.zeros(by_pair),
        **{name: np.zeros(by_keywords) for name in ("delta", "missed", "kept", "sharp_bound")},
    )
    widest = keyword_weights(model.weights, counts[-1])
    keywords = [_Keywords(widest, norm.shift, count) for count in counts]
    positive_weights = csr_array(model.weights.maximum(0))
    for block in _blocks(len(order), truth.shape[1]):
        rows, label = pairs.document[block], pairs.label[block]
        texts = features[rows]
        margin = _margins(features, model.weights_by_feature, rows, label, model.bias)
        is_lower = (margin > 0) & (truth[rows].toarray() == 0)
        pairs.num_negatives[block] = is_lower.sum(axis=1)
        pairs.epsilon[block] = np.where(is_lower, margin, np.inf).min(axis=1)
        total = row_dots(texts, model.weights[label]) + texts @ norm.shift + norm.bias[label]
        positive = row_dots(texts, positive_weights[label])
        for place, each in enumerate(keywords):
            carried = row_dots(texts, each.shifted[label])
            pairs.delta[place, block] = np.maximum(total - carried, 0)
            hit = row_dots(texts, each.own[label])
            with np.errstate(invalid="ignore"):
                pairs.missed[place, block] = np.maximum(1 - hit / positive, 0)
            margin = _margins(features, each.by_feature, rows, label)
            pairs.kept[place, block] = ((margin > 0) | ~is_lower).all(axis=1)
            errors = each.error_bounds(texts, label, margin, is_lower, dim)
            pairs.sharp_bound[place, block] = np.minimum(errors, 1)
    return pairs


class _Keywords:
    """The keyword vectors v_l for one number of keywords, in the forms that are needed."""

    def __init__(
        self,
        weights: Float32[csr_array, "covered feature"],
        shift: Float64[np.ndarray, feature],
        count: int,
    ) -> None:
        """Choose them; `weights` may be those of a greater count already."""
        self.own = keyword_weights(weights, count)
        self.by_feature = csr_array(self.own.T)
        # Only lengths of differences are taken from it, which are sums that nearly cancel.
        self._exact = csr_array(self.own, dtype=np.float64)
        self._exact_by_feature = csr_array(self._exact.T)
        self._squares = row_sums(self._exact.power(2))
        columns = self.own.indices
        self.shifted = csr_array(
            (self.own.data + shift[columns], columns, self.own.indptr), shape=self.own.shape
        )

    def error_bounds(
        self,
        texts: Float32[csr_array, "pair feature"],
        label: Int64[np.ndarray, pair],
        margin: Float32[np.ndarray, "pair covered"],
        is_lower: Bool[np.ndarray, "pair covered"],
        dim: int,
    ) -> Float64[np.ndarray, pair]:
        """Return the sum of `keyword_bound` over the negatives ranked lower."""
        products = (self._exact[label] @ self._exact_by_feature).toarray()
        distance = self._squares[label][:, None] + self._squares - 2 * products
        length = np.sqrt(row_sums(texts.power(2)).astype(np.float64))[:, None]
        length = length * np.sqrt(np.maximum(distance, 0))
        cosine = np.divide(margin, length, out=np.zeros_like(length), where=length > 0)
        lower = np.zeros_like(cosine)
        lower[is_lower] = keyword_bound(cosine[is_lower], dim)
        sums: Float64[np.ndarray, pair] = lower.sum(axis=1)
        return sums


def _blocks(num_pairs: int, num_labels: int) -> Iterator[slice]:
    step = max(1, _MAX_ENTRIES // num_labels)
    return (slice(start, start + step) for start in range(0, num_pairs, step))


def _margins(
    features: Float32[csr_array, "document feature"],
    by_feature: Float32[csr_array, "feature covered"],
    rows: Int64[np.ndarray, pair],
    label: Int64[np.ndarray, pair],
    bias: Float32[np.ndarray, covered] | float = 0.0,
) -> Float32[np.ndarray, "pair covered"]:
    """Return the score of each pair's label minus those of all labels on its document."""
    documents, place = np.unique(rows, return_inverse=True)
    scores = ((features[documents] @ by_feature).toarray() + bias)[place]  # (pair, covered)
    margins: Float32[np.ndarray, "pair covered"] = (
        np.take_along_axis(scores, label[:, None], axis=1) - scores
    )
    return margins


def _by_label(
    catalogue_index: Int64[np.ndarray, covered],
    pairs: _Pairs,
    is_used: Bool[np.ndarray, pair],
    norm: Normalisation,
    dim: int,
    counts: Sequence[int],
) -> Diagnosis:
    """Gather the pairs that are used by label."""
    used = np.flatnonzero(is_used)
    used = used[np.argsort(pairs.label[used], kind="stable")]
    rows, starts, sizes = np.unique(pairs.label[used], return_index=True, return_counts=True)
    epsilon = pairs.epsilon[used] / norm.scale
    num_negatives = np.maximum.reduceat(pairs.num_negatives[used], starts)
    epsilon_min = np.minimum.reduceat(epsilon, starts)
    parts = np.split(epsilon, starts[1:])

    def mean(values: Float64[np.ndarray, pair]) -> Float64[np.ndarray, label]:
        return np.add.reduceat(values[used], starts) / sizes

    findings = []
    for place, count in enumerate(counts):
        delta_max = np.maximum.reduceat(pairs.delta[place, used], starts) / norm.scale
        has_words = np.isfinite(pairs.missed[place]).astype(np.float64)
        with np.errstate(invalid="ignore"):
            missed = mean(np.nan_to_num(pairs.missed[place])) / mean(has_words)
        findings.append(
            KeywordFindings(
                count=count,
                delta_max=delta_max,
                delta_mean=mean(pairs.delta[place]) / norm.scale,
                bound=theorem_bound(epsilon_min, delta_max, num_negatives, dim),
                missed=missed,
                kept=mean(pairs.kept[place]),
                sharp_bound=mean(pairs.sharp_bound[place]),
            )
        )
    return Diagnosis(
        dim=dim,
        normalisation=norm,
        labels=catalogue_index[rows],
        num_documents=sizes.astype(np.int64),
        num_negatives=num_negatives,
        epsilon_min=epsilon_min,
        epsilon_low=np.array([np.quantile(part, _EPSILON_QUANTILE) for part in parts]),
        findings=tuple(findings),
    )
