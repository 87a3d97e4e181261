"""The documents of a run, read once: what the stages of training take in place of a corpus."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from longtail.models.errors import DataError
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.scorers.character_terms import LetterCount
from longtail.models.scorers.markup import without_markup
from longtail.training.data.dataset import Dataset
from longtail.training.data.held_out import with_held_out_dev
from longtail.training.data.languages import LanguageCount
from longtail.training.data.overlap import with_splits_apart
from longtail.training.data.splits import Split

MAX_CHARACTERS = 10_000
"""Kept of a warm-up text."""
NUM_SAMPLED = 256
"""Texts of the sample, from all over the corpus."""


@dataclass(frozen=True, slots=True)
class TrainingDocuments:
    """Documents to fit on and documents to choose by, with all that a run asks of their texts.

    Texts stream from where the first pass over the corpus kept them; all else is in memory.

    Attributes:
        corpus: The corpus, with its splits apart.
        train: The documents to fit on.
        dev: The documents to choose by; None: there are none.
        catalogue: The labels, with their numbers of documents to fit on.
        sample: Training texts at equal distances, none of them blank.
        warmup_texts: Warm-up texts of the bundle, the shortest first (see
            `longtail.models.bundle.trained_on`).
        unspaced_share: Share of the letters, HTML left out, that are of scripts without spaces
            between words.
        markup_share: Share of the training texts that have HTML.
        languages: Counts the training texts of each language.
    """

    corpus: Dataset
    train: Split
    dev: Split | None
    catalogue: LabelCatalogue
    sample: list[str]
    warmup_texts: list[str]
    unspaced_share: float
    markup_share: float
    languages: LanguageCount

    @classmethod
    def read(
        cls, corpus: Dataset, held_out_dev: float = 0.0, num_warmup_texts: int = 0
    ) -> TrainingDocuments:
        """Read a corpus; of its texts, only chosen ones are kept.

        Args:
            corpus: It has training documents.
            held_out_dev: Share of them that is held out where there is no dev split.
            num_warmup_texts: How many warm-up texts to choose.
        """
        corpus.check()
        if corpus.split("train").scan().labels.nnz == 0:
            raise DataError(f"{corpus.folder}: no training document has a label")
        corpus = with_splits_apart(corpus)
        view = corpus
        if "dev" not in corpus.split_names and held_out_dev:
            view = with_held_out_dev(corpus, held_out_dev) or corpus
        split = corpus.split("train")
        lengths = split.scan().lengths
        step = max(1, len(lengths) // NUM_SAMPLED)
        sampled = range(0, min(len(lengths), step * NUM_SAMPLED), step)
        chosen = rows_by_length(lengths, num_warmup_texts)
        letters, languages, texts = LetterCount(), LanguageCount(), dict[int, str]()
        wanted = {*sampled, *chosen}
        num_marked = 0
        for row, text in enumerate(split.texts()):
            cleaned = without_markup(text)
            letters.add(cleaned)
            languages.add(cleaned)
            num_marked += cleaned != text
            if row in wanted:
                texts[row] = text
        return cls(
            corpus=corpus,
            train=view.split("train"),
            dev=view.splits.get("dev"),
            catalogue=view.catalogue,
            sample=[texts[row] for row in sampled if texts[row].strip()],
            warmup_texts=[texts[row][:MAX_CHARACTERS] for row in chosen],
            unspaced_share=letters.unspaced_share,
            markup_share=num_marked / max(1, len(lengths)),
            languages=languages,
        )

    @property
    def has_held_out(self) -> bool:
        """Whether the documents to choose by are training documents of the corpus."""
        return self.train is not self.corpus.split("train")

    @property
    def whole(self) -> TrainingDocuments:
        """All training documents to fit on, and none to choose by."""
        train, catalogue = self.corpus.split("train"), self.corpus.catalogue
        return replace(self, train=train, dev=None, catalogue=catalogue)


def rows_by_length(lengths: Int64[np.ndarray, text], count: int) -> list[int]:
    """Return texts that spread over the lengths, the shortest first; always the same ones.

    Of `count` equal parts of the texts in order of length, the middle one of each; all of them
    where there are no more.
    """
    if count == 0:
        return []
    by_length = np.argsort(lengths, kind="stable")
    count = min(count, len(by_length))
    middles = (2 * np.arange(count) + 1) * len(by_length) // (2 * count)
    rows: list[int] = by_length[middles].tolist()
    return rows
