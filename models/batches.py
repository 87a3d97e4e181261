"""Documents made ready to be ranked; what scorers need of them is computed once, when needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32
from scipy.sparse import csr_array

from models.dual_encoder import encode_all
from models.encoder import TokenizedTexts, tokenize_texts
from models.parts import DenseParts, ModelParts
from models.sparse import tokenize


class TextBatch:
    """Texts, as any scorer reads them."""

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

    @property
    def _dense(self) -> DenseParts:
        assert self._parts.dense is not None  # only dense scorers ask, and they come with it
        return self._parts.dense

    @cached_property
    def tokens(self) -> TokenizedTexts:
        """The texts as the encoder reads them."""
        return tokenize_texts(self._dense.tokenizer, self.texts, self._dense.max_tokens)

    @cached_property
    def vectors(self) -> Float32[np.ndarray, "text dim"]:
        """phi_doc of each text."""
        return encode_all(
            self._dense.encoder,
            self.tokens,
            "document",
            pad_id=self._dense.tokenizer.pad_token_id or 0,
            device=self._device,
            progress=self._progress,
        )

    @cached_property
    def features(self) -> Float32[csr_array, "text feature"]:
        """Tf-idf rows."""
        rows = self._parts.sparse.tfidf.transform(self.texts)
        if self._parts.dense is None:  # else the encoder, which takes longer, tells the progress
            self._progress(len(self.texts))
        return rows

    def extents(self, is_sparse: bool) -> list[tuple[int, bool]]:
        """Return how many tokens each text has, and whether only the first of them are read.

        Args:
            is_sparse: Whether the sparse model reads it; else the encoder does.
        """
        if is_sparse:
            lemmas = self._parts.sparse.tfidf.lemmas
            return [(len(tokenize(text, lemmas)), False) for text in self.texts]
        most = self._dense.max_tokens
        return [(count, count > most) for count in self.tokens.num_tokens.tolist()]


@dataclass(frozen=True, slots=True)
class FeatureBatch:
    """Documents of which only the features are known; `Predictor.read_features` makes them.

    Attributes:
        features: Their rows, at unit length.
    """

    features: Float32[csr_array, "document feature"]
