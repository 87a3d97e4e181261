"""Two rankings of the same documents, side by side: their metrics, and whether they differ.

A ranking is a file `.npz` of NumPy arrays: `labels` (document, k), columns in the corpus's own list
of labels, the best first, and -1 behind the last one; `scores` of the same shape; and `num_labels`,
the length of the list. `DOCUMENTS_NAME` beside it has the ids of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy.lib.format import read_array
from pydantic import Field
from scipy.sparse import csr_array

from longtail.models.errors import DataError
from longtail.models.files.durable import MANY_ELEMENTS
from longtail.models.files.typed_json import json_forms
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.labels.hierarchy import LabelHierarchy
from longtail.models.metrics import Hierarchical, Place, join_truth, measure_hierarchical, shown_in
from longtail.models.ranking.top_k import NO_LABEL, Ranking
from longtail.training.assessment.untrained import LeftOut
from longtail.training.data.dataset import Dataset
from longtail.training.evaluation.by_frequency import (
    ALL_LABELS,
    F1_NOTE,
    TAIL_BIN,
    Evaluation,
    evaluate,
    label_subsets,
)
from longtail.training.evaluation.record import NOT_MEASURED, markdown_table
from longtail.training.evaluation.significance import Comparison, macro_t_test, micro_sign_test

DOCUMENTS_NAME = "documents.json"
"""File beside the rankings that says which documents they are of."""
PREDICTIONS_NAME = "predictions"
"""Folder of the rankings, beside the tables of an evaluation."""


@dataclass(frozen=True, slots=True)
class RankedDocuments:
    """Which documents the rankings of a folder are of.

    Attributes:
        data: Fingerprint of the corpus.
        split: Name of the split.
        model: Digest of the bundle.
        options: Options that the corpus was read with (see `CorpusOptions.to_json`).
        division: What a corpus in one file was divided by.
        left_out: Rows of the documents that the model was trained on, where no label is ranked.
        is_known: Whether it is known which these are.
        ids: The documents' ids, in the order of the rows; a document without an id has the number
            of its line in the file.
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
    """Return which documents a ranking is of; None: no file beside it says so."""
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
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, ranking in rankings.items():
        best = Ranking(labels=ranking.labels[:, :k], scores=ranking.scores[:, :k])
        paths.append(folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.npz")
        write_predictions(paths[-1], in_columns_of(listed, catalogue, best), len(listed))
    return paths


def in_columns_of(listed: LabelCatalogue, catalogue: LabelCatalogue, ranking: Ranking) -> Ranking:
    """Return the ranking with the label indices of the corpus instead of the model's."""
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
        path: The file, whose name ends in `.npz`.
        ranking: A row for each document.
        num_labels: Labels that could have been ranked.
    """
    np.savez(path, labels=ranking.labels, scores=ranking.scores, num_labels=np.array(num_labels))


def read_predictions(path: Path, num_documents: int, num_labels: int) -> Ranking:
    """Read a ranking."""
    try:
        with ZipFile(path) as opened:
            labels = _array(opened, "labels").astype(np.int64)
            scores = _array(opened, "scores").astype(np.float32)
            found = (len(labels), int(_array(opened, "num_labels")))
            if labels.ndim != 2 or labels.shape != scores.shape:
                raise ValueError(f"labels {labels.shape}, scores {scores.shape}")
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        BadZipFile,
    ) as error:
        raise DataError(
            f"{path}: can't be used as a ranking ({error}); 'longtail evaluate --predictions' "
            "writes one"
        ) from error
    if found != (num_documents, num_labels):
        raise DataError(
            f"{path}: got predictions for {found[0]} documents and {found[1]} labels; expected "
            f"{num_documents} documents and {num_labels} labels, as in the data"
        )
    return Ranking(labels=labels, scores=scores)


def _array(opened: ZipFile, name: str) -> np.ndarray:
    with opened.open(f"{name}.npy") as file:
        found: np.ndarray = read_array(file, allow_pickle=False)
    return found


_TABLES: Mapping[str, Place] = {ALL_LABELS: "compared", TAIL_BIN: "compared, tail"}
_KS = (1, 3, 5, 10)


@dataclass(frozen=True, slots=True)
class SignificanceTest:
    """One test of Yang & Liu (1999), both ways.

    Attributes:
        name: "macro t-test" or "micro sign test".
        labels: The subset of the labels that it is over.
        first: Whether the first ranking is better; None where the subset is too small to test on.
        second: Whether the second one is.
    """

    name: str
    labels: str
    first: Comparison | None
    second: Comparison | None


@dataclass(frozen=True, slots=True)
class RankingComparison:
    """Two rankings, measured and tested.

    Attributes:
        k: Labels of a document that the tests count.
        evaluation: All metrics, by name of the ranking.
        tests: What tells them apart.
        num_repeats: Documents that the tests leave out, as an earlier one has the same text.
        hierarchical: Metrics of labels with all above them; None where no label is below another.
        left_out: Documents that one of the models was trained on; None where it was not asked.
    """

    k: int
    evaluation: Evaluation
    tests: tuple[SignificanceTest, ...]
    num_repeats: int = 0
    hierarchical: Hierarchical | None = None
    left_out: LeftOut | None = None

    def to_json(self) -> dict[str, object]:
        """Return everything as plain dictionaries; metrics are fractions."""
        content: dict[str, object] = {
            "k": self.k,
            "evaluation": self.evaluation.to_json(),
            "tests": [asdict(test) for test in self.tests],
            "num_repeats": self.num_repeats,
        }
        if self.left_out is not None:
            content |= {"trained_on": self.left_out.to_json()}
        if self.hierarchical is not None:
            content |= {"hierarchical": self.hierarchical}
        return content

    def to_markdown(self) -> str:
        """Return both tables: the metrics in percent, and the tests."""
        names = list(self.evaluation.scorers)
        heading = (
            f"{self.evaluation.num_documents:,} documents, {self.evaluation.num_labels:,} labels, "
            f"{self.evaluation.num_training_documents:,} training documents. Metrics in percent. "
            f"{F1_NOTE}"
        )
        if said := str(self.left_out or ""):
            heading += f" {said}"
        metrics = markdown_table(["metric", *names, "difference"], self._metric_rows())
        tests = markdown_table(
            ["test", "compared", "advantage", *(f"p({name} is better)" for name in names)],
            [_test_row(test, self.k) for test in self.tests],
        )
        if self.num_repeats:
            heading += (
                f" The tests leave out {self.num_repeats:,} documents whose text an earlier one "
                "has: they take documents as independent."
            )
        return f"{heading}\n\n{metrics}\n\n{tests}"

    def _metric_rows(self) -> list[list[str]]:
        rows = []
        for subset, place in _TABLES.items():
            both = [measured[subset].values for measured in self.evaluation.scorers.values()]
            suffix = "" if subset == ALL_LABELS else f" ({subset})"
            for name in shown_in(place, self.evaluation.ks):
                if all(name in values for values in both):
                    first, second = (100 * values[name] for values in both)
                    cells = (f"{first:.2f}", f"{second:.2f}", f"{first - second:+.2f}")
                    rows.append([name + suffix, *cells])
        return [*rows, *self._hierarchical_rows()]

    def _hierarchical_rows(self) -> list[list[str]]:
        if self.hierarchical is None:
            return []
        one, other = self.hierarchical.values()
        return [
            [name, f"{100 * one[name]:.2f}", f"{100 * other[name]:.2f}",
             f"{100 * (one[name] - other[name]):+.2f}"]
            for name in one
        ]  # fmt: skip


def compare(
    rankings: Mapping[str, Ranking],
    truth: Float32[csr_array, "document label"],
    training_counts: Int64[np.ndarray, label],
    num_training_documents: int,
    k: int,
    is_repeat: Bool[np.ndarray, document] | None = None,
    hierarchy: LabelHierarchy | None = None,
) -> RankingComparison:
    """Measure two rankings and test which is better.

    The macro t-test is over all labels and over those with 1 to 9 training documents, the micro
    sign test over all decisions. Metrics are of all documents; the tests take them as independent,
    and so count those with equal texts once.

    Args:
        rankings: Two, by name, of the documents of the truth.
        truth: Ones where a document carries a label.
        training_counts: Training documents of each label.
        num_training_documents: N of the propensities.
        k: Labels of a document that the tests count, and the largest k of the metrics.
        is_repeat: The documents that the tests leave out; by default none.
        hierarchy: The labels' hierarchy; None: there is none.
    """
    ks = sorted({each for each in _KS if each < k} | {k})
    evaluation = evaluate(rankings, truth, training_counts, num_training_documents, ks)
    rows = np.arange(truth.shape[0]) if is_repeat is None else np.flatnonzero(~is_repeat)
    first, second = (join_truth(each.labels[rows], truth[rows]) for each in rankings.values())
    tests = []
    for name in (ALL_LABELS, TAIL_BIN):
        is_in = label_subsets(training_counts)[name]
        is_testable = np.count_nonzero(is_in) >= 2
        tests.append(
            SignificanceTest(
                "macro t-test",
                name,
                macro_t_test(first, second, k, is_in) if is_testable else None,
                macro_t_test(second, first, k, is_in) if is_testable else None,
            )
        )
    signs = micro_sign_test(first, second, k), micro_sign_test(second, first, k)
    tests.append(SignificanceTest("micro sign test", ALL_LABELS, *signs))
    hierarchical = None
    if hierarchy is not None:
        hierarchical = measure_hierarchical(rankings, truth, hierarchy.ancestors(), ks)
    num_repeats = truth.shape[0] - len(rows)
    return RankingComparison(k, evaluation, tuple(tests), num_repeats, hierarchical)


def compare_predictions(
    first: Path, second: Path, dataset: Dataset, split_name: str, k: int
) -> RankingComparison:
    """Compare two files of predictions (see `compare`).

    Documents that one of the models was trained on are left out, where `longtail evaluate` wrote
    beside the files which these are.

    Args:
        first: As `longtail.training.assessment.compare` reads it.
        second: Another one, of the same documents.
        dataset: With its training documents: propensities and the tail labels come from them.
        split_name: The split that was ranked.
        k: Labels of a document that count.
    """
    split = dataset.split(split_name)
    truth = split.scan().labels
    if "train" not in dataset.split_names:
        raise DataError(
            f"{dataset.folder}: no training documents, which propensities and the labels with 1-9 "
            "of them need; compare on the whole corpus"
        )
    names = (first.stem, second.stem) if first.stem != second.stem else (str(first), str(second))
    if names[0] == names[1]:
        raise DataError(f"{first}: got this file twice; expected two files to compare")
    paths = dict(zip(names, (first, second), strict=True))
    rankings = {name: read_predictions(path, *truth.shape) for name, path in paths.items()}
    left_out = _left_out(paths, dataset, split_name, truth.shape[0])
    is_kept = ~left_out.is_left_out
    rankings = {name: Ranking(x.labels[is_kept], x.scores[is_kept]) for name, x in rankings.items()}
    num_training_documents = dataset.split("train").scan().labels.shape[0]
    counts, is_repeat = dataset.catalogue.training_counts, repeated_texts(split.texts())[is_kept]
    hierarchy = LabelHierarchy(dataset.catalogue) if dataset.catalogue.has_hierarchy else None
    found = compare(
        rankings, truth[is_kept], counts, num_training_documents, k, is_repeat, hierarchy
    )
    return replace(found, left_out=left_out)


def _left_out(
    paths: Mapping[str, Path], dataset: Dataset, split_name: str, num_documents: int
) -> LeftOut:
    """Return which documents a model was trained on that made one of these files."""
    is_left_out, unknown = np.zeros(num_documents, dtype=np.bool_), []
    for name, path in paths.items():
        documents = read_ranked_documents(path)
        if documents is None or not documents.is_known:
            unknown.append(repr(name))
        if documents is None:
            continue
        if (documents.data, documents.split) != (dataset.fingerprint, split_name):
            raise DataError(
                f"{path}: got predictions of split {documents.split!r} of a corpus with the "
                f"fingerprint {documents.data[:12]}...; expected split {split_name!r} of "
                f"{str(dataset.folder)!r} ({dataset.fingerprint[:12]}...), read with the same "
                "options"
            )
        is_left_out[[row for row in documents.left_out if row < num_documents]] = True
    found = LeftOut(is_left_out, unknown=tuple(unknown))
    found.check(dataset, split_name, "one of the models")
    return found


def repeated_texts(texts: Iterable[str]) -> Bool[np.ndarray, document]:
    """Return whether each text is that of an earlier document."""
    hashes = np.fromiter(map(hash, texts), dtype=np.int64)
    is_repeat = np.ones(len(hashes), dtype=bool)
    is_repeat[np.unique(hashes, return_index=True)[1]] = False
    return is_repeat


def _test_row(test: SignificanceTest, k: int) -> list[str]:
    name = f"{test.name}@{k}, {test.labels} labels"
    if test.first is None or test.second is None:
        return [name, *[NOT_MEASURED] * 4]
    counted = f"{test.first.num_compared:,}"
    ways = (f"{way.p_value:.3g}" for way in (test.first, test.second))
    return [name, counted, f"{test.first.advantage:+.4f}", *ways]
