"""Texts made ready to be ranked; what scorers read of them is computed once, when needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array, vstack

from longtail.models.errors import LongtailError
from longtail.models.memory.search import Neighbours, nearest_documents
from longtail.models.parts.model_parts import ModelParts
from longtail.models.results import Familiarity

if TYPE_CHECKING:
    from longtail.models.encoders.tokens import TokenizedTexts
    from longtail.models.parts.dense_parts import DenseParts

T = TypeVar("T")

Reading: TypeAlias = Literal["names", "features", "vector"]
"""What a scorer reads of a text: the names of labels in it, its tf-idf features, or the encoder's
vector."""


class _Once(Generic[T]):
    """A property that is computed when first asked for, and kept.

    Unlike `functools.cached_property` before Python 3.12 it has no lock, which all batches would
    share: a thread that encodes one would wait for those that encode others.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, batch: None, owner: type) -> _Once[T]: ...

    @overload
    def __get__(self, batch: object, owner: type) -> T: ...

    def __get__(self, batch: object | None, owner: type) -> _Once[T] | T:
        if batch is None:
            return self
        value = batch.__dict__[self._name] = self._compute(batch)  # found before this, from now on
        return value


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a text a scorer has read.

    Attributes:
        num_tokens: Tokens that it has read.
        num_text_tokens: Tokens that the text has.
        known_tokens: What it has found of its vocabulary among those that it has read.
    """

    num_tokens: int
    num_text_tokens: int
    known_tokens: int


class TextBatch:
    """Texts, as any scorer reads them."""

    def __init__(
        self,
        texts: Sequence[str],
        parts: ModelParts,
        device: str,
        progress: Callable[[int], object],
        num_threads: int = 1,
    ) -> None:
        """Keep the texts; `Predictor.read` makes them."""
        self.texts = texts
        self._parts = parts
        self._device = device
        self._progress = progress
        self._num_threads = num_threads

    @property
    def _dense(self) -> DenseParts:
        assert self._parts.dense is not None  # only dense scorers ask, and they come with it
        return self._parts.dense

    @_Once
    def tokens(self) -> TokenizedTexts:
        """The texts as the encoder reads them.

        Raises:
            LongtailError: A token has no embedding.
        """
        from longtail.models.encoders.tokens import tokenize_texts  # brings PyTorch

        dense = self._dense
        texts = [self._parts.sparse.tfidf.cleaned(text) for text in self.texts]
        tokens = tokenize_texts(dense.tokenizer, texts, dense.max_tokens, dense.document_prefix)
        most, num_ids = int(tokens.ids.max(initial=0)), dense.encoder.num_token_ids
        if most >= num_ids:
            raise LongtailError(
                f"the tokenizer gives the token id {most}, but the encoder has embeddings for "
                f"{num_ids} tokens; the model is damaged: copy it again, or train again"
            )
        return tokens

    @_Once
    def vectors(self) -> Float32[np.ndarray, "text dim"]:
        """phi_doc of each text."""
        from longtail.models.encoders.dual_encoder import encode_all  # brings PyTorch

        return encode_all(
            self._dense.encoder,
            self.tokens,
            "document",
            pad_id=self._dense.tokenizer.pad_token_id or 0,
            device=self._device,
            progress=self._progress,
        )

    @_Once
    def features(self) -> Float32[csr_array, "text feature"]:
        """Tf-idf rows."""
        rows, self.__dict__["word_counts"] = self._parts.sparse.tfidf.read(self.texts)
        if self._parts.dense is None:  # else the encoder, which takes longer, tells the progress
            self._progress(len(self.texts))
        return rows

    @_Once
    def name_scores(self) -> Float32[csr_array, "text label"]:
        """Log-odds of the labels whose names are found (`NameModel.scores`)."""
        assert self._parts.names is not None  # only the scorer of names asks
        return self._parts.names.scores(self.texts)

    @_Once
    def num_name_words(self) -> Int64[np.ndarray, text]:
        """Different words of each text that stand in a name of a label."""
        assert self._parts.names is not None
        return self._parts.names.num_known_words(self.texts)

    @_Once
    def neighbours(self) -> Neighbours:
        """The nearest of the documents that the model remembers."""
        memory = self._parts.neighbours
        assert memory is not None  # only the scorer of neighbours asks, and it comes with it
        return nearest_documents(
            memory, self.features, memory.num_neighbours, num_threads=self._num_threads
        )

    @_Once
    def word_counts(self) -> Int64[np.ndarray, "text 2"]:
        """Words of each text as the sparse model counts them, and those of its vocabulary."""
        return self._parts.sparse.tfidf.read(self.texts)[1]

    @property
    def num_words(self) -> Int64[np.ndarray, text]:
        """Words of each text, as the sparse model counts them."""
        return self.word_counts[:, 0]

    def lengths(self, reads: Collection[Reading]) -> Int64[np.ndarray, text]:
        """Return how much is to be read of each text: tokens by the encoder, else words.

        Args:
            reads: What the scorers read.
        """
        return self.tokens.lengths if "vector" in reads else self.num_words

    def take(self, rows: Sequence[int]) -> TextBatch:
        """Return some of the texts, with all that is known of them."""
        taken = TextBatch([self.texts[row] for row in rows], *self._context)
        for name, part_of in _TAKEN.items():
            if name in self.__dict__:
                taken.__dict__[name] = part_of(self.__dict__[name], rows)
        return taken

    @classmethod
    def joined(cls, batches: Sequence[TextBatch]) -> TextBatch:
        """Return the texts of several batches of one model, with what is known of all of them."""
        joined = cls([text for batch in batches for text in batch.texts], *batches[0]._context)
        for name, join in _JOINED.items():
            if all(name in batch.__dict__ for batch in batches):
                joined.__dict__[name] = join([batch.__dict__[name] for batch in batches])
        return joined

    @property
    def _context(self) -> tuple[ModelParts, str, Callable[[int], object], int]:
        return self._parts, self._device, self._progress, self._num_threads

    def extents(self, reads: Collection[Reading]) -> list[Extent]:
        """Return how much of each text is read.

        The encoder reads the first tokens, all others read all words. What the encoder reads too is
        counted in its tokens, and is cut where the encoder cuts it. Of the two numbers of known
        tokens the larger one counts, and at least 1 where a name is found, so that it is 0 only
        where nothing is known; a scorer that reads names alone knows the words of names.

        Args:
            reads: What the scorers read.
        """
        known = np.zeros(len(self.texts), dtype=np.int64)
        if "features" in reads:
            known = self.num_known_features
        if "names" in reads:
            known = np.maximum(known, np.diff(self.name_scores.indptr) > 0)
        if "vector" in reads:
            num_read, num_tokens = self.tokens.lengths, self.tokens.num_tokens
            known = np.maximum(known, self.tokens.num_known)
        else:
            num_read = num_tokens = self.num_words
            known = known if "features" in reads else self.num_name_words
        rows = zip(num_read.tolist(), num_tokens.tolist(), known.tolist(), strict=True)
        return [Extent(*row) for row in rows]

    def familiarities(self) -> list[Familiarity]:
        """Return how much each text is like those that the model learned from."""
        nearest: list[float] | list[None] = [None] * len(self.texts)
        if "neighbours" in self.__dict__ and self.neighbours.similarities.shape[1]:
            nearest = self.neighbours.similarities[:, 0].tolist()
        rows = zip(self.word_counts.tolist(), nearest, strict=True)
        return [Familiarity(words, known, similarity) for (words, known), similarity in rows]

    @property
    def num_known_features(self) -> Int64[np.ndarray, text]:
        """Different words and phrases of each text that the sparse model has a feature for."""
        counts: Int64[np.ndarray, text] = np.diff(self.features.indptr).astype(np.int64)
        return counts


_TAKEN: dict[str, Callable[[Any, Sequence[int]], object]] = {
    "tokens": lambda tokens, rows: tokens.take(rows),
    "vectors": lambda vectors, rows: vectors[rows],
    "features": lambda features, rows: features[rows],
    "name_scores": lambda scores, rows: scores[rows],
    "num_name_words": lambda counts, rows: counts[rows],
    "neighbours": Neighbours.take,
    "word_counts": lambda counts, rows: counts[rows],
}
"""How a part of each of a batch's cached properties is made."""

_JOINED: dict[str, Callable[[Any], object]] = {
    "tokens": lambda parts: type(parts[0]).joined(parts),
    "vectors": np.concatenate,
    "features": lambda parts: csr_array(vstack(parts, format="csr")),
    "name_scores": lambda parts: csr_array(vstack(parts, format="csr")),
    "num_name_words": np.concatenate,
    "neighbours": Neighbours.joined,
    "word_counts": np.concatenate,
}
"""How one is made of those of several batches."""
