"""Rankings as text, in the score-matrix form of the Extreme Classification Repository.

The header is "N L"; then a line for each document holds `label:score` pairs, best first, where
label is the column in the corpus's own list of labels. `DOCUMENTS_NAME` beside it has the ids of
both. Scores are written with nine digits, so what is read is what was written, to the bit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool
from pydantic import Field

from longtail.models.errors import DataError
from longtail.models.files.durable import MANY_ELEMENTS
from longtail.models.files.text_files import BadLine, ProblemList, list_problems, writing
from longtail.models.files.typed_json import json_forms
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.formats.xmc_text import ScoreLine, join_pairs, read_header, read_score_lines

DOCUMENTS_NAME = "documents.json"
"""File beside the rankings that says which documents they are of."""
PREDICTIONS_NAME = "predictions"
"""Folder of the rankings, beside the tables of an evaluation."""
_MAX_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class RankedDocuments:
    """Which documents the rankings of a folder are of.

    Attributes:
        data: Fingerprint of the corpus.
        split: Name of the split.
        model: Digest of the bundle.
        options: Options that the corpus was read with (see `CorpusOptions.to_json`).
        division: What a corpus in one file was divided by.
        left_out: Rows of the documents that the model was trained on; their lines are blank.
        is_known: Whether it is known which these are.
        ids: Of the documents, a line each, in the order of the lines behind a ranking's header;
            a document without an id has the number of its line in the file.
        labels: Ids of the labels, in the order of the columns.
    """

    data: str
    split: str
    model: str
    options: dict[str, Any]
    division: str | None
    left_out: list[Annotated[int, Field(ge=0)]]
    is_known: bool
    ids: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> Path:
        """Write it beside the rankings, and return the path."""
        path = folder / DOCUMENTS_NAME
        path.write_text(_to_json(self), "utf-8", newline="\n")
        return path


_to_json, _of_json = json_forms(RankedDocuments, max_elements=MANY_ELEMENTS)


def read_ranked_documents(ranking: Path) -> RankedDocuments | None:
    """Return which documents a ranking is of; None: no file beside it says so.

    Raises:
        DataError: The file can't be used.
    """
    path = ranking.parent / DOCUMENTS_NAME
    try:
        found: RankedDocuments = _of_json(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: can't be used ({error}); write the predictions again") from error
    return found


def spread(ranking: Ranking, is_left_out: Bool[np.ndarray, document]) -> Ranking:
    """Return a ranking with a row for each document of a split, blank for those left out."""
    shape = (len(is_left_out), ranking.labels.shape[1])
    labels = np.full(shape, NO_LABEL, dtype=ranking.labels.dtype)
    scores = np.full(shape, -np.inf, dtype=np.float32)
    labels[~is_left_out], scores[~is_left_out] = ranking.labels, ranking.scores
    return Ranking(labels=labels, scores=scores)


def write_all_predictions(
    rankings: Mapping[str, Ranking],
    catalogue: LabelCatalogue,
    listed: LabelCatalogue,
    folder: Path,
    k: int,
) -> list[Path]:
    """Write a file for each ranking, named after it, and return their paths.

    Args:
        rankings: By name of the scorer; of labels of the catalogue.
        catalogue: The labels of the model.
        listed: The labels of the corpus, in its own order.
        folder: For the files.
        k: Labels a document; fewer where the ranking has no more.

    Raises:
        DataError: A ranking names a label that the corpus doesn't list.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, ranking in rankings.items():
        best = Ranking(labels=ranking.labels[:, :k], scores=ranking.scores[:, :k])
        paths.append(folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.txt")
        write_predictions(paths[-1], in_columns_of(listed, catalogue, best), len(listed))
    return paths


def in_columns_of(listed: LabelCatalogue, catalogue: LabelCatalogue, ranking: Ranking) -> Ranking:
    """Return the ranking with the label indices of the corpus instead of the model's.

    Args:
        listed: The labels of the corpus.
        catalogue: The labels of the model.
        ranking: Names labels by their row in the catalogue.

    Raises:
        DataError: It names a label that the corpus doesn't list.
    """
    column_of = {label.id: column for column, label in enumerate(listed)}
    columns = [column_of.get(label.id, NO_LABEL) for label in catalogue]
    to_column = np.array([*columns, NO_LABEL], dtype=np.int64)  # the last is where NO_LABEL looks
    labels = to_column[ranking.labels]
    is_lost = (labels == NO_LABEL) & (ranking.labels != NO_LABEL)
    if is_lost.any():
        label = catalogue[int(ranking.labels[is_lost][0])]
        raise DataError(
            f"predictions: label {label.id!r} is ranked, but the corpus doesn't list it; "
            "write predictions for a corpus that lists all labels of the model"
        )
    return Ranking(labels=labels, scores=ranking.scores)


def write_predictions(path: Path, ranking: Ranking, num_labels: int) -> None:
    """Write a ranking.

    Args:
        path: The file; compressed where its name ends in `.gz`.
        ranking: A row for each document.
        num_labels: Labels that could have been ranked.
    """
    is_ranked = ranking.labels != NO_LABEL
    with writing(path) as file:
        file.write(f"{len(ranking.labels)} {num_labels}\n")
        for labels, scores, kept in zip(ranking.labels, ranking.scores, is_ranked, strict=True):
            file.write(join_pairs(labels[kept], scores[kept]) + "\n")


def read_predictions(path: Path, num_documents: int, num_labels: int) -> Ranking:
    """Read a ranking: by falling score, and of equal scores the one that comes first.

    Args:
        path: The file; it may come from another program.
        num_documents: Documents that it must be of.
        num_labels: Labels that it must be of.

    Returns:
        The ranking, as wide as the longest line.

    Raises:
        DataError: The file is of other documents or labels, or lines break the form.
    """
    header = read_header(path)
    if (header.num_documents, header.num_labels) != (num_documents, num_labels):
        raise DataError(
            f"{path}: got predictions for {header.num_documents} documents and {header.num_labels} "
            f"labels; expected {num_documents} documents and {num_labels} labels, as in the data"
        )
    problems, found = ProblemList(path, _MAX_PROBLEMS), list[ScoreLine]()
    for item in read_score_lines(path, header):
        if isinstance(item, BadLine):
            problems.add(item)
        else:
            found.append(item)
    if problems.num_problems:
        listed = list_problems(problems.kept, problems.num_problems)
        raise DataError(
            f"{path}: {problems.num_problems} lines can't be used; write the file again\n{listed}"
        )
    sizes = np.array([len(item.labels) for item in found])
    columns = np.concatenate([item.labels for item in found])
    values = np.concatenate([item.scores for item in found])
    best_first = np.lexsort((-values, np.repeat(np.arange(len(sizes)), sizes)))  # stable
    is_ranked = np.arange(sizes.max()) < sizes[:, None]
    labels = np.full(is_ranked.shape, NO_LABEL, dtype=np.int64)
    scores = np.full(is_ranked.shape, -np.inf, dtype=np.float32)
    labels[is_ranked], scores[is_ranked] = columns[best_first], values[best_first]
    return Ranking(labels=labels, scores=scores)
