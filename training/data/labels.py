"""The labels of a corpus: from its label file, or the labels that its documents carry."""

from __future__ import annotations

import logging
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice, pairwise
from pathlib import Path

from longtail.models.corpus.documents import read_documents
from longtail.models.corpus.files import CorpusFiles, either
from longtail.models.corpus.forms import DocumentSource
from longtail.models.corpus.raw import RawDocument
from longtail.models.errors import DataError, count_of
from longtail.models.files.text_files import ProblemList, list_problems
from longtail.models.labels.catalogue import Label, LabelCatalogue, with_names_of_parents
from longtail.models.labels.cells import DELIMITER
from longtail.models.labels.concepts import without_deprecated
from longtail.models.labels.files import OWN_FORM, REPOSITORY_FORM, read_label_file
from longtail.training.runtime.run_log import counted

logger = logging.getLogger(__name__)

_MAX_SHOWN = 5
_OTHER_DELIMITERS = ("|", ",", "\t")
"""What may stand between labels besides semicolons, and in few names."""
_MARKS_OF_NAMES = ("/", "#", " ")
"""What may stand between labels, and in many names, too."""
_LEAST_TORN, _LEAST_TORN_SHARE = 10, 0.15
"""Documents, and share of them, whose cell falls into parts of other cells, before a mark of names
counts as a delimiter. Of three corpora with one name a document, at most 0.09 do; with the names
of all labels of a document, a blank between, 0.12 to 0.63 (1,000 documents and more)."""
_MOST_LABELS_A_CELL = 1.1
"""Labels a document, above which what stands between them is known."""
_LEAST_PAIRS = 2
"""Documents in which two labels stand side by side, before they look like one that was split."""
_LEAST_PAIR_SHARE = 0.01
"""The same, as a share of the documents."""
_MISSING_VALUES = frozenset({"nan", "none", "null", "n/a"})
"""What other programs write where there is no value, in lower case."""


def labels_of_file(path: Path, files: CorpusFiles, max_problems: int) -> LabelCatalogue:
    """Return the labels of a label file, in its order."""
    label_form = REPOSITORY_FORM if files.form.is_indexed else OWN_FORM
    language = files.options.language
    found = read_label_file(path, label_form, max_problems, language, keep_deprecated=True)
    labels = _without_deprecated(found, path, files)
    _warn_of_equal_names(path, labels)
    return LabelCatalogue(with_names_of_parents(labels, labels))


def _without_deprecated(labels: list[Label], path: Path, files: CorpusFiles) -> list[Label]:
    """Return the labels that are in use: not deprecated, or still carried by a document."""
    old = {
        key: label.id
        for label in labels
        if label.is_deprecated
        for key in (label.notation, *label.names.values(), label.name, label.id)
    }
    if not old:
        return labels
    carried = {
        old[str(label)]
        for source in files.splits.values()
        for item in read_documents(source)
        if isinstance(item, RawDocument)
        for label in item.labels
        if str(label) in old
    }
    kept = without_deprecated(labels, str(path), carried)
    if not kept:
        raise DataError(f"{path}: all labels are deprecated, and no document carries one")
    return kept


def _warn_of_equal_names(path: Path, labels: Iterable[Label]) -> None:
    """Log names that several labels of a file have: answers with them look alike."""
    counts = Counter(label.name for label in labels)
    if shared := [name for name, count in counts.items() if count > 1]:
        logger.warning(
            "%s: %d names are those of several labels each, which only their ids tell apart: %s",
            path,
            len(shared),
            _shown(shared),
        )


def labels_of_documents(files: CorpusFiles, max_problems: int) -> LabelCatalogue:
    """Return the labels that documents carry: the most frequent of training first.

    Labels that only documents of other splits carry come last, without training documents, so that
    they count as misses of scorers that can't know them. Equal ones are ordered by their text.

    Args:
        files: Files of a corpus without a label file, with a training split.
        max_problems: Lines that are listed where no training document has a label.
    """
    problems = ProblemList(files.splits["train"].place, max_problems)
    trained = _count(files.splits["train"], problems)
    if not trained:
        raise DataError(_without_labels(files, problems))
    others = {
        label
        for name, source in files.splits.items()
        if name != "train"
        for label in _count(source, ProblemList(source.place, 0))
    }
    untrained = sorted(others - trained.keys())
    if untrained:
        logger.warning(
            "%s: only dev or test documents carry %d of %d labels (%s); they are kept, as labels "
            "without training documents",
            files.folder,
            len(untrained),
            len(untrained) + len(trained),
            _shown(untrained),
        )
    in_order = sorted(trained, key=lambda label: (-trained[label], label))
    return LabelCatalogue(Label(label, label) for label in [*in_order, *untrained])


def with_unseen(known: LabelCatalogue, files: CorpusFiles) -> LabelCatalogue:
    """Return the labels of a model, then labels that only the documents of a corpus carry."""
    carried = {
        str(label)
        for source in files.splits.values()
        for item in read_documents(source, known.knows)
        if isinstance(item, RawDocument)
        for label in item.labels
    }
    unseen = sorted(label for label in carried if not known.knows(label))
    return LabelCatalogue([*known, *(Label(x, x) for x in unseen)]) if unseen else known


def _count(source: DocumentSource, problems: ProblemList) -> Counter[str]:
    """Return in how many documents of a split each label stands; bad lines go to the problems."""
    counts: Counter[str] = Counter()
    side_by_side: Counter[tuple[str, str]] = Counter()
    num_labelled = 0
    for item in counted(read_documents(source), f"labels of {source.part or source.place.name}"):
        if isinstance(item, RawDocument):
            labels = list(dict.fromkeys(map(str, item.labels)))
            counts.update(labels)
            num_labelled += bool(labels)
            if source.is_divided_at_semicolons:
                side_by_side.update(pairwise(labels))
        else:
            problems.add(item)
    if source.part not in {None, "train"}:
        return counts  # the same file, reported once
    if side_by_side:
        _tell_of_delimiter(source.place, counts, side_by_side, num_labelled)
    elif source.may_have_delimiter:
        warn_of_delimiter(source.place, counts, num_labelled)
    return counts


def warn_of_delimiter(where: object, counts: Mapping[str, int], num_documents: int) -> None:
    """Log what seems to stand between labels (see `other_delimiter`)."""
    if found := other_delimiter(counts, num_documents):
        logger.warning(
            "%s: no semicolon is in the labels column, and %r is in %d of %d labels: if it stands "
            "between labels, give %s",
            where, found, sum(found in label for label in counts), len(counts),
            delimiter_option(found),
        )  # fmt: skip


def delimiter_option(mark: str) -> str:
    """Return the option that names a delimiter, as a shell takes it."""
    return "--label-delimiter " + ("$'\\t'" if mark == "\t" else shlex.quote(mark))


def other_delimiter(counts: Mapping[str, int], num_documents: int) -> str | None:
    """Return what seems to stand between the labels of cells that were taken for one label each.

    That is a mark in half of the cells; or in some, at which they fall into fewer parts than there
    are different cells. A mark that names have, too, is recognised by its effect: many documents
    have a cell of their own, and all of its parts occur in other cells.
    """
    num_cells = sum(counts.values())
    if num_cells > _MOST_LABELS_A_CELL * num_documents:
        return None
    for mark in (*_OTHER_DELIMITERS, *_MARKS_OF_NAMES):
        parts = {cell: {part.strip() for part in cell.split(mark)} - {""} for cell in counts}
        shared = Counter(part for own in parts.values() for part in own)
        if mark in _MARKS_OF_NAMES:
            torn = sum(
                counts[cell] == 1 < len(own) and all(shared[part] > 1 for part in own)
                for cell, own in parts.items()
            )
            is_one = torn >= max(_LEAST_TORN, _LEAST_TORN_SHARE * num_cells)
            # Where nearly each cell is of one document, as in a glossary, words repeat as much.
            is_one &= len(counts) < 0.97 * num_cells or 2 * len(shared) <= len(counts)
        else:
            marked = [cell for cell in counts if mark in cell]
            is_half = 2 * sum(counts[cell] for cell in marked) >= num_cells
            is_one = len(marked) >= _LEAST_PAIRS and (is_half or len(shared) < len(counts))
        if is_one:
            return mark
    return None


def _tell_of_delimiter(
    path: Path, counts: Counter[str], side_by_side: Counter[tuple[str, str]], num_documents: int
) -> None:
    """Log that cells of labels were split, and which names look like halves of one.

    Two labels of which each stands in few documents are side by side in all of these by chance.
    """
    least = max(_LEAST_PAIRS, _LEAST_PAIR_SHARE * num_documents)
    what = f"{path}: the labels column was split at {DELIMITER!r}: {len(counts)} labels"
    torn = [
        f"{DELIMITER} ".join(pair)
        for pair, count in side_by_side.items()
        if count >= least and counts[pair[0]] == counts[pair[1]] == count
    ]
    if not torn:
        logger.info("%s", what)
        return
    logger.warning(
        "%s; %s always stand side by side: if that is one label, write the cell as a JSON list "
        '(["%s"]), or give a label file with its name',
        what,
        _shown(torn),
        torn[0],
    )


def _without_labels(files: CorpusFiles, problems: ProblemList) -> str:
    source = files.splits["train"]
    listed = list_problems(problems.kept, problems.num_problems)
    bad = f"{count_of(problems.num_problems, 'line')} can't be used"
    if problems.num_problems and not any(
        isinstance(item, RawDocument) for item in read_documents(source)
    ):
        them = "it" if problems.num_problems == 1 else "them"
        return f"{source.place}: {bad}; no others are left; fix {them}\n{listed}"
    what = (
        f"{source.place}: no document that can be used has a label; "
        f"give some, or a label file ({either(files.form.label_files)})"
    )
    return f"{what}; {bad}:\n{listed}" if problems.num_problems else what


def warn_of_look_alikes(folder: Path, labels: LabelCatalogue) -> None:
    """Log labels that a person would take for one, and such as look like missing values."""
    if alike := look_alikes(labels):
        logger.warning(
            "%s: %d groups of labels differ only in case, spaces or Unicode form, and are kept "
            "apart: %s",
            folder,
            len(alike),
            "; ".join(_shown(names) for names in alike[:_MAX_SHOWN])
            + ("; ..." if len(alike) > _MAX_SHOWN else ""),
        )
    # A label with an id of its own was not read from a cell without a value.
    plain = [label.name for label in labels if label.id == label.name]
    if missing := [name for name in plain if name.lower() in _MISSING_VALUES]:
        logger.warning(
            "%s: got %s as a label; leave the labels of a document empty if it has none",
            folder,
            _shown(missing),
        )


def look_alikes(labels: Iterable[Label]) -> list[list[str]]:
    """Return groups of different names that a person would take for one."""
    groups: dict[str, dict[str, None]] = {}
    for label in labels:
        groups.setdefault(_looks(label.name), {})[label.name] = None
    return [list(names) for names in groups.values() if len(names) > 1]


def _looks(name: str) -> str:
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def _shown(names: Iterable[str]) -> str:
    names = list(names)
    more = ", ..." if len(names) > _MAX_SHOWN else ""
    return ", ".join(map(repr, islice(names, _MAX_SHOWN))) + more
