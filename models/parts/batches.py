"""Texts made ready to be ranked; what scorers read of them is computed once, when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import csr_array, vstack

from longtail.models.errors import LongtailError, ignore
from longtail.models.matrices import Rows
from longtail.models.parts.model_parts import ModelParts
from longtail.models.results import Familiarity
from longtail.models.scorers.sparse import MAX_KEPT, Sums, all_sums

if TYPE_CHECKING:
    from longtail.models.encoders.tokens import TokenizedTexts
    from longtail.models.parts.dense_parts import DenseParts

T = TypeVar("T")

NEAREST_SIMILARITY = "nearest similarity"
"""What a scorer that looks for the nearest training document keeps of a batch: cosines, by text."""


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
    """Texts, as any scorer reads them.

    Attributes:
        texts: The texts.
        sums: Those of the sparse model, while they are kept (see `sharing_sums`).
    """

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
        self._kept: dict[str, Any] = {}
        self.sums: Sums | None = None

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Compute a value of the texts at the first call, keep it, and return it.

        There is no lock, which would make batches of other threads wait: a batch is one thread's.

        Args:
            name: Key of the value: the scorer's name where it belongs to one scorer.
            compute: Gives a row for each text: of an array, of a sparse matrix, or of an object
                with `take` and `joined`, as `TextBatch` has them.
        """
        if name not in self._kept:
            self._kept[name] = compute()
        kept: T = self._kept[name]
        return kept

    @property
    def _dense(self) -> DenseParts:
        assert self._parts.dense is not None  # only dense scorers ask, and they come with it
        return self._parts.dense

    @property
    def tokens(self) -> TokenizedTexts:
        """The texts as the encoder reads them."""
        return self.once("tokens", self._tokens)

    def _tokens(self) -> TokenizedTexts:
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

    @property
    def vectors(self) -> Float32[np.ndarray, "text dim"]:
        """phi_doc of each text."""
        return self.once("vectors", self._vectors)

    def prepare_vectors(self) -> None:
        """Encode the texts now."""
        self.once("vectors", self._vectors)

    def _vectors(self) -> Float32[np.ndarray, "text dim"]:
        from longtail.models.encoders.dual_encoder import encode_all  # brings PyTorch

        return encode_all(
            self._dense.encoder,
            self.tokens,
            "document",
            pad_id=self._dense.tokenizer.pad_token_id or 0,
            device=self._device,
            progress=self._progress,
        )

    @property
    def features(self) -> Float32[csr_array, "text feature"]:
        """Tf-idf rows, as a matrix of SciPy."""
        return self.once("matrix", lambda: self._parts.sparse.tfidf.matrix_of(self.feature_rows))

    @property
    def feature_rows(self) -> Rows:
        """Tf-idf rows."""
        return self.once("features", self._features)

    def sharing_sums(self, num_threads: int) -> Iterator[TextBatch]:
        """Give the texts in parts whose sums are kept while the caller ranks them, often.

        Yields:
            The next part, with all that is known of the texts.
        """
        model, rows = self._parts.sparse, range(len(self.texts))
        most = max(1, MAX_KEPT // max(1, len(model.labels)))
        for start in rows[::most]:
            part = self.take(rows[start : start + most])
            part.sums = all_sums(model, part.feature_rows, num_threads)
            yield part
            part.sums = None

    def prepare_features(self) -> None:
        """Make the tf-idf rows now."""
        self.once("features", self._features)

    def _features(self) -> Rows:
        rows, self._kept["words"] = self._parts.sparse.tfidf.read(self.texts)
        # An encoder takes longer, and tells the progress itself.
        if self._parts.dense is None and self._progress is not ignore:
            self._progress(len(self.texts))
        return rows

    @property
    def word_counts(self) -> Int64[np.ndarray, "text 2"]:
        """Words of each text as the sparse model counts them, and those of its vocabulary."""
        self.prepare_features()
        counts: Int64[np.ndarray, "text 2"] = self._kept["words"]
        return counts

    @property
    def num_words(self) -> Int64[np.ndarray, text]:
        """Words of each text, as the sparse model counts them."""
        return self.word_counts[:, 0]

    def lengths(self, *, by_encoder: bool) -> Int64[np.ndarray, text]:
        """Return how much is to be read of each text: tokens by the encoder, else words."""
        return self.tokens.lengths if by_encoder else self.num_words

    def take(self, rows: Sequence[int]) -> TextBatch:
        """Return some of the texts, with all that is known of them."""
        taken = TextBatch([self.texts[row] for row in rows], *self._context)
        taken._kept = {name: _rows_of(kept, rows) for name, kept in self._kept.items()}
        taken.sums = self.sums and self.sums.take(rows)
        return taken

    @classmethod
    def joined(cls, batches: Sequence[TextBatch]) -> TextBatch:
        """Return the texts of several batches of one model, with values that all have computed."""
        joined = cls([text for batch in batches for text in batch.texts], *batches[0]._context)
        for name in batches[0]._kept:
            if all(name in batch._kept for batch in batches):
                joined._kept[name] = _joined([batch._kept[name] for batch in batches])
        return joined

    @property
    def _context(self) -> tuple[ModelParts, str, Callable[[int], object]]:
        return self._parts, self._device, self._progress

    def extents(self, known_tokens: Int64[np.ndarray, text], *, by_encoder: bool) -> list[Extent]:
        """Return how much of each text is read.

        The encoder reads the first tokens, all others read all words. What the encoder reads too is
        counted in its tokens, and is cut where the encoder cuts it.

        Args:
            known_tokens: What the scorers know of each text.
            by_encoder: Whether the encoder is among what reads them.
        """
        num_read = num_tokens = self.num_words
        if by_encoder:
            num_read, num_tokens = self.tokens.lengths, self.tokens.num_tokens
        rows = zip(num_read.tolist(), num_tokens.tolist(), known_tokens.tolist(), strict=True)
        return [Extent(*row) for row in rows]

    def familiarities(self) -> list[Familiarity]:
        """Return how similar each text is to the training documents."""
        nearest: list[float] | list[None] = [None] * len(self.texts)
        if NEAREST_SIMILARITY in self._kept:
            nearest = self._kept[NEAREST_SIMILARITY].tolist()
        rows = zip(self.word_counts.tolist(), nearest, strict=True)
        return [Familiarity(words, known, similarity) for (words, known), similarity in rows]

    @property
    def num_known_features(self) -> Int64[np.ndarray, text]:
        """Different words and phrases of each text that the sparse model has a feature for."""
        starts = self.feature_rows.indptr
        counts: Int64[np.ndarray, text] = (starts[1:] - starts[:-1]).astype(np.int64)
        return counts


def _rows_of(kept: Any, rows: Sequence[int]) -> Any:
    is_matrix = isinstance(kept, np.ndarray | csr_array)
    return kept[rows] if is_matrix else kept.take(rows)


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    if isinstance(parts[0], csr_array):
        return csr_array(vstack(parts, format="csr"))
    return type(parts[0]).joined(parts)
