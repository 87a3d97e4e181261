"""From texts to labels: service, evaluation and offline prediction call this."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.manifest import Calibration, RarityBlend
from longtail.models.errors import ignore
from longtail.models.explain import LabelDetails, LabelFacts
from longtail.models.files.rows import garbage_collection_off
from longtail.models.kinds.placement import Placement
from longtail.models.kinds.storage import read_parts
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.search import LabelSearch
from longtail.models.names import NAMES, Precision
from longtail.models.options import RankingOptions, asked_of
from longtail.models.parts.batches import TextBatch
from longtail.models.parts.model_parts import ModelParts
from longtail.models.parts.texts import checked_texts
from longtail.models.predict.explanation import explain
from longtail.models.predict.loading import (
    padding_cost_of,
    set_threads,
    take_fastest_backend,
)
from longtail.models.predict.presentation import Presenter
from longtail.models.predict.scorer_set import ScorerSet
from longtail.models.ranking.top_k import Ranking
from longtail.models.results import LabelExplanation, Prediction, with_explanations


class Predictor:
    """A loaded model that ranks labels for texts.

    Not thread-safe on a GPU: let one thread own it.

    Attributes:
        parts: The trained model.
        scorers: Its scorers and blends, and the filters of labels.
        catalogue: Its labels.
        facts: Facts about the labels that don't depend on the text.
        device: The device it computes on: "cpu" or "cuda".
    """

    def __init__(
        self,
        parts: ModelParts,
        *,
        default_scorer: str = "",
        device: str | None = None,
        num_threads: int | None = None,
        precision: Precision = "float32",
        index: str = "torch",
    ) -> None:
        """Build the indexes.

        Args:
            parts: The trained model; its encoder is moved to the device.
            default_scorer: Used where a query names none; by default the first there is.
            device: "cpu" or "cuda"; None: a GPU if there is one. The sparse model is always on the
                CPU.
            num_threads: Threads that rank documents by the sparse model; None: one per core.
            precision: What the encoder computes in; it is turned into that.
            index: What searches label vectors: "faiss", "torch", or "auto" for the faster one.

        Raises:
            ConfigError: PyTorch sees no such device, or there is none of this name, or no FAISS; or
                the encoder can't compute in the precision.
        """
        self.parts = parts
        placement = Placement.of(device, num_threads, index)
        if parts.dense is not None:
            placement.place(parts.dense, precision)
        self.device, self._num_threads = placement.device, placement.num_threads
        self.catalogue: LabelCatalogue = parts.catalogue
        self.facts = LabelFacts(parts)
        self._take_scorers(ScorerSet(parts, placement, default_scorer))

    @classmethod
    @garbage_collection_off()
    def of_bundle(
        cls,
        bundle: Bundle,
        *,
        device: str | None = None,
        num_threads: int | None = None,
        precision: Precision = "float32",
        index: str = "torch",
    ) -> Predictor:
        """Load a bundle.

        Args:
            bundle: An opened bundle.
            device: "cpu" or "cuda"; None: a GPU if there is one.
            num_threads: Threads of PyTorch and FAISS in the whole process, and of the sparse model;
                None: theirs unchanged, and one per core.
            precision: Precision of the encoder.
            index: What searches label vectors: "faiss", "torch", or "auto" for the faster one.

        Raises:
            BundleCorruptError: Parts of the bundle contradict each other.
            ConfigError: There is no such device, or no such precision on it.
        """
        if bundle.manifest.encoder is not None:
            set_threads(num_threads)
        parts = read_parts(bundle)
        predictor = cls(
            parts,
            default_scorer=bundle.manifest.default_scorer,
            device=device,
            num_threads=num_threads,
            precision=precision,
            index=index,
        )
        if parts.dense is not None and predictor.device == "cpu":
            take_fastest_backend(parts.dense.encoder)
        predictor.scorers.left_out = bundle.left_out
        return predictor

    @property
    def left_out(self) -> tuple[str, ...]:
        """Scorers that were not loaded, as they need the encoder (see `without_encoder`)."""
        return self.scorers.left_out

    def lacks(self, scorer: str | None, *, explains: bool = True) -> bool:
        """Whether an answer needs the encoder, which was left out; explanations do."""
        return bool(self.left_out) and (explains or scorer in self.left_out)

    def with_blending(
        self, calibrations: Mapping[str, Calibration], blends: Mapping[str, RarityBlend]
    ) -> Predictor:
        """Return the model with other calibrations and blends, without parts fitted to the old.

        Its indexes are shared.

        Args:
            calibrations: By name of a scorer or blend.
            blends: By name of a blend.
        """
        other = copy(self)
        other.parts = replace(self.parts, calibrations=calibrations, blends=blends, fitted={})
        other._take_scorers(self.scorers.with_blending(other.parts))
        return other

    def _take_scorers(self, scorers: ScorerSet) -> None:
        self.scorers = scorers
        self._presenter = Presenter(scorers, self.catalogue, self.parts)

    @cached_property
    def label_search(self) -> LabelSearch:
        """The search for labels by words; built at the first access."""
        names = self.parts.models.get(NAMES)
        called = self.catalogue if names is None else names.catalogue
        stem_of = self.parts.sparse.tfidf.forms.of
        return LabelSearch(self.catalogue, [x.alternative_names for x in called], stem_of)

    def prepare_label_search(self) -> LabelSearch:
        """Build the search for labels now, and return it."""
        return self.label_search

    def _with_other_names(self, row: int) -> Label:
        """Return a label with all of its other names, where the scorer `names` knows them."""
        names, label = self.parts.models.get(NAMES), self.catalogue[row]
        if names is None:
            return label
        return replace(label, alternative_names=names.catalogue[row].alternative_names)

    def cleaned(self, text: str) -> str:
        """Return a text as the model reads it: without HTML, where training left that out."""
        return self.parts.sparse.tfidf.cleaned(text)

    @property
    def encoder_precision(self) -> str | None:
        """Precision of the encoder, such as "bfloat16"; None without an encoder."""
        if self.parts.dense is None:
            return None
        return str(self.parts.dense.encoder.transformer.dtype).removeprefix("torch.")

    @property
    def batch_tokens(self) -> int:
        """Tokens of a batch, padding at its cost, above which batches are hardly faster."""
        return 16_384 if self.device == "cuda" else 1024

    @property
    def padding_cost(self) -> float:
        """Cost of a token of padding, in tokens of text."""
        return 0.0 if self.parts.dense is None else padding_cost_of(self.parts.dense)

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of a text that the encoder reads; None without an encoder."""
        return None if self.parts.dense is None else self.parts.dense.max_tokens

    def read(self, texts: Sequence[str], progress: Callable[[int], object] = ignore) -> TextBatch:
        """Return texts as a batch that any scorer can rank.

        Args:
            texts: The texts; none of them may be blank.
            progress: Called with the number of texts that were just encoded (without an encoder:
                turned into features).

        Raises:
            RequestError: The texts can't be ranked (see `longtail.models.parts.texts`).
        """
        return TextBatch(checked_texts(texts), self.parts, self.device, progress)

    def prepare(self, batch: TextBatch, scorer: str | None = None) -> list[int]:
        """Do a scorer's work before the encoder; return how many tokens of each text it will read.

        Raises:
            RequestError: There is no such scorer.
        """
        scorer = self.scorers.default if scorer is None else scorer
        self.scorers.prepare(batch, scorer)
        lengths: list[int] = batch.lengths(by_encoder=self.scorers.needs_encoder(scorer)).tolist()
        return lengths

    def shared(self, batch: TextBatch) -> Iterator[TextBatch]:
        """Give a batch in parts, each to be ranked by several scorers or for several selections.

        All that these need of the texts is computed once.

        Yields:
            The next part; what is kept of it for this is dropped when the next is asked for.
        """
        for name in self.scorers.names:
            self.prepare(batch, name)
        if any(self.scorers.needs_encoder(name) for name in self.scorers.names):
            self.encode(batch)
        yield from batch.sharing_sums(self._num_threads)

    def encode(self, batch: TextBatch) -> None:
        """Compute the vectors of the texts for the scorers that need the encoder."""
        batch.prepare_vectors()

    def rank(self, batch: TextBatch, options: RankingOptions) -> Ranking:
        """Return the exact k best labels of each text.

        Args:
            batch: What `read` returned.
            options: Options of the ranking; `explain` is ignored, and the threshold but with gains
                (see `longtail.models.fitted.part.Gain`).

        Raises:
            RequestError: There is no such scorer, k is more than there are labels, the scorer was
                not trained with this correction, or the filter names unknown labels.
        """
        return self.scorers.rank(batch, options)

    def score(
        self,
        batch: TextBatch,
        labels: Int64[np.ndarray, "document m"],
        options: RankingOptions,
    ) -> Float32[np.ndarray, "document m"]:
        """Return the scores of given labels of each text, to the bit those of `rank`.

        Args:
            batch: As for `rank`.
            labels: Label indices. Labels that the scorer does not know, and `NO_LABEL`, get -inf.
            options: Options of the scores; k, threshold, filter and `explain` are ignored.

        Raises:
            RequestError: There is no such scorer, or it was not trained with this correction.
        """
        return self.scorers.score(batch, labels, options)

    def predict(self, texts: Sequence[str], **options: Any) -> list[Prediction]:
        """Return the best labels of each text.

        Args:
            texts: The texts; none of them may be blank.
            **options: Those of requests (`longtail.models.options.CoreOptions`), and
                `label_filter`, a `LabelFilter`.

        Raises:
            RequestError: A text or an option is not valid, or there are no probabilities to
                compare with the threshold.
        """
        return self.predict_batch(self.read(texts), asked_of(options, len(self.catalogue)))

    def predict_batch(
        self, batch: TextBatch, options: RankingOptions | None = None
    ) -> list[Prediction]:
        """Return the best labels of a batch that `read` returned (see `predict`).

        Raises:
            RequestError: As for `predict`, except for errors in the texts.
        """
        options = options or RankingOptions()
        predictions = self._presenter.predict(batch, options)
        if not options.explain:
            return predictions
        labels = [[label.index for label in each.labels] for each in predictions]
        return with_explanations(predictions, self.explain(batch, labels, options))

    def explain(
        self,
        batch: TextBatch,
        labels: Sequence[Sequence[int]],
        options: RankingOptions,
    ) -> list[tuple[LabelExplanation, ...]]:
        """Return why these labels fit each text.

        Raises:
            RequestError: There is no such scorer, or it was not trained with this correction.
        """
        scorer = self.scorers.resolve(options).scorer
        return explain(self.scorers, self.facts, batch, labels, scorer, options)

    def describe(self, label: int) -> LabelDetails:
        """Return the details of a label, by its index in the catalogue."""
        (nearest,), (keywords,) = self.facts.nearest([label]), self.facts.keywords([label])
        return LabelDetails(
            index=label,
            label=self._with_other_names(label),
            keywords=keywords,
            nearest=nearest,
            scorers=tuple(name for name in self.scorers.names if self.scorers.knows(name, label)),
        )
