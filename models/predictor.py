"""From texts to labels: what the service, the evaluation and offline prediction all call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import faiss
import numpy as np
import torch
from jaxtyping import Float32
from scipy.sparse import csr_array
from scipy.special import expit

from models.bundle import Bundle
from models.dual_encoder import encode_all
from models.encoder import TokenizedTexts, tokenize_texts
from models.errors import ConfigError, RequestError
from models.index import InnerProductIndex, InnerProductSource
from models.labels import LabelCatalogue
from models.parts import CLASSIFIER, RETRIEVAL, SPARSE, ModelParts, read_parts
from models.ranking import NO_LABEL, Ranking, Source, rank
from models.sparse import SparseSource, tokenize

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


class TextBatch:
    """Texts, and what the scorers need to know of them, computed once and when first needed."""

    def __init__(
        self,
        texts: Sequence[str],
        parts: ModelParts,
        device: str,
        progress: Callable[[int], object],
    ) -> None:
        """Keep the texts; `Predictor.read` makes them."""
        self.texts = texts
        self._parts = parts
        self._device = device
        self._progress = progress

    @cached_property
    def tokens(self) -> TokenizedTexts:
        """The texts as the encoder reads them."""
        return tokenize_texts(self._parts.tokenizer, self.texts, self._parts.max_tokens)

    @cached_property
    def vectors(self) -> Float32[np.ndarray, "text dim"]:
        """phi_doc of each text."""
        return encode_all(
            self._parts.encoder,
            self.tokens,
            "document",
            pad_id=self._parts.tokenizer.pad_token_id or 0,
            device=self._device,
            progress=self._progress,
        )

    @cached_property
    def features(self) -> Float32[csr_array, "text feature"]:
        """Tf-idf rows."""
        return self._parts.sparse.tfidf.transform(self.texts)


class Predictor:
    """A loaded model that ranks labels for texts.

    Not thread-safe on a GPU: let one thread own it.
    """

    def __init__(
        self, parts: ModelParts, *, default_scorer: str = "", device: str | None = None
    ) -> None:
        """Build the indexes.

        Args:
            parts: The trained model; its encoder is moved to the device.
            default_scorer: Used where a query names none; by default the first there is.
            device: "cpu" or "cuda"; None: a GPU if there is one.

        Raises:
            ConfigError: PyTorch or FAISS sees no such device, or there is none of this name.
        """
        self._parts = parts
        if device not in (None, "cpu", "cuda"):
            raise ConfigError(f"device {device!r}: wanted 'cpu' or 'cuda'")
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if self._device == "cuda" and not torch.cuda.is_available():
            raise ConfigError(
                f"device {device!r}: PyTorch sees no GPU; use the device 'cpu', or a PyTorch with "
                "CUDA on a machine with an NVIDIA GPU"
            )
        parts.encoder.to(self._device)
        self.catalogue: LabelCatalogue = parts.catalogue
        self.scorers = parts.scorers
        self.default_scorer = default_scorer or self.scorers[0]
        self._indexes = {
            name: InnerProductIndex(vectors, labels, device=device or "auto")
            for name, (vectors, labels) in _indexed_vectors(parts).items()
        }

    @classmethod
    def of_bundle(
        cls, bundle: Bundle, *, device: str | None = None, num_threads: int | None = None
    ) -> Predictor:
        """Load a bundle.

        Args:
            bundle: An opened one.
            device: "cpu" or "cuda"; None: a GPU if there is one.
            num_threads: Of PyTorch and FAISS, for the whole process; None: as they are.

        Raises:
            BundleCorruptError: Its parts contradict each other.
            ConfigError: There is no such device.
        """
        if num_threads is not None:
            torch.set_num_threads(num_threads)
            faiss.omp_set_num_threads(num_threads)
        parts = read_parts(bundle)
        return cls(parts, default_scorer=bundle.manifest.default_scorer, device=device)

    def read(self, texts: Sequence[str], progress: Callable[[int], object] = int) -> TextBatch:
        """Return texts made ready to be ranked by any scorer.

        Args:
            texts: None of them blank.
            progress: Called with a number of texts whenever so many have been encoded.

        Raises:
            RequestError: A text is blank, or is not Unicode text.
        """
        for number, text in enumerate(texts):
            if not text.strip():
                raise RequestError(f"text {number} is blank; give it some words, or leave it out")
            if not _is_unicode(text):
                raise RequestError(
                    f"text {number} holds half of a surrogate pair; send well-formed Unicode"
                )
        return TextBatch(texts, self._parts, self._device, progress)

    def rank(self, batch: TextBatch, k: int, scorer: str | None = None) -> Ranking:
        """Return the exact k best labels of each text.

        Args:
            batch: What `read` returned.
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
            RequestError: Any of them is not so, or the scorer has no probabilities to compare with
                the threshold.
        """
        scorer = self._scorer(scorer)
        _check_threshold(threshold, scorer)
        if not texts:
            return []
        batch = self.read(texts)
        ranking = self.rank(batch, k, scorer)
        if scorer == SPARSE:
            lemmas = self._parts.sparse.tfidf.lemmas
            num_tokens = [len(tokenize(text, lemmas)) for text in texts]
        else:
            num_tokens = batch.tokens.num_tokens.tolist()
        return [
            Prediction(
                labels=self._labels(labels, scores, scorer, threshold),
                num_tokens=count,
                truncated=scorer != SPARSE and count > self._parts.max_tokens,
            )
            for labels, scores, count in zip(
                ranking.labels, ranking.scores, num_tokens, strict=True
            )
        ]

    def _source(self, batch: TextBatch, scorer: str) -> Source:
        if scorer == SPARSE:
            return SparseSource(self._parts.sparse, batch.features)
        ones = np.ones((len(batch.vectors), 1), dtype=np.float32)
        return InnerProductSource(self._indexes[scorer], np.hstack([batch.vectors, ones]))

    def _scorer(self, scorer: str | None) -> str:
        if scorer is None:
            return self.default_scorer
        if scorer not in self.scorers:
            raise RequestError(
                f"scorer {scorer!r} is not in this bundle; it has {', '.join(self.scorers)}"
            )
        return scorer

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


def _indexed_vectors(parts: ModelParts) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return [w_l, b_l] of every label a dense scorer can score: the query is [phi_doc(x), 1]."""
    scale = float(parts.encoder.log_scale.detach().exp())
    shift = float(parts.encoder.score_bias.detach())
    bias = np.full((len(parts.label_vectors), 1), shift, dtype=np.float32)
    vectors = np.hstack([np.float32(scale) * parts.label_vectors, bias])
    indexed = {RETRIEVAL: (vectors, np.arange(len(vectors), dtype=np.int64))}
    if parts.classifier is not None:
        model = parts.classifier
        indexed[CLASSIFIER] = (np.hstack([model.weight, model.bias[:, None]]), model.labels)
    return indexed


def _check_threshold(threshold: float | None, scorer: str) -> None:
    if threshold is None:
        return
    if not 0 <= threshold <= 1:
        raise RequestError(f"threshold is {threshold}; wanted a probability from 0 to 1")
    if scorer not in _DENSE:
        raise RequestError(
            f"scorer {scorer!r} gives no probabilities to compare with threshold {threshold}; "
            f"leave the threshold out, or use one of {', '.join(_DENSE)}"
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
