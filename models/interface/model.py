"""A loaded model for use in Python programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, NoReturn, overload

from longtail.models.bundle.bundle import Bundle
from longtail.models.explain import LabelDetails
from longtail.models.interface.given_texts import names_of_rows, texts_of
from longtail.models.interface.languages import check_language, in_language
from longtail.models.kinds.storage import without_encoder
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.options import RankingOptions, asked_of
from longtail.models.predict.predictor import Predictor
from longtail.models.results import (
    LABEL_COLUMNS,
    LabelExplanation,
    Prediction,
    cells_of,
    frame_of,
    html_table,
)

CHUNK_TEXTS = 512
"""Texts that are ranked together; `longtail predict` has the same number, so scores are equal."""

_SHOWN_TEXTS = 20
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Predictions(Sequence[Prediction]):
    """The labels of several texts.

    Attributes:
        texts: The texts.
        predictions: The prediction for each text.
        documents: Names of the texts: the index of a pandas frame, else numbers from 0.
    """

    texts: tuple[str, ...]
    predictions: tuple[Prediction, ...]
    documents: tuple[object, ...]

    def __len__(self) -> int:
        return len(self.predictions)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...

    @overload
    def __getitem__(self, index: slice) -> Predictions: ...

    def __getitem__(self, index: int | slice) -> Prediction | Predictions:
        if isinstance(index, slice):
            return Predictions(self.texts[index], self.predictions[index], self.documents[index])
        return self.predictions[index]

    def __repr__(self) -> str:
        """Return the first predictions, one a line."""
        lines = [f"{document}: {each!r}" for document, each in self._first()]
        more = len(self) - len(lines)
        return "\n".join([f"{len(self)} predictions", *lines, *([f"... {more} more"] * (more > 0))])

    def _repr_html_(self) -> str:
        """Return the first predictions as a notebook shows them; `to_frame` has all."""
        rows = (
            (document, _cut(text), *cells_of(rank, label))
            for text, (document, each) in zip(self.texts, self._first(), strict=False)
            for rank, label in enumerate(each.labels, 1)
        )
        caption = f"{min(len(self), _SHOWN_TEXTS)} of {len(self)} texts"
        return html_table(("document", "text", *LABEL_COLUMNS), rows, caption)

    def to_frame(self) -> Any:
        """Return a `pandas.DataFrame` with a row for each label of each text.

        Its columns are `document` and `LABEL_COLUMNS`; a text without a label has no row.

        Raises:
            ConfigError: pandas is not installed.
        """
        rows = [
            (document, *cells_of(rank, label))
            for document, each in zip(self.documents, self.predictions, strict=True)
            for rank, label in enumerate(each.labels, 1)
        ]
        names = ("document", *LABEL_COLUMNS)
        return frame_of({name: [row[i] for row in rows] for i, name in enumerate(names)})

    def _first(self) -> Iterator[tuple[object, Prediction]]:
        shown = self.predictions[:_SHOWN_TEXTS]
        return zip(self.documents[: len(shown)], shown, strict=True)


class LoadedModel:
    """A trained model, loaded. Not thread-safe on a GPU: let one thread own it."""

    def __init__(self, bundle: Bundle, **computing: Any) -> None:
        """Load a bundle.

        An encoder that its default scorer does not need is loaded when an answer needs it.

        Args:
            bundle: What the model is read from.
            **computing: See `Predictor.of_bundle`.
        """
        self.bundle = bundle
        self._complete = partial(Predictor.of_bundle, bundle, **computing)
        self._predictor = Predictor.of_bundle(without_encoder(bundle), **computing)
        self._lock = Lock()

    @property
    def predictor(self) -> Predictor:
        """What this class does not offer, it does; with the encoder."""
        return self.answering(None)

    @property
    def labels(self) -> LabelCatalogue:
        """All labels, with their numbers of training documents."""
        return self._predictor.catalogue

    @property
    def scorers(self) -> tuple[str, ...]:
        """Names of the scorers."""
        return self.bundle.manifest.scorers

    @property
    def default_scorer(self) -> str:
        """The scorer that is used by default."""
        return self._predictor.scorers.default

    @overload
    def predict(self, texts: str, **options: Any) -> Prediction: ...

    @overload
    def predict(self, texts: Any, **options: Any) -> Predictions: ...

    def predict(self, texts: Any, **options: Any) -> Prediction | Predictions:
        """Return the best labels of a text, or of each of several.

        Args:
            texts: One text; or a list, array or series of texts, or a data frame with the columns
                `text` or `content`, and `title`, or a list of such mappings. None of them blank.
            **options: Those of requests: `k`, `scorer`, `threshold`, `correction`, `tail_dial`,
                `aim`, `accept`, `include`, `exclude`, `under`, `schemes`, `language`, `explain`
                (`longtail.models.options.CoreOptions` describes them), and `label_filter`, a
                `LabelFilter`. k is 5 by default, 50 with the threshold "auto", or all of fewer.

        Returns:
            A prediction for one text, else as many as there are texts, in their order.

        Raises:
            RequestError: A text or an option is not valid, there is no such label or language, or
                there are no probabilities to compare with the threshold.
        """
        language = options.get("language")
        if language is not None:
            check_language(self.labels, language)
        asked = asked_of(options, len(self.labels))
        if isinstance(texts, str):
            return in_language(self._ranked(texts_of([texts]), asked)[0], self.labels, language)
        found = texts_of(texts)
        documents = names_of_rows(texts) if hasattr(texts, "__len__") else range(len(found))
        named = (in_language(each, self.labels, language) for each in self._ranked(found, asked))
        return Predictions(tuple(found), tuple(named), tuple(documents))

    def explain(self, text: str, label: str, *, scorer: str | None = None) -> LabelExplanation:
        """Return why a label fits a text, or why it does not.

        Args:
            text: The text; it may not be blank.
            label: The label's id or name; it need not be among the best.
            scorer: One of `scorers`; None: the default one.

        Raises:
            DataError: No label has this id or name, or several have the name.
            RequestError: The text is blank, or there is no such scorer.
        """
        row = self.labels.index_of(label)
        predictor = self.answering(scorer)
        options = RankingOptions(scorer=scorer)
        ((found,),) = predictor.explain(predictor.read([text]), [[row]], options)
        return found

    def describe(self, label: str) -> LabelDetails:
        """Return the details of a label.

        Args:
            label: The label's id or name.

        Raises:
            DataError: No label has it, or several have the name.
        """
        return self.predictor.describe(self.labels.index_of(label))

    def __reduce_ex__(self, _: object) -> NoReturn:
        """Refuse to be pickled or copied, as indexes and compiled code can't be.

        Raises:
            TypeError: In any case.
        """
        raise TypeError(
            f"a {type(self).__name__} can't be pickled or copied; load it again where it is "
            f"needed, also in another process: longtail.load({str(self.bundle.folder)!r})"
        )

    def __repr__(self) -> str:
        """Return what it is in one line."""
        return (
            f"{type(self).__name__}({len(self.labels):,} labels, scorers "
            f"{', '.join(self.scorers)}, default {self.default_scorer}, digest "
            f"{self.bundle.manifest.digest[:12]})"
        )

    def _ranked(self, texts: Sequence[str], options: RankingOptions) -> list[Prediction]:
        predictor = self.answering(options.scorer, explains=options.explain)
        found: list[Prediction] = []
        for start in range(0, len(texts), CHUNK_TEXTS):
            batch = predictor.read(texts[start : start + CHUNK_TEXTS])
            found += predictor.predict_batch(batch, options)
        return found

    def answering(self, scorer: str | None, *, explains: bool = True) -> Predictor:
        """Return what can answer by a scorer; the encoder is loaded first where that takes one."""
        with self._lock:
            if self._predictor.lacks(scorer, explains=explains):
                self._predictor = self._complete()
            return self._predictor


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
