"""What is in a corpus, found before anything is trained: counts, examples, and what looks odd."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Int64

from longtail.models.corpus.documents import recognised
from longtail.models.corpus.raw import EmptyText
from longtail.models.errors import count_of
from longtail.models.files.text_files import BadLine, ProblemList
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.scorers.character_terms import words_of
from longtail.models.scorers.markup import first_markup, has_markup, without_markup
from longtail.training.data.dataset import Dataset
from longtail.training.data.labels import delimiter_option, look_alikes, other_delimiter
from longtail.training.data.languages import LanguageCount
from longtail.training.data.splits import (
    Document,
    Split,
    UnknownLabels,
    ask_for_pairs,
    num_repeats,
)
from longtail.training.evaluation.by_frequency import FREQUENCY_BINS, label_subsets
from longtail.training.reports.training_cost import Cost, estimate_costs

_MAX_SHOWN = 5
_MARKS = {
    "|": "a vertical bar", ";": "a semicolon", "\t": "a tab", ",": "a comma", "/": "a slash",
    "#": "a hash", " ": "a blank",
}  # fmt: skip
"""What may stand between labels that were taken for one."""
_SELDOM = "|;\t"
"""Marks that are in few names."""


@dataclass(frozen=True, slots=True)
class SplitProblems:
    """What is wrong with one split.

    Attributes:
        num_documents: That can be used.
        num_unlabelled: How many of these have no labels.
        num_repeated_texts: How many of these have the text of an earlier one.
        num_repeated_ids: How many of these have the id of an earlier one.
        num_marked: How many of these have HTML in the text.
        marked: The first tag or character reference of the first of them.
        empty: Lines whose text is blank.
        unknown: Lines with labels that the label file lacks.
        other: Other lines that can't be used.
    """

    num_documents: int
    num_unlabelled: int
    num_repeated_texts: int
    num_repeated_ids: int
    num_marked: int
    marked: str
    empty: ProblemList
    unknown: ProblemList
    other: ProblemList

    @property
    def num_bad(self) -> int:
        """Lines that can't be used."""
        return sum(each.num_problems for each in (self.empty, self.unknown, self.other))


def find_oddities(
    labels: LabelCatalogue,
    problems: Mapping[str, SplitProblems],
    texts: Mapping[str, Int64[np.ndarray, _]],
    counts: Mapping[str, Int64[np.ndarray, label]],
) -> Iterator[str]:
    """Yield what looks suspicious, a sentence each.

    Args:
        labels: Labels of the corpus.
        problems: Problems of each split.
        texts: Hashes of the different texts of each split.
        counts: Number of documents with each label, in each split.
    """
    for name, found in problems.items():
        yield from _of_split(name, found, int(counts[name].sum()))
    for first, second in combinations(texts, 2):
        if shared := len(np.intersect1d(texts[first], texts[second], assume_unique=True)):
            said = count_of(shared, f"text of {second} is", f"texts of {second} are")
            yield f"{said} in {first} too, which makes measuring too easy"
    if marked := [label.name for label in labels if has_markup(label.name)]:
        said = count_of(len(marked), "label contains", "labels contain")
        yield f"{said} HTML, which stays as it is: {_shown(marked)}"
    num_labelled = sum(x.num_documents - x.num_unlabelled for x in problems.values())
    yield from _of_labels(labels, counts, num_labelled)


def _of_split(name: str, found: SplitProblems, num_labels: int) -> Iterator[str]:
    of_all = f"of {found.num_documents} documents"
    oddities = {
        "have no label": found.num_unlabelled,
        "have the text of an earlier one": found.num_repeated_texts,
        "have the id of an earlier one": found.num_repeated_ids,
    }
    for what, count in oddities.items():
        if count:
            yield f"{name}: {count} {of_all} {what}"
    if found.num_marked:
        yield (
            f"{name}: {found.num_marked} {of_all} have HTML, such as {found.marked!r}; training "
            "leaves it out where at least 1 % have some (remove_markup)"
        )
    if question := ask_for_pairs(
        found.num_documents, num_labels, found.num_repeated_texts, found.num_repeated_ids
    ):
        yield f"{name}: {question}"
    lines = {
        "with an empty text": found.empty,
        "with labels that are not in the vocabulary": found.unknown,
        "that can't be used otherwise": found.other,
    }
    for what, listed in lines.items():
        if listed.num_problems:
            first = "; ".join(listed.kept)
            yield f"{name}: {count_of(listed.num_problems, 'line')} {what}: {first}"


def _of_labels(
    labels: LabelCatalogue, counts: Mapping[str, Int64[np.ndarray, label]], num_labelled: int
) -> Iterator[str]:
    if alike := look_alikes(labels):
        shown = "; ".join(" = ".join(names) for names in alike[:_MAX_SHOWN])
        said = count_of(len(alike), "group of labels differs", "groups of labels differ")
        yield f"{said} only in case, spaces or Unicode form: {shown}"
    of_all = sum(counts.values(), np.zeros(len(labels), np.int64)).tolist()
    names = {label.name: of_all[row] for row, label in enumerate(labels) if of_all[row]}
    delimiter = other_delimiter(names, num_labelled)
    for mark, what in _MARKS.items():
        found = [label.name for label in labels if mark in label.name]
        if found and (mark in _SELDOM or mark == delimiter):
            asked = count_of(len(found), f"label contains {what}", f"labels contain {what}")
            asked += f": {_shown(found)}; are they several each?"
            yield asked + f" Then give {delimiter_option(mark)}" * (mark == delimiter)
    if "train" not in counts:
        return
    for name, count in counts.items():
        if name != "train" and (
            unseen := int(np.count_nonzero((count > 0) & (counts["train"] == 0)))
        ):
            said = count_of(unseen, "label of its documents has", "labels of its documents have")
            yield f"{name}: {said} no training document"


def _shown(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_MAX_SHOWN])) + (", ..." if len(names) > _MAX_SHOWN else "")


NUM_EXAMPLES = 10
_EXAMPLE_CHARACTERS = 200
_UNSAID = "not quoted"
"""Instead of the reason why a line can't be used, which may quote it."""
_QUANTILES = {"shortest": 0.0, "median": 0.5, "95 of 100 below": 0.95, "longest": 1.0}


@dataclass(frozen=True, slots=True)
class Example:
    """A document as it was understood.

    Attributes:
        id: The document's id.
        text: Its beginning.
        labels: Names of its labels.
    """

    id: str
    text: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SplitContent:
    """What is in one split.

    Attributes:
        num_documents: That can be used.
        num_words: Words of all their texts.
        labels_a_document: The mean.
        lengths: Characters of a text: quantiles by name; empty without documents.
        languages: How many texts are in which language.
        text_hashes: Hash of each text, rising, each once.
        label_counts: Number of documents with each label.
        problems: What is wrong with it.
    """

    num_documents: int
    num_words: int
    labels_a_document: float
    lengths: Mapping[str, int]
    languages: LanguageCount
    text_hashes: Int64[np.ndarray, text]
    label_counts: Int64[np.ndarray, label]
    problems: SplitProblems


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is in a corpus.

    Attributes:
        form: What the form of its files is called.
        recognised: What was inferred from the files and not just read.
        splits: By name.
        num_labels: All of them.
        name_languages: How many of their names are in which language.
        label_file: The name of their file; None: the documents tell them.
        bands: Number of labels by training documents, by the names of `FREQUENCY_BINS`.
        training_counts: Training documents of each label, falling.
        examples: Documents from all over the first split; none where they are confidential.
        oddities: What looks suspicious, a sentence each.
        costs: What training is likely to take.
    """

    form: str
    recognised: tuple[str, ...]
    splits: Mapping[str, SplitContent]
    num_labels: int
    name_languages: LanguageCount
    label_file: str | None
    bands: Mapping[str, int]
    training_counts: Int64[np.ndarray, label]
    examples: tuple[Example, ...]
    oddities: tuple[str, ...]
    costs: tuple[Cost, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all fields but the hashes, with the distinct counts."""
        counts, numbers = np.unique(self.training_counts, return_counts=True)
        return {
            "format": self.form,
            "recognised": list(self.recognised),
            "splits": {
                name: {
                    "documents": split.num_documents,
                    "words": split.num_words,
                    "labels_a_document": round(split.labels_a_document, 4),
                    "characters": dict(split.lengths),
                    "languages": split.languages.shares,
                    "unusable_lines": split.problems.num_bad,
                }
                for name, split in self.splits.items()
            },
            "labels": self.num_labels,
            "languages_of_labels": self.name_languages.shares,
            "label_file": self.label_file,
            "labels_by_training_documents": dict(self.bands),
            "training_documents_of_labels": dict(
                zip(map(str, counts.tolist()), numbers.tolist(), strict=True)
            ),
            "examples": [
                {"id": each.id, "text": each.text, "labels": list(each.labels)}
                for each in self.examples
            ],
            "suspicious": list(self.oddities),
            "estimates": [
                {
                    "what": cost.what,
                    "seconds": [round(x, 1) for x in cost.seconds],
                    "gib": [round(x, 2) for x in cost.gib],
                }
                for cost in self.costs
            ],
        }


@dataclass(slots=True)
class _Examples:
    """Documents at equal distances, whatever their number: at most twice as many are held."""

    kept: list[Document] = field(default_factory=list)
    num_seen: int = 0
    step: int = 1

    def add(self, document: Document) -> None:
        if self.num_seen % self.step == 0:
            if len(self.kept) == 2 * NUM_EXAMPLES:
                self.kept, self.step = self.kept[::2], 2 * self.step
            if self.num_seen % self.step == 0:
                self.kept.append(document)
        self.num_seen += 1

    def chosen(self, labels: LabelCatalogue) -> tuple[Example, ...]:
        rows = np.linspace(0, len(self.kept) - 1, min(NUM_EXAMPLES, len(self.kept))).round()
        documents = [self.kept[int(row)] for row in rows]
        return tuple(
            Example(x.id, x.text[:_EXAMPLE_CHARACTERS], tuple(labels[y].name for y in x.labels))
            for x in documents
        )


def inspect_dataset(dataset: Dataset, *, is_confidential: bool = False) -> Inspection:
    """Read a corpus once, and describe its content; lines that can't be used are counted.

    Of the texts a hash each is held, and some for examples.

    Args:
        dataset: The corpus.
        is_confidential: Whether no document and no cell of a line is to be quoted.
    """
    labels = dataset.labels
    examples = {name: _Examples() for name in dataset.split_names}
    splits = {
        name: _content(dataset.split(name), len(labels), examples[name], is_confidential)
        for name in dataset.split_names
    }
    first = next(iter(splits))
    training = splits.get("train")
    counts = training.label_counts if training else np.zeros(len(labels), np.int64)
    subsets = label_subsets(counts)
    num_trained = int(np.count_nonzero(counts))
    size = (training.num_documents, training.num_words, num_trained) if training else None
    return Inspection(
        form=dataset.split(first).source.form.name,
        recognised=tuple(_recognised(dataset)),
        splits=splits,
        num_labels=len(labels),
        name_languages=LanguageCount.of(label.name for label in labels),
        label_file=dataset.label_file,
        bands={name: int(np.count_nonzero(subsets[name])) for name in FREQUENCY_BINS},
        training_counts=np.sort(counts)[::-1],
        examples=() if is_confidential else examples[first].chosen(labels),
        oddities=tuple(
            find_oddities(
                labels,
                {name: x.problems for name, x in splits.items()},
                {name: x.text_hashes for name, x in splits.items()},
                {name: x.label_counts for name, x in splits.items()},
            )
        ),
        costs=tuple(estimate_costs(*size)) if size else (),
    )


def _recognised(dataset: Dataset) -> list[str]:
    sources = {name: dataset.split(name).source for name in dataset.split_names}
    found = {
        f"{source.place.name}: {remark}"
        for source in sources.values()
        for remark in recognised(source)
    }
    return [*([dataset.remark] if dataset.remark else []), *sorted(found)]


def _content(
    split: Split, num_labels: int, examples: _Examples, is_confidential: bool
) -> SplitContent:
    problems = {kind: ProblemList(split.path, 3) for kind in (EmptyText, UnknownLabels, BadLine)}
    lengths, texts, ids, labels = array("q"), array("q"), array("q"), array("q")
    words = num_unlabelled = num_marked = 0
    marked, languages = "", LanguageCount()
    for item in split.lines_counted():
        if not isinstance(item, Document):
            shown = replace(item, reason=_UNSAID) if is_confidential else item
            problems[type(item)].add(shown)
            continue
        examples.add(item)
        lengths.append(len(item.text))
        texts.append(hash(item.text))
        ids.append(hash(item.id))
        labels.extend(item.labels)
        words += len(words_of(item.text))
        languages.add(without_markup(item.text))
        num_unlabelled += not item.labels
        if found := first_markup(item.text):
            num_marked += 1
            marked = marked or found
    hashes = np.array(texts, dtype=np.int64)
    return SplitContent(
        num_documents=len(lengths),
        num_words=words,
        labels_a_document=len(labels) / max(1, len(lengths)),
        lengths=_quantiles(np.array(lengths, dtype=np.int64)),
        languages=languages,
        text_hashes=np.unique(hashes),
        label_counts=np.bincount(np.array(labels, dtype=np.int64), minlength=num_labels),
        problems=SplitProblems(
            num_documents=len(lengths),
            num_unlabelled=num_unlabelled,
            num_repeated_texts=num_repeats(hashes),
            num_repeated_ids=num_repeats(np.array(ids, dtype=np.int64)),
            num_marked=num_marked,
            marked=marked,
            empty=problems[EmptyText],
            unknown=problems[UnknownLabels],
            other=problems[BadLine],
        ),
    )


def _quantiles(lengths: Int64[np.ndarray, document]) -> dict[str, int]:
    if not len(lengths):
        return {}
    return {name: int(np.quantile(lengths, share)) for name, share in _QUANTILES.items()}
