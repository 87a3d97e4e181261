"""From texts or features to labels: what service, evaluation and offline prediction all call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import faiss
import numpy as np
import torch
from jaxtyping import Float32, Int64
from joblib import cpu_count
from scipy.sparse import csr_array
from torch import nn
from transformers import PreTrainedModel

from models.bundle.bundle import Bundle
from models.bundle.manifest import Calibration
from models.encoders.check import usable_dtype
from models.encoders.cpu.traced import trace_transformer
from models.encoders.cpu.unpadded import PADDING_COST, UnpaddedBert
from models.encoders.onnx import OnnxPrecision, OnnxTransformer, load_onnx_transformer
from models.encoders.pretrained import Precision, dtype_for
from models.errors import ConfigError, RequestError
from models.explain.explanation import Explainer
from models.explain.label_facts import FindNearest, LabelFacts
from models.labels.catalogue import LabelCatalogue
from models.labels.filters import LabelFilter, LabelSelector
from models.labels.search import LabelSearch
from models.names import (
    CLASSIFIER,
    ENSEMBLE,
    FEATURES,
    HYBRID,
    HYBRID_OF,
    LINEAR,
    RETRIEVAL,
    SPARSE,
    TEXT,
    CorrectionName,
    Input,
)
from models.parts.batches import FeatureBatch, TextBatch
from models.parts.model_parts import ModelParts
from models.parts.storage import read_parts
from models.predict.dense_scorers import DenseScorers
from models.predict.texts import checked_texts
from models.ranking.filtered import rank_selected, total_scores
from models.ranking.top_k import NO_LABEL, Ranking, Source
from models.results import (
    Explanation,
    LabelDetails,
    LabelScore,
    Prediction,
    with_explanations,
)
from models.scorers.blending import Blend, Sources, mean_of_sigmoids, weighted_blend
from models.scorers.calibration import IDENTITY, probabilities_of
from models.scorers.reliability import is_overconfident, warnings_about
from models.scorers.sparse import SparseSource
from models.scorers.tfidf import unit_rows

_LOGITS = (RETRIEVAL, CLASSIFIER, HYBRID)
"""Scorers whose score is a logit: its sigmoid is what their training's cross-entropy fits, and
their probability where none was calibrated."""

MOST_TAIL_DIAL = 1000.0
"""Beyond it, float32 scores would tell labels of unlike frequency apart, and no others."""


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
        precision: Precision = "float32",
    ) -> None:
        """Build the indexes.

        Args:
            parts: The trained model; its encoder is moved to the device.
            default_scorer: Used where a query names none; by default the first there is.
            device: "cpu" or "cuda"; None: a GPU if there is one. The sparse model is always on the
                CPU.
            num_threads: That rank many documents by the sparse model; None: one a core.
            precision: What the encoder computes in; it is turned into that.

        Raises:
            ConfigError: PyTorch or FAISS sees no such device, or there is none of this name; or the
                encoder can't compute in the precision.
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
        self.selector = LabelSelector(parts.catalogue)
        self.facts = LabelFacts(parts)
        self._explainer = Explainer(parts, self.facts)
        self.scorers = parts.scorers
        self.calibrations = parts.calibrations
        self.default_scorer = default_scorer or self.scorers[0]
        self._blends = _blends(parts)
        self._dense: DenseScorers | None = None
        if parts.dense is not None:
            parts.dense.encoder.to(self._device)
            self._dense = DenseScorers(
                parts.dense, self.catalogue, device=self._device, index_device=device or "auto"
            )
            dtype = dtype_for(precision, self._device)
            transformer = parts.dense.encoder.transformer
            parts.dense.encoder.to(usable_dtype(transformer, dtype, is_chosen=precision == "auto"))

    @classmethod
    def of_bundle(
        cls,
        bundle: Bundle,
        *,
        device: str | None = None,
        num_threads: int | None = None,
        precision: Precision | OnnxPrecision = "float32",
    ) -> Predictor:
        """Load a bundle.

        Args:
            bundle: An opened one.
            device: "cpu" or "cuda"; None: a GPU if there is one.
            num_threads: Of PyTorch and FAISS, for the whole process, and of the sparse model; None:
                as they are, and one a core.
            precision: What the encoder computes in; by ONNX Runtime only on the CPU.

        Raises:
            BundleCorruptError: Its parts contradict each other.
            ConfigError: There is no such device, or no such precision on it.
        """
        if num_threads is not None:
            torch.set_num_threads(num_threads)
            faiss.omp_set_num_threads(num_threads)
        parts = read_parts(bundle)
        if precision == "onnx-float32" or precision == "onnx-int8":  # in this form for mypy
            _compute_by_onnx(parts, bundle, precision, device, num_threads)
            device = "cpu"
            precision = "float32"  # of the poolers
        predictor = cls(
            parts,
            default_scorer=bundle.manifest.default_scorer,
            device=device,
            num_threads=num_threads,
            precision=precision,
        )
        predictor._record_encoder()
        return predictor

    def _record_encoder(self) -> None:
        """Let the encoder's recording stand in for it, on the CPU and if it can be recorded."""
        if self._parts.dense is None or self._device != "cpu":
            return
        encoder = self._parts.dense.encoder
        if isinstance(encoder.transformer, PreTrainedModel):
            traced = trace_transformer(encoder.transformer)
            if traced is not None:
                encoder.transformer = traced  # type: ignore[assignment]  # only read from now on

    @cached_property
    def label_search(self) -> LabelSearch:
        """Finds labels by words; made when first asked for."""
        return LabelSearch(self.catalogue)

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
            RequestError: The model reads features; or the texts can't be ranked (see
                `models.predict.texts`).
        """
        self._check_input(TEXT)
        return TextBatch(checked_texts(texts), self._parts, self._device, progress)

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

    def rank(
        self,
        batch: TextBatch | FeatureBatch,
        k: int,
        scorer: str | None = None,
        correction: str | None = None,
        tail_dial: float = 0.0,
        label_filter: LabelFilter | None = None,
    ) -> Ranking:
        """Return the exact k best labels of each document.

        Args:
            batch: What `read` or `read_features` returned.
            k: From 1 to the number of labels.
            scorer: One of `scorers`; None: the default.
            correction: "none", or the one that the scorer was trained with (`correction_of`); None:
                the latter.
            tail_dial: tau, from 0 to `MOST_TAIL_DIAL`: tau times log pi_y is taken off the score of
                every label y, pi_y being its share of the training pairs (logit adjustment).
            label_filter: Whose labels are ranked; None: all.

        Raises:
            RequestError: There is no such scorer, k or the tail dial is out of its range, the
                scorer was not trained with this correction, or the filter names unknown labels.
        """
        scorer = self._scorer(scorer)
        applied = self.correction_of(scorer, correction)
        if not 1 <= k <= len(self.catalogue):
            raise RequestError(f"k is {k}; wanted 1 to {len(self.catalogue)}, the number of labels")
        if not 0 <= tail_dial <= MOST_TAIL_DIAL:
            raise RequestError(
                f"tail_dial is {tail_dial}; wanted a number from 0 to {MOST_TAIL_DIAL:g}"
            )
        selection = self.selector.select(label_filter)
        if scorer in self._blends:
            blend = self._blends[scorer]
            return blend.rank(self._sources_of(blend, batch), k, tail_dial, selection)
        if scorer == SPARSE:
            return rank_selected([self._sparse_source(batch, tail_dial)], k, selection)
        # A model that reads features is sparse.
        assert isinstance(batch, TextBatch) and self._dense is not None
        return self._dense.rank(batch.vectors, k, scorer, applied, tail_dial, selection)

    def score(
        self,
        batch: TextBatch | FeatureBatch,
        labels: Int64[np.ndarray, "document m"],
        scorer: str | None = None,
        correction: str | None = None,
        tail_dial: float = 0.0,
    ) -> Float32[np.ndarray, "document m"]:
        """Return the scores of given labels of each document, to the bit those of `rank`.

        Args:
            batch: As for `rank`.
            labels: Label indices; those that the scorer does not know get -inf, and so does
                `NO_LABEL`.
            scorer: As for `rank`.
            correction: As for `rank`.
            tail_dial: As for `rank`.

        Raises:
            RequestError: There is no such scorer, or it was not trained with this correction.
        """
        scorer = self._scorer(scorer)
        applied = self.correction_of(scorer, correction)
        rows = np.arange(len(labels), dtype=np.int64)
        if scorer in self._blends:
            blend = self._blends[scorer]
            return blend.score(self._sources_of(blend, batch), rows, labels, tail_dial)
        if scorer == SPARSE:
            return total_scores([self._sparse_source(batch, tail_dial)], rows, labels)
        assert isinstance(batch, TextBatch) and self._dense is not None
        return self._dense.score(batch.vectors, labels, scorer, applied, tail_dial)

    def predict(
        self,
        texts: Sequence[str],
        *,
        k: int = 5,
        scorer: str | None = None,
        threshold: float | None = None,
        correction: str | None = None,
        tail_dial: float = 0.0,
        label_filter: LabelFilter | None = None,
        explain: bool = False,
    ) -> list[Prediction]:
        """Return the best labels of each text.

        Args:
            texts: None of them blank.
            k: Labels wanted a text, from 1 to the number of labels.
            scorer: One of `scorers`; None: the default.
            threshold: Leave out labels of a lower probability, in [0, 1].
            correction: As in `rank`.
            tail_dial: As in `rank`; above 0, scores are no log-odds any more, and labels have no
                probabilities.
            label_filter: As in `rank`.
            explain: Whether to say why, too; some milliseconds a label.

        Raises:
            RequestError: Any of them is not so, the model reads features, or there are no
                probabilities to compare with the threshold.
        """
        batch = self.read(texts)
        return self.predict_batch(
            batch, k=k, scorer=scorer, threshold=threshold, correction=correction,
            tail_dial=tail_dial, label_filter=label_filter, explain=explain,
        )  # fmt: skip

    def needs_encoder(self, scorer: str) -> bool:
        """Whether a scorer reads texts by the encoder, else as features only."""
        return self._scorers_in(scorer) != {SPARSE}

    @property
    def device(self) -> str:
        """Where it computes: "cpu" or "cuda"."""
        return self._device

    @property
    def encoder_precision(self) -> str | None:
        """What the encoder computes in, such as "bfloat16"; None where there is no encoder."""
        if self._parts.dense is None:
            return None
        transformer: nn.Module = self._parts.dense.encoder.transformer
        if isinstance(transformer, OnnxTransformer):
            return transformer.precision
        return str(transformer.dtype).removeprefix("torch.")

    @property
    def batch_tokens(self) -> int:
        """Tokens, padding at its cost, beyond which larger batches are hardly faster."""
        return 16_384 if self._device == "cuda" else 1024

    @property
    def padding_cost(self) -> float:
        """What a token of padding costs in a batch of texts of unlike length, in tokens of text."""
        dense = self._parts.dense
        is_padded = dense is None or not isinstance(dense.encoder.transformer, UnpaddedBert)
        return 1.0 if is_padded else PADDING_COST

    @property
    def max_tokens(self) -> int | None:
        """Tokens that the encoder reads of a text at most, in all its windows; None without one."""
        dense = self._parts.dense
        if dense is None or dense.windows is None:
            return None if dense is None else dense.max_tokens
        return dense.windows.most * dense.max_tokens

    def prepare(self, batch: TextBatch, scorer: str | None = None) -> list[int]:
        """Do for a scorer what needs no encoder; return the tokens that it will read of each text.

        Raises:
            RequestError: There is no such scorer.
        """
        scorer = self._scorer(scorer)
        if SPARSE in self._scorers_in(scorer):
            _ = batch.features
        lengths: list[int] = batch.prepare(not self.needs_encoder(scorer)).tolist()
        return lengths

    def encode(self, batch: TextBatch) -> None:
        """Make the vectors of the texts, which all scorers but the sparse one rank by."""
        _ = batch.vectors

    def predict_batch(
        self,
        batch: TextBatch,
        *,
        k: int = 5,
        scorer: str | None = None,
        threshold: float | None = None,
        correction: str | None = None,
        tail_dial: float = 0.0,
        label_filter: LabelFilter | None = None,
        explain: bool = False,
    ) -> list[Prediction]:
        """Return the best labels of texts that `read` has made ready (see `predict`).

        Raises:
            RequestError: As `predict` does, of what is not about the texts.
        """
        scorer = self._scorer(scorer)
        applied = self.correction_of(scorer, correction)
        calibration = None
        if tail_dial == 0 and applied == self.correction_of(scorer):
            calibration = self._calibration_of(scorer)
        self._check_threshold(threshold, scorer, calibration)
        if not batch.texts:
            return []
        ranking = self.rank(batch, k, scorer, correction, tail_dial, label_filter)
        probabilities: Sequence[Sequence[float] | None] = [None] * len(ranking.labels)
        if calibration is not None:
            probabilities = probabilities_of(calibration, ranking.scores).tolist()
        predictions = [
            Prediction(
                labels=self._labels(labels, scores, of_labels, threshold),
                num_tokens=extent.num_tokens,
                truncated=extent.num_tokens < extent.num_text_tokens,
                exact=True,
                correction=applied,
                num_text_tokens=extent.num_text_tokens,
                known_tokens=extent.known_tokens,
            )
            for labels, scores, of_labels, extent in zip(
                ranking.labels.tolist(),
                ranking.scores.tolist(),
                probabilities,
                batch.extents(
                    by_encoder=self.needs_encoder(scorer),
                    by_sparse=SPARSE in self._scorers_in(scorer),
                ),
                strict=True,
            )
        ]
        if calibration is not None and self._is_overconfident(scorer):
            predictions = [self._with_warnings(each, scorer, threshold) for each in predictions]
        if not explain:
            return predictions
        labels = [[label.index for label in each.labels] for each in predictions]
        explained = self.explain(batch, labels, scorer, correction, tail_dial)
        return with_explanations(predictions, explained)

    def explain(
        self,
        batch: TextBatch,
        labels: Sequence[Sequence[int]],
        scorer: str | None = None,
        correction: str | None = None,
        tail_dial: float = 0.0,
        nearest: FindNearest | None = None,
    ) -> list[tuple[Explanation, ...]]:
        """Return why these labels fit each text.

        Args:
            batch: As for `rank`.
            labels: Label indices of each text.
            scorer: As for `rank`.
            correction: As for `rank`.
            tail_dial: As for `rank`.
            nearest: Gives the labels that are like others; None: among these labels.

        Raises:
            RequestError: There is no such scorer, or it was not trained with this correction.
        """
        return self._explainer.explain(
            self, batch, labels, self._scorer(scorer), correction, tail_dial, nearest
        )

    def describe(self, label: int) -> LabelDetails:
        """Return all that is known of a label, by its row in the catalogue."""
        (nearest,) = self.facts.nearest([label])
        return LabelDetails(
            index=label,
            label=self.catalogue[label],
            keywords=self.facts.keywords(label),
            nearest=nearest,
            scorers=tuple(name for name in self.scorers if self._knows(name, label)),
        )

    def correction_of(self, scorer: str, asked: str | None = None) -> CorrectionName:
        """Return what is added to the scores of a scorer: as asked for, or by default its own.

        Args:
            scorer: One of `scorers`.
            asked: "none", or the one that it was trained with; None: the latter.

        Raises:
            RequestError: It was trained with another one, or with none.
        """
        own: CorrectionName = "none"
        if scorer == LINEAR and self._dense is not None:
            own = self._dense.linear_correction
        if asked is None or asked == own:
            return own
        if asked == "none":
            return "none"
        wanted = "'none'" if own == "none" else f"'none' or {own!r}"
        raise RequestError(
            f"correction {asked!r} came for scorer {scorer!r}, which was not trained with it, so "
            f"that it would bias the scores; wanted {wanted}"
        )

    def _calibration_of(self, scorer: str) -> Calibration | None:
        own = IDENTITY if scorer in _LOGITS else None
        return self.calibrations.get(scorer, own)

    def _scorers_in(self, scorer: str) -> set[str]:
        """Return the scorer, or those that it blends."""
        blend = self._blends.get(scorer)
        return {scorer} if blend is None else {member.name for member in blend.members}

    def _is_overconfident(self, scorer: str) -> bool:
        ensemble = self._parts.ensemble
        weights = ensemble.weights if scorer == ENSEMBLE and ensemble is not None else {}
        return is_overconfident(scorer, weights, RETRIEVAL)

    def _with_warnings(
        self, prediction: Prediction, scorer: str, threshold: float | None
    ) -> Prediction:
        labels = ((label.index, label.probability) for label in prediction.labels)
        return replace(
            prediction, warnings=warnings_about(scorer, labels, self.catalogue, threshold)
        )

    def _sources_of(self, blend: Blend, batch: TextBatch | FeatureBatch) -> list[Sources]:
        """Return the sources of the scorers in a blend, with their own corrections."""
        sources: list[Sources] = []
        for member in blend.members:
            if member.name == SPARSE:
                sources.append([self._sparse_source(batch, 0.0)])
                continue
            assert isinstance(batch, TextBatch) and self._dense is not None
            correction = self.correction_of(member.name)
            sources.append(self._dense.sources(batch.vectors, member.name, correction, 0.0))
        return sources

    def _knows(self, scorer: str, label: int) -> bool:
        if scorer in self._blends:
            return any(self._knows(name, label) for name in self._scorers_in(scorer))
        if scorer == SPARSE:
            return label in self._parts.sparse.labels
        assert self._dense is not None
        return label in self._dense.labels_of(scorer)

    def _sparse_source(self, batch: TextBatch | FeatureBatch, tail_dial: float) -> Source:
        model, bias = self._parts.sparse, None
        if tail_dial:
            log_priors = self.catalogue.log_priors[model.labels].astype(np.float64)
            bias = (model.bias - tail_dial * log_priors).astype(np.float32)
        return SparseSource(model, batch.features, bias=bias, num_threads=self._num_threads)

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

    def _check_threshold(
        self, threshold: float | None, scorer: str, calibration: Calibration | None
    ) -> None:
        if threshold is None:
            return
        if not 0 <= threshold <= 1:
            raise RequestError(f"threshold is {threshold}; wanted a probability from 0 to 1")
        if calibration is not None:
            return
        if self._calibration_of(scorer) is not None:
            raise RequestError(
                f"threshold {threshold} came with a tail dial or without the scorer's correction, "
                "which leaves no probabilities to compare with it; leave out one of the two"
            )
        others = ", ".join(name for name in self.scorers if self._calibration_of(name))
        raise RequestError(
            f"scorer {scorer!r} gives no probabilities to compare with threshold {threshold}; "
            "leave the threshold out" + (f", or use one of {others}" if others else "")
        )

    def _labels(
        self,
        labels: Sequence[int],
        scores: Sequence[float],
        probabilities: Sequence[float] | None,
        threshold: float | None,
    ) -> tuple[LabelScore, ...]:
        found: list[LabelScore] = []
        for place, (index, score) in enumerate(zip(labels, scores, strict=True)):
            probability = None if probabilities is None else probabilities[place]
            if index == NO_LABEL or (threshold is not None and (probability or 0) < threshold):
                break  # scores fall, and with them the probabilities
            label = self.catalogue[index]
            found.append(LabelScore(index, label.id, label.name, score, probability))
        return tuple(found)


def _blends(parts: ModelParts) -> dict[str, Blend]:
    """Return the scorers that are made of others."""
    blends, log_priors = {}, parts.catalogue.log_priors
    if HYBRID in parts.scorers:
        blends[HYBRID] = mean_of_sigmoids(HYBRID_OF, log_priors)
    if parts.ensemble is not None:
        weights = parts.ensemble.weights
        blends[ENSEMBLE] = weighted_blend(weights, parts.calibrations, log_priors)
    return blends


def _compute_by_onnx(
    parts: ModelParts,
    bundle: Bundle,
    precision: OnnxPrecision,
    device: str | None,
    num_threads: int | None,
) -> None:
    """Let ONNX Runtime stand in for the transformer of these parts, if there is one.

    Raises:
        ConfigError: On a GPU; or it can't.
    """
    if device == "cuda":
        raise ConfigError(
            f"precision {precision!r} came with device 'cuda'; wanted 'cpu', or another precision"
        )
    if parts.dense is not None:
        made = load_onnx_transformer(bundle.encoder_folder, precision, num_threads)
        parts.dense.encoder.transformer = made  # type: ignore[assignment]  # only read from now on
