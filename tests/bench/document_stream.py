"""A corpus as a stream: its documents by the year in their ids, cut into a start and steps.

Labels come as documents do: a label is known from the first step on in which a document to learn
from carries it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from longtail.training.data.dataset import Dataset
from longtail.training.data.splits import Document
from longtail.training.estimators.corpus import write_documents, write_labels

CELEX = r"\d(\d{4})[A-Z]"
"""The year in the number of a document of EU law, such as 32003R0123."""
LEARNED_FROM = ("train", "dev")
HELD_OUT = "test"


@dataclass(frozen=True, slots=True)
class Step:
    """The documents of some years.

    Attributes:
        years: The first and the last.
        documents: By split of the corpus; those of `HELD_OUT` are never learned from.
        year_of: By id of the document.
    """

    years: tuple[int, int]
    documents: dict[str, list[Document]]
    year_of: dict[str, int]

    @property
    def to_learn(self) -> list[Document]:
        """Documents that people give the labels of."""
        return [document for name in LEARNED_FROM for document in self.documents[name]]

    @property
    def all(self) -> list[Document]:
        """Those and the documents held out."""
        return [*self.to_learn, *self.documents[HELD_OUT]]


def year_of(document_id: str, pattern: str) -> int:
    """Return the year in an id.

    Raises:
        ValueError: There is none.
    """
    found = re.match(pattern, document_id)
    if found is None:
        raise ValueError(
            f"the id {document_id!r} does not begin as {pattern!r}; give a pattern whose first "
            "group is the year with --year"
        )
    return int(found[1])


def cut_by_year(corpus: Dataset, pattern: str, start_share: float, num_steps: int) -> list[Step]:
    """Return the start, then the steps; a year is in one of them.

    Args:
        corpus: With the splits train, dev and test.
        pattern: Matched with the beginning of ids; its first group is the year.
        start_share: About how many of the documents the start has.
        num_steps: Which have about equally many of the others.

    Raises:
        ValueError: An id has no year, or there are too few years.
    """
    of_split = {name: list(corpus.split(name)) for name in (*LEARNED_FROM, HELD_OUT)}
    years = {
        document.id: year_of(document.id, pattern)
        for documents in of_split.values()
        for document in documents
    }
    places = places_of(Counter(years.values()), start_share, num_steps)
    steps = []
    for place in range(num_steps + 1):
        documents = {
            name: [each for each in found if places[years[each.id]] == place]
            for name, found in of_split.items()
        }
        own = {each.id: years[each.id] for found in documents.values() for each in found}
        if any(not found for found in documents.values()):
            raise ValueError(
                f"{num_steps} steps are too many: one has no documents in some split; "
                "give fewer with --steps"
            )
        steps.append(Step((min(own.values()), max(own.values())), documents, own))
    return steps


def places_of(counts: Counter[int], start_share: float, num_steps: int) -> dict[int, int]:
    """Return where each year goes: 0 is the start. The middle document of a year decides.

    Args:
        counts: Documents of each year.
        start_share: Share of the documents in the start.
        num_steps: Behind it.
    """
    places, before = {}, 0
    for year in sorted(counts):
        share = (before + counts[year] / 2) / counts.total()
        before += counts[year]
        later = (share - start_share) / (1 - start_share)
        places[year] = 0 if later < 0 else 1 + int(later * num_steps)
    return places


def labels_of(documents: Iterable[Document]) -> set[int]:
    """Return the rows of the labels that documents carry."""
    return {row for document in documents for row in document.labels}


def write_corpus(
    folder: Path,
    corpus: Dataset,
    splits: dict[str, Sequence[Document]],
    labels: set[int],
    proposed: set[int],
) -> None:
    """Write documents as a corpus.

    Args:
        folder: Made where it is not there.
        corpus: They are of.
        splits: By name.
        labels: Rows of the labels of the corpus that it has; others of the documents are left out.
        proposed: Those of which only the name is known, as who proposes a label gives it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ids = [label.id for label in corpus.labels]
    texts = {
        label.id: {
            "name": label.name,
            "alternative_names": [] if row in proposed else list(label.alternative_names),
        }
        for row, label in enumerate(corpus.labels)
        if row in labels
    }
    write_labels(folder / "labels.jsonl", list(texts), texts)
    for name, documents in splits.items():
        rows = [[ids[row] for row in each.labels if row in labels] for each in documents]
        write_documents(folder / f"{name}.jsonl", [each.text for each in documents], rows)
