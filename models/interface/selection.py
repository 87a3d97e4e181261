"""Which of some documents to label, as Python programs ask it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from longtail.models.arguments import check_count, check_share
from longtail.models.errors import ConfigError
from longtail.models.predict.predictor import Predictor
from longtail.models.selection.choice import choose, similar_documents
from longtail.models.selection.pool import read_pool, scorer_with_probabilities
from longtail.models.tables import frame_of, html_table

_COLUMNS = ("document", "text", "gain", "uncertainty", "training_similarity", "copies")
_SHOWN_DOCUMENTS = 20
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class SelectedDocument:
    """A document that was chosen.

    Attributes:
        document: What tells it apart: of a pandas frame or series the index, else its number.
        text: It.
        gain: What it adds to those chosen before it, in labels that the model is in doubt about:
            its own, and those of documents like it.
        uncertainty: Labels of its own that the model is in doubt about: the sum of p(1 - p).
        training_similarity: Cosine to the nearest training document; 0 where the model remembers
            none.
        copies: How often the text is among the documents; the first one is chosen.
        for_rare_labels: Whether it was chosen for the rare labels that it may carry.
    """

    document: object
    text: str
    gain: float
    uncertainty: float
    training_similarity: float
    copies: int
    for_rare_labels: bool

    @property
    def cells(self) -> tuple[object, ...]:
        """What stands in a row of a table."""
        return tuple(getattr(self, name) for name in _COLUMNS)


@dataclass(frozen=True, slots=True)
class Selection(Sequence[SelectedDocument]):
    """Documents to label, the first choice first: any beginning of it is a choice of its own."""

    documents: tuple[SelectedDocument, ...]

    def __len__(self) -> int:
        return len(self.documents)

    @overload
    def __getitem__(self, index: int) -> SelectedDocument: ...

    @overload
    def __getitem__(self, index: slice) -> Selection: ...

    def __getitem__(self, index: int | slice) -> SelectedDocument | Selection:
        if isinstance(index, slice):
            return Selection(self.documents[index])
        return self.documents[index]

    def __iter__(self) -> Iterator[SelectedDocument]:
        return iter(self.documents)

    def __repr__(self) -> str:
        """Return the first documents, one a line."""
        shown = self.documents[:_SHOWN_DOCUMENTS]
        lines = [f"{x.document}: {x.text[:_SHOWN_CHARACTERS]!r}, gain {x.gain:.3f}" for x in shown]
        more = [f"... {len(self) - len(shown)} more"] if len(self) > len(shown) else []
        return "\n".join([f"{len(self)} documents", *lines, *more])

    def _repr_html_(self) -> str:
        """Return the first documents as a notebook shows them; `to_frame` has all."""
        shown = self.documents[:_SHOWN_DOCUMENTS]
        rows = ((x.document, x.text[:_SHOWN_CHARACTERS], *x.cells[2:]) for x in shown)
        return html_table(_COLUMNS, rows, f"{len(shown)} of {len(self)} documents")

    def to_frame(self) -> Any:
        """Return a `pandas.DataFrame` with a row for each document.

        Raises:
            ConfigError: pandas is not installed.
        """
        rows = [each.cells for each in self.documents]
        return frame_of({name: [row[i] for row in rows] for i, name in enumerate(_COLUMNS)})


def select_texts(
    predictor: Predictor,
    texts: Sequence[str],
    names: Sequence[object],
    *,
    number: int,
    rare_share: float,
    scorer: str | None,
    num_threads: int,
) -> Selection:
    """Return which texts to label, as `longtail select` chooses them.

    Args:
        predictor: The model.
        texts: To choose from; none of them blank.
        names: What tells them apart.
        number: Of documents to choose; fewer are where the others would add nothing.
        rare_share: Share of them that is chosen for labels with fewer than 10 training documents.
        scorer: By whose probabilities to choose; None: the default one.
        num_threads: That compare documents at the same time.

    Raises:
        ConfigError: There is no such scorer, it has no calibrated probabilities, or a number is out
            of its bounds.
        RequestError: A text can't be ranked.
    """
    check_count("number", number, ConfigError)
    check_count("num_threads", num_threads, ConfigError)
    check_share("rare_share", rare_share, ConfigError)
    scorer = scorer_with_probabilities(predictor, scorer)
    rows: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        rows.setdefault(text, []).append(row)
    if not rows:
        return Selection(())
    different = list(rows)
    pool = read_pool(predictor, different, scorer)
    copies = np.array([len(each) for each in rows.values()], dtype=np.int64)
    similar = similar_documents(pool.features, num_threads=num_threads)
    chosen = choose(pool, similar, copies, number, rare_share=rare_share)
    return Selection(
        tuple(
            SelectedDocument(
                document=names[rows[different[each.document]][0]],
                text=different[each.document],
                gain=each.gain,
                uncertainty=float(pool.uncertainties[each.document]),
                training_similarity=float(pool.covered[each.document]),
                copies=int(copies[each.document]),
                for_rare_labels=each.for_rare_labels,
            )
            for each in chosen
        )
    )
