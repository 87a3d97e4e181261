"""From texts or features to labels: what service, evaluation and offline prediction all call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import faiss
import numpy as np
import torch
from jaxtyping import Float32
from joblib import cpu_count
from scipy.sparse import csr_array
from scipy.special import expit

from models.batches import FeatureBatch, TextBatch
from models.bundle import Bundle
from models.errors import ConfigError, RequestError
from models.features import unit_rows
from models.index import InnerProductIndex, InnerProductSource
from models.labels import LabelCatalogue
from models.manifest import FEATURES, TEXT, Input
from models.parts import CLASSIFIER, RETRIEVAL, SPARSE, DenseParts, ModelParts, read_parts
from models.ranking import NO_LABEL, Ranking, Source, rank
from models.sparse import SparseSource

_DENSE = (RETRIEVAL, CLASSIFIER)
"""Scorers whose score is a logit: its sigmoid is what their training's cross-entropy fits."""


@dataclass(frozen=True, slots=True)
class LabelScore:
    """A label of a text.

    Attributes:
        index: Its row in the catalogue.
        id: The caller's identifier.
        name: What people read.
        score: What labels are ordered by; comparable only within one scorer.
        probability: The model's own estimate that the text carries the label; None where the
            scorer gives none.
    """

    index: int
    id: str
    name: str
    score: float
    probability: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """The labels of one text, best first.

    Attributes:
        labels: At most k; fewer where a threshold or the scorer's own labels leave no more.
        num_tokens: Tokens of the text, as the scorer counts them.
        truncated: Whether the scorer read only the first of them.
    """

    labels: tuple[LabelScore, ...]
    num_tokens: int
    truncated: bool


class Predictor:
    """A loaded model that ranks labels for texts.

    Not thread-safe on a GPU: let one thread own it.
    """

    def __init__(
        self,
        parts: ModelParts,
        *,
        default_scorer: str = "",
        device: str | None = None,
        num_threads: int | None = None,
    ) -> None:
        """Build the indexes.

        Args:
            parts: The trained model; its encoder is moved to the device.
            default_scorer: Used where a query names none; by default the first there is.
            device: "cpu" or "cuda"; None: a GPU if there is one. The sparse model is always on the
                CPU.
            num_threads: That rank many documents by the sparse model; None: one a core.

        Raises:
            ConfigError: PyTorch or FAISS sees no such device, or there is none of this name.
        """
        self._parts = parts
        self._num_threads = num_threads or cpu_count()
        if device not in (None, "cpu", "cuda"):
            raise ConfigError(f"device {device!r}: wanted 'cpu' or 'cuda'")
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if self._device == "cuda" and not torch.cuda.is_available():
            raise ConfigError(
                f"device {device!r}: PyTorch sees no GPU; use the device 'cpu', or a PyTorch with "
                "CUDA on a machine with an NVIDIA GPU"
            )
        self.catalogue: LabelCatalogue = parts.catalogue
        self.scorers = parts.scorers
        self.default_scorer = default_scorer or self.scorers[0]
        self._indexes: dict[str, InnerProductIndex] = {}
        if parts.dense is not None:
            parts.dense.encoder.to(self._device)
            self._indexes = {
                name: InnerProductIndex(vectors, labels, device=device or "auto")
                for name, (vectors, labels) in _indexed_vectors(parts.dense).items()
            }

    @classmethod
    def of_bundle(
        cls, bundle: Bundle, *, device: str | None = None, num_threads: int | None = None
    ) -> Predictor:
        """Load a bundle.

        Args:
            bundle: An opened one.
            device: "cpu" or "cuda"; None: a GPU if there is one.
            num_threads: Of PyTorch and FAISS, for the whole process, and of the sparse model; None:
                as they are, and one a core.

        Raises:
            BundleCorruptError: Its parts contradict each other.
            ConfigError: There is no such device.
        """
        if num_threads is not None:
            torch.set_num_threads(num_threads)
            faiss.omp_set_num_threads(num_threads)
        parts = read_parts(bundle)
        return cls(
            parts,
            default_scorer=bundle.manifest.default_scorer,
            device=device,
            num_threads=num_threads,
        )

    @property
    def input(self) -> Input:
        """What the model reads: "text", by `read` and `predict`, or "features"."""
        return self._parts.input

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features that the sparse model knows, in column order: names, or words of texts."""
        return self._parts.sparse.tfidf.tokens

    def read(self, texts: Sequence[str], progress: Callable[[int], object] = int) -> TextBatch:
        """Return texts made ready to be ranked by any scorer.

        Args:
            texts: None of them blank.
            progress: Called with a number of texts whenever so many have been encoded; or turned
                into features, where there is no encoder.

        Raises:
            RequestError: The model reads features; or a text is blank, or is not Unicode text.
        """
        self._check_input(TEXT)
        for number, text in enumerate(texts):
            if not text.strip():
                raise RequestError(f"text {number} is blank; give it some words, or leave it out")
            if not _is_unicode(text):
                raise RequestError(
                    f"text {number} holds half of a surrogate pair; send well-formed Unicode"
                )
        return TextBatch(texts, self._parts, self._device, progress)

    def read_features(self, features: Float32[csr_array, "document feature"]) -> FeatureBatch:
        """Return documents of a model that reads features, ready to be ranked.

        Args:
            features: Their values as they were in training, at any length; a row of zeros gets
                what the labels' biases say.

        Raises:
            RequestError: The model reads texts; or these are not its columns, or a value is not
                finite.
        """
        self._check_input(FEATURES)
        wanted = len(self._parts.sparse.tfidf.tokens)
        if features.shape[1] != wanted:
            raise RequestError(
                f"the documents have {features.shape[1]} features, the model has {wanted}; give "
                "those that it was trained with, in their order"
            )
        if not np.isfinite(features.data).all():
            raise RequestError("a feature's value is not finite; give finite numbers")
        return FeatureBatch(unit_rows(features))

    def rank(self, batch: TextBatch | FeatureBatch, k: int, scorer: str | None = None) -> Ranking:
        """Return the exact k best labels of each document.

        Args:
            batch: What `read` or `read_features` returned.
            k: From 1 to the number of labels.
            scorer: One of `scorers`; None: the default.

        Raises:
            RequestError: There is no such scorer, or k is out of its range.
        """
        scorer = self._scorer(scorer)
        if not 1 <= k <= len(self.catalogue):
            raise RequestError(f"k is {k}; wanted 1 to {len(self.catalogue)}, the number of labels")
        return rank([self._source(batch, scorer)], k)

    def predict(
        self,
        texts: Sequence[str],
        *,
        k: int = 5,
        scorer: str | None = None,
        threshold: float | None = None,
    ) -> list[Prediction]:
        """Return the best labels of each text.

        Args:
            texts: None of them blank.
            k: Labels wanted a text, from 1 to the number of labels.
            scorer: One of `scorers`; None: the default.
            threshold: Leave out labels of a lower probability, in [0, 1].

        Raises:
            RequestError: Any of them is not so, the model reads features, or the scorer has no
                probabilities to compare with the threshold.
        """
        scorer = self._scorer(scorer)
        self._check_threshold(threshold, scorer)
        batch = self.read(texts)
        if not texts:
            return []
        ranking = self.rank(batch, k, scorer)
        return [
            Prediction(self._labels(labels, scores, scorer, threshold), num_tokens, truncated)
            for labels, scores, (num_tokens, truncated) in zip(
                ranking.labels, ranking.scores, batch.extents(scorer == SPARSE), strict=True
            )
        ]

    def _source(self, batch: TextBatch | FeatureBatch, scorer: str) -> Source:
        if scorer == SPARSE:
            return SparseSource(self._parts.sparse, batch.features, num_threads=self._num_threads)
        assert isinstance(batch, TextBatch)  # a model that reads features is sparse
        ones = np.ones((len(batch.vectors), 1), dtype=np.float32)
        return InnerProductSource(self._indexes[scorer], np.hstack([batch.vectors, ones]))

    def _check_input(self, given: Input) -> None:
        if given != self.input:
            other = {TEXT: "texts", FEATURES: "features"}
            how = {TEXT: "read or predict", FEATURES: "read_features"}
            raise RequestError(
                f"the model reads {other[self.input]}, not {other[given]}; "
                f"call {how[self.input]}, or take a model that was trained on {other[given]}"
            )

    def _scorer(self, scorer: str | None) -> str:
        if scorer is None:
            return self.default_scorer
        if scorer not in self.scorers:
            raise RequestError(
                f"scorer {scorer!r} is not in this bundle; it has {', '.join(self.scorers)}"
            )
        return scorer

    def _check_threshold(self, threshold: float | None, scorer: str) -> None:
        if threshold is None:
            return
        if not 0 <= threshold <= 1:
            raise RequestError(f"threshold is {threshold}; wanted a probability from 0 to 1")
        if scorer not in _DENSE:
            others = ", ".join(name for name in self.scorers if name in _DENSE)
            raise RequestError(
                f"scorer {scorer!r} gives no probabilities to compare with threshold {threshold}; "
                "leave the threshold out" + (f", or use one of {others}" if others else "")
            )

    def _labels(
        self, labels: np.ndarray, scores: np.ndarray, scorer: str, threshold: float | None
    ) -> tuple[LabelScore, ...]:
        found = []
        for index, score in zip(labels.tolist(), scores.tolist(), strict=True):
            probability = float(expit(score)) if scorer in _DENSE else None
            if index == NO_LABEL or (threshold is not None and (probability or 0) < threshold):
                break  # scores fall, and with them the probabilities
            label = self.catalogue[index]
            found.append(LabelScore(index, label.id, label.name, score, probability))
        return tuple(found)


def _indexed_vectors(dense: DenseParts) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return [w_l, b_l] of every label a dense scorer can score: the query is [phi_doc(x), 1]."""
    scale = float(dense.encoder.log_scale.detach().exp())
    shift = float(dense.encoder.score_bias.detach())
    bias = np.full((len(dense.label_vectors), 1), shift, dtype=np.float32)
    vectors = np.hstack([np.float32(scale) * dense.label_vectors, bias])
    indexed = {RETRIEVAL: (vectors, np.arange(len(vectors), dtype=np.int64))}
    if dense.classifier is not None:
        model = dense.classifier
        indexed[CLASSIFIER] = (np.hstack([model.weight, model.bias[:, None]]), model.labels)
    return indexed


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
