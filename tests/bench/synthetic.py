"""Made-up corpora of any size: power-law labels with words of their own, for measuring growth."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, Int, Int32, Int64
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize

_CHUNK = 100_000  # documents made at a time
_DIGITS = 6  # of a word
TITLE_WORDS = 8


@dataclass(frozen=True, slots=True)
class SyntheticCorpus:
    """What decides a made-up corpus.

    Label l is drawn with probability proportional to (l + 1)^-exponent, and every label has a
    document. A label has words of its own; a document holds some of the words of its labels and,
    beside them, words that any document may hold, also from a power law.

    Attributes:
        num_documents: N; at least as many as labels.
        num_labels: L.
        num_features: D.
        labels_a_document: Drawn for each; fewer where one is drawn twice.
        words_a_label: Words that only this label has.
        words_a_document: Drawn for each, half of them from its labels' words.
        exponent: Exponent of both power laws.
        seed: Seed of everything random.
    """

    num_documents: int
    num_labels: int
    num_features: int
    labels_a_document: int = 3
    words_a_label: int = 10
    words_a_document: int = 24
    exponent: float = 0.7
    seed: int = 0

    def make(
        self,
    ) -> tuple[Float32[csr_array, "document feature"], Float32[csr_array, "document label"]]:
        """Return the documents' features, rows of length one, and their labels.

        Memory is that of the two matrices, and of one chunk.
        """
        features, truth = [], []
        for words, labels in self.chunks():
            features.append(_counted(words, self.num_features))
            truth.append(_counted(labels, self.num_labels))
        counts, carried = _stacked(features), _stacked(truth)
        carried.data[:] = 1
        counts.data = 1 + np.log(counts.data)
        return csr_array(normalize(counts, copy=False)), carried

    def own_words(self) -> Int32[np.ndarray, "label word"]:
        """Return the words of each label; labels may share some."""
        return self._own_words(np.random.default_rng(self.seed))

    def chunks(
        self,
    ) -> Iterator[tuple[Int64[np.ndarray, "document word"], Int64[np.ndarray, "document label"]]]:
        """Draw the documents, many at a time.

        Yields:
            Their words and their labels, of which some are there more than once.
        """
        assert self.num_documents >= self.num_labels > 0
        rng = np.random.default_rng(self.seed)
        own_words = self._own_words(rng)
        label_share = _cumulated(self.num_labels, self.exponent)
        word_share = _cumulated(self.num_features, self.exponent)
        places = rng.permutation(self.num_features).astype(np.int32)  # of frequent words: anywhere
        for first in range(0, self.num_documents, _CHUNK):
            size = min(_CHUNK, self.num_documents - first)
            labels = _draw(label_share, (size, self.labels_a_document), rng)
            certain = np.arange(first, min(first + size, self.num_labels))
            labels[: len(certain), 0] = certain
            half = self.words_a_document // 2
            owner = labels[
                np.arange(size)[:, None], rng.integers(self.labels_a_document, size=(size, half))
            ]
            own = own_words[owner, rng.integers(self.words_a_label, size=owner.shape)]
            common = places[_draw(word_share, (size, self.words_a_document - half), rng)]
            yield np.hstack([own, common]), labels

    def _own_words(self, rng: np.random.Generator) -> Int32[np.ndarray, "label word"]:
        return rng.integers(
            self.num_features, size=(self.num_labels, self.words_a_label), dtype=np.int32
        )


def write_corpus(corpus: SyntheticCorpus, folder: Path, num_held_out: int) -> None:
    """Write a made-up corpus as files that `longtail train` reads.

    A word is `w` and six digits; a label is called by two of its own words. A document of at most
    `TITLE_WORDS` is a title and no content. The last documents are the dev and the test split.

    Args:
        corpus: At least two times as many documents as are held out, beyond one for each label.
        folder: Made; for `trn.json.gz`, `dev.json.gz`, `tst.json.gz` and `lbl.json.gz`.
        num_held_out: Documents in each of dev and test.
    """
    assert corpus.num_features <= 10**_DIGITS
    folder.mkdir(parents=True, exist_ok=True)
    names = np.array([f"w{number:0{_DIGITS}}" for number in range(corpus.num_features)])
    num_training = corpus.num_documents - 2 * num_held_out
    is_title = corpus.words_a_document <= TITLE_WORDS
    with ExitStack() as stack:
        splits = {
            name: stack.enter_context(
                gzip.open(folder / f"{name}.json.gz", "wt", encoding="utf-8", compresslevel=1)
            )
            for name in ("trn", "dev", "tst", "lbl")
        }
        for label, words in enumerate(names[corpus.own_words()[:, :2]]):
            entry = {"uid": str(label), "title": " ".join(words)}
            splits["lbl"].write(json.dumps(entry) + "\n")
        number = 0
        for words, labels in corpus.chunks():
            for text, carried in zip(names[words], labels.tolist(), strict=True):
                split = ("trn", "dev", "tst")[max(0, (number - num_training) // num_held_out + 1)]
                document = {
                    "uid": str(number),
                    "title": " ".join(text if is_title else text[::3]),
                    "content": "" if is_title else " ".join(text),
                    "target_ind": sorted(set(carried)),
                }
                splits[split].write(json.dumps(document) + "\n")
                number += 1


def _cumulated(size: int, exponent: float) -> Float64[np.ndarray, size]:
    shares = np.arange(1, size + 1, dtype=np.float64) ** -exponent
    total: Float64[np.ndarray, size] = np.cumsum(shares) / shares.sum()
    total[-1] = 1  # a draw is below it, whatever was rounded
    return total


def _draw(
    cumulated: Float64[np.ndarray, size], shape: tuple[int, int], rng: np.random.Generator
) -> Int64[np.ndarray, "row column"]:
    drawn: Int64[np.ndarray, "row column"]
    drawn = np.searchsorted(cumulated, rng.random(shape), side="right")
    return drawn


def _counted(
    columns: Int[np.ndarray, "row width"], num_columns: int
) -> Float32[csr_array, "row column"]:
    num_rows, width = columns.shape
    counts = csr_array(
        (
            np.ones(columns.size, dtype=np.float32),
            columns.ravel().astype(np.int32),
            np.arange(0, columns.size + 1, width, dtype=np.int32),
        ),
        shape=(num_rows, num_columns),
    )
    counts.sum_duplicates()
    return counts


def _stacked(parts: list[csr_array]) -> Float32[csr_array, "row column"]:
    starts = [part.indptr[:-1].astype(np.int64) for part in parts]
    sizes = np.cumsum([0, *(part.nnz for part in parts)])
    indptr = [start + size for start, size in zip(starts, sizes[:-1], strict=True)]
    return csr_array(
        (
            np.concatenate([part.data for part in parts]),
            np.concatenate([part.indices for part in parts]),
            np.concatenate([*indptr, sizes[-1:]]),
        ),
        shape=(sum(part.shape[0] for part in parts), parts[0].shape[1]),
    )
