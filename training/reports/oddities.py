"""What looks suspicious in a corpus: sentences for a person who is to decide whether it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Int64

from longtail.models.files.text_files import ProblemList, counted_lines
from longtail.models.labels.catalogue import LabelCatalogue
from longtail.models.scorers.markup import has_markup
from longtail.training.data.labels import delimiter_option, look_alikes, other_delimiter

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
        num_unlabelled: Of these, without labels.
        num_repeated_texts: Of these, with the text of an earlier one.
        num_repeated_ids: Of these, with the id of an earlier one.
        num_marked: Of these, with HTML in the text.
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
        labels: Of the corpus.
        problems: Of each split.
        texts: Hashes of the different texts of each split.
        counts: Of how many documents of each split every label is.
    """
    for name, found in problems.items():
        yield from _of_split(name, found)
    for first, second in combinations(texts, 2):
        if shared := len(np.intersect1d(texts[first], texts[second], assume_unique=True)):
            yield f"{shared} texts of {second} are in {first} too, which makes measuring too easy"
    if marked := [label.name for label in labels if has_markup(label.name)]:
        yield f"{len(marked)} labels contain HTML, which stays as it is: {_shown(marked)}"
    num_labelled = sum(x.num_documents - x.num_unlabelled for x in problems.values())
    yield from _of_labels(labels, counts, num_labelled)


def _of_split(name: str, found: SplitProblems) -> Iterator[str]:
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
    if 2 * found.num_repeated_ids >= found.num_documents > 1:
        yield f"{name}: has it a row for each label? Then give --one-row-per-label"
    lines = {
        "with an empty text": found.empty,
        "with labels that are not in the vocabulary": found.unknown,
        "that can't be used otherwise": found.other,
    }
    for what, listed in lines.items():
        if listed.num_problems:
            first = "; ".join(listed.kept)
            yield f"{name}: {counted_lines(listed.num_problems)} {what}: {first}"


def _of_labels(
    labels: LabelCatalogue, counts: Mapping[str, Int64[np.ndarray, label]], num_labelled: int
) -> Iterator[str]:
    if alike := look_alikes(labels):
        shown = "; ".join(" = ".join(names) for names in alike[:_MAX_SHOWN])
        yield f"{len(alike)} groups of labels differ only in case, spaces or Unicode form: {shown}"
    of_all = sum(counts.values(), np.zeros(len(labels), np.int64)).tolist()
    names = {label.name: of_all[row] for row, label in enumerate(labels) if of_all[row]}
    delimiter = other_delimiter(names, num_labelled)
    for mark, what in _MARKS.items():
        found = [label.name for label in labels if mark in label.name]
        if found and (mark in _SELDOM or mark == delimiter):
            asked = f"{len(found)} labels contain {what}: {_shown(found)}; are they several each?"
            yield asked + f" Then give {delimiter_option(mark)}" * (mark == delimiter)
    if "train" not in counts:
        return
    for name, count in counts.items():
        if name != "train" and (
            unseen := int(np.count_nonzero((count > 0) & (counts["train"] == 0)))
        ):
            yield f"{name}: {unseen} labels of its documents have no training document"


def _shown(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_MAX_SHOWN])) + (", ..." if len(names) > _MAX_SHOWN else "")
