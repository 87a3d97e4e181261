"""What the experiment of Bamler & Mandt 2020 learns: corpora as vectors, and a made-up problem.

Documents are vectors that stay as they are. Of the made-up problem p_D(y|x) is known, whatever the
number of labels, so the log likelihood of a method can be compared with the best there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array
from sklearn.decomposition import TruncatedSVD

from longtail.models.errors import ConfigError, DataError
from longtail.models.scorers.linear import LinearModel
from longtail.training.learning.sampling import label_counts
from research.experiments.adversarial.measures import LinearMetrics, measure_linear
from research.experiments.data import ExperimentData

CorpusTaskName = Literal["first_label", "all_labels"]
CORPUS_TASKS: tuple[CorpusTaskName, ...] = get_args(CorpusTaskName)
_SEED = (
    0  # of what all seeds of an experiment share: projection, documents measured, made-up labels
)
_DOCUMENTS_AT_A_TIME = 2**16


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationSet:
    """Documents that scorers are measured on, each with a label at least.

    Attributes:
        vectors: The documents' vectors.
        truth: Their labels.
    """

    vectors: Float32[np.ndarray, "document dim"]
    truth: Float32[csr_array, "document label"]


@dataclass(frozen=True, slots=True, eq=False)
class LearningTask:
    """What is learned, and what it is measured on.

    Attributes:
        name: In file names and tables.
        vectors: Vectors of the training documents.
        truth: Their labels; every label has a pair.
        tuning: Chooses learning rates and regularisers.
        measured: Gives the figures.
        true: The figures of p_D itself on `measured`; None where it is not known.
    """

    name: str
    vectors: Float32[np.ndarray, "document dim"]
    truth: Float32[csr_array, "document label"]
    tuning: EvaluationSet
    measured: EvaluationSet
    true: LinearMetrics | None = None


def corpus_tasks(
    data: ExperimentData, names: Sequence[CorpusTaskName], *, dim: int, num_judged: int
) -> Iterator[LearningTask]:
    """Yield tasks of a corpus over the truncated SVD of its features.

    `all_labels` has a pair for every label of a document; `first_label` keeps the smallest label of
    a document, as Bamler & Mandt (2020, section 5 and appendix A.2) do. Vectors are divided by one
    number, so that the training documents have a mean square of 1 an entry: learning rates then
    mean the same for every corpus.

    Args:
        data: The corpus; what it is measured on is divided into `tuning` and `measured`.
        names: The tasks' names.
        dim: The vectors' dimension.
        num_judged: Documents of `tuning`, and of `measured`; half of all there are at most.
    """
    shape = data.train.features.shape
    if dim > min(shape):
        raise ConfigError(
            f"document vectors: {dim} dimensions of {shape[0]} training documents with {shape[1]} "
            "features; expected no more than either: lower --dim"
        )
    svd = TruncatedSVD(dim, random_state=_SEED)
    vectors = svd.fit_transform(data.train.features).astype(np.float32)
    scale = 1 / np.sqrt(np.mean(np.square(vectors, dtype=np.float64)))
    measured_vectors = svd.transform(data.measured.features).astype(np.float32)
    vectors, measured_vectors = (each * np.float32(scale) for each in (vectors, measured_vectors))
    for name in names:
        truths = [data.train.truth, data.measured.truth]
        if name == "first_label":
            truths = [_first_labels(truth) for truth in truths]
        is_trained = label_counts(truths[0]) > 0
        train, measured = (truth[:, is_trained] for truth in truths)
        yield LearningTask(
            name, vectors, train, *_two_evaluation_sets(measured_vectors, measured, num_judged)
        )


def _first_labels(
    truth: Float32[csr_array, "document label"],
) -> Float32[csr_array, "document label"]:
    """Return the smallest label of each document that has one."""
    truth = truth.sorted_indices()
    has_label = np.diff(truth.indptr) > 0
    first = truth.indptr[:-1][has_label]
    indptr = np.concatenate([[0], np.cumsum(has_label)])
    return csr_array((truth.data[first], truth.indices[first], indptr), shape=truth.shape)


def _two_evaluation_sets(
    vectors: Float32[np.ndarray, "document dim"],
    truth: Float32[csr_array, "document label"],
    num_judged: int,
) -> tuple[EvaluationSet, EvaluationSet]:
    """Return documents to tune on and others to measure on."""
    documents = np.random.default_rng(_SEED).permutation(np.flatnonzero(np.diff(truth.indptr)))
    size = min(num_judged, len(documents) // 2)
    if not size:
        raise DataError(
            f"adversarial negatives: {len(documents)} documents with a trained label to tune and "
            "to measure on; expected two at least"
        )
    rows = documents[:size], documents[size : 2 * size]
    tuning, measured = (EvaluationSet(vectors[each], truth[each]) for each in rows)
    return tuning, measured


@dataclass(frozen=True, slots=True)
class MixtureProblem:
    """A mixture of Gaussians, one a label, whose p_D(y|x) is a softmax of linear scores.

    A document of label y, drawn with prior pi_y, is mu_y + noise of variance 1 an entry. So by
    Bayes' rule log p_D(y|x) = x·mu_y - |mu_y|^2 / 2 + log pi_y - log Z(x): drawing costs the same
    for any number of labels, and the linear scorers could learn p_D exactly. The means have a
    hidden binary hierarchy, as labels of generic and of special concepts do: mu_y is the sum of an
    offset for every node above the label, of variance 4 / dim an entry, so the means of two
    labels are 8 apart in their squared distance for each level below their last common node.

    Attributes:
        num_labels: C; at least 2.
        documents_a_label: Training documents, on average.
        dim: The vectors' dimension.
        exponent: Exponent of the power law of the priors.
    """

    num_labels: int
    documents_a_label: int = 4
    dim: int = 64
    exponent: float = 0.5

    def make(self, num_judged: int) -> LearningTask:
        """Return the task; labels that no training document was drawn for are left out of it.

        Without them p_D is renormalised, and no other document is drawn of them either.

        Args:
            num_judged: Documents of `tuning`, and of `measured`.
        """
        rng = np.random.default_rng([_SEED, self.num_labels])
        priors = rng.permutation(np.arange(1, self.num_labels + 1) ** -self.exponent)
        num_documents = self.num_labels * self.documents_a_label
        labels = rng.choice(self.num_labels, num_documents, p=priors / priors.sum())
        kept, labels = np.unique(labels, return_inverse=True)
        means, priors = self._means(rng)[kept], priors[kept] / priors[kept].sum()
        drawn = [rng.choice(len(kept), num_judged, p=priors) for _ in range(2)]
        tuning, measured = (
            EvaluationSet(_vectors(means, each, rng), _truth(each, len(kept))) for each in drawn
        )
        true = LinearModel(
            weight=means,
            bias=(np.log(priors) - np.square(means).sum(axis=1) / 2).astype(np.float32),
            labels=np.arange(len(kept), dtype=np.int64),
        )
        return LearningTask(
            f"synthetic-{self.num_labels}",
            _vectors(means, labels, rng),
            _truth(labels, len(kept)),
            tuning,
            measured,
            true=measure_linear(true, measured.vectors, measured.truth, None),
        )

    def _means(self, rng: np.random.Generator) -> Float32[np.ndarray, "label dim"]:
        # A label's leaf in the hierarchy says nothing of its number, nor of its prior.
        leaves = rng.permutation(self.num_labels)
        means = np.zeros((self.num_labels, self.dim), dtype=np.float32)
        for level in range((self.num_labels - 1).bit_length()):
            num_nodes = (self.num_labels - 1 >> level) + 1
            offsets = rng.standard_normal((num_nodes, self.dim), dtype=np.float32)
            means += np.float32(2 / math.sqrt(self.dim)) * offsets[leaves >> level]
        return means


def _vectors(
    means: Float32[np.ndarray, "label dim"],
    labels: Int64[np.ndarray, document],
    rng: np.random.Generator,
) -> Float32[np.ndarray, "document dim"]:
    vectors = rng.standard_normal((len(labels), means.shape[1]), dtype=np.float32)
    for start in range(0, len(labels), _DOCUMENTS_AT_A_TIME):
        part = slice(start, start + _DOCUMENTS_AT_A_TIME)
        vectors[part] += means[labels[part]]
    return vectors


def _truth(
    labels: Int64[np.ndarray, document], num_labels: int
) -> Float32[csr_array, "document label"]:
    ones = np.ones(len(labels), dtype=np.float32)
    starts = np.arange(len(labels) + 1)
    return csr_array((ones, labels, starts), shape=(len(labels), num_labels))
