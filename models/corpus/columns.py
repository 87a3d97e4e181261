"""Which columns of a corpus hold texts, labels and ids: named columns, or common names.

The text is `text`, with a title before it where there is one, the first of `TITLE_NAMES`; without
a `text`, a title and one of `BODY_NAMES`, or one of them alone. A column `labels` holds the labels;
without one, the only one of the other names in `LABEL_NAMES`. Bodies and labels that may be other
things (`OTHER_NAMES`) count where there is no other. Where several could be meant, the corpus is
refused. `CorpusOptions` has what a person says of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from longtail.models.errors import ConfigError, DataError

TITLE, TEXT, LABELS = "title", "text", "labels"
TITLE_NAMES = (TITLE, "subject", "summary", "headline", "betreff")
OTHER_NAMES = frozenset({"message", "nachricht", "category", "topic", "kategorie"})
BODY_NAMES = ("content", "abstract", "description", "body", "message", "nachricht")
TEXT_NAMES = (TEXT, *TITLE_NAMES, *BODY_NAMES)
SUBJECT_URIS = "subject_uris"
SINGLE_LABEL = "label"
LABEL_NAMES = (
    LABELS, "subjects", SUBJECT_URIS, "tags", "categories", "keywords", SINGLE_LABEL,
    "category", "topic", "kategorie",
)  # fmt: skip
UID = "uid"
ID_NAMES = ("id", "document_id", "doc_id")
_MAX_SHOWN = 8
_LEAST_CELLS = 10
"""Cells needed to recognise the kind of a column."""


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """How the files of a corpus are read; options that are not given are recognised.

    Attributes:
        text_columns: Columns whose texts are joined, a line feed between them, in this order.
        label_column: Column of the labels.
        label_delimiter: What stands between the labels of a cell.
        id_column: Column of the document's id.
        group_column: Column of what documents have in common, as a patient: where they are
            confidential, documents of one group count once.
        one_row_per_label: Whether each row has one label, and rows with the same id, or without an
            id column the same text, are one document. They must stand together.
        vocabulary: The label file, where it is not in the folder under a known name.
        language: Language of the labels' names, as "en", where the label file has several.
        skip_bad: Whether documents that can't be used are skipped, counted and logged rather than
            refused. A label file must be right in every line all the same.
    """

    text_columns: tuple[str, ...] = ()
    label_column: str | None = None
    label_delimiter: str | None = None
    id_column: str | None = None
    group_column: str | None = None
    one_row_per_label: bool = False
    vocabulary: Path | None = None
    language: str | None = None
    skip_bad: bool = False

    def __post_init__(self) -> None:
        """Refuse what can't be meant.

        Raises:
            ConfigError: A name is blank or given twice, or the delimiter is empty.
        """
        # As people type them, whatever the types say: one column, and a path as text.
        if isinstance(self.text_columns, str):
            object.__setattr__(self, "text_columns", (self.text_columns,))
        if isinstance(self.vocabulary, str):
            object.__setattr__(self, "vocabulary", Path(self.vocabulary))
        columns = [*self.text_columns, self.label_column, self.id_column, self.group_column]
        named = [column for column in columns if column is not None]
        if any(not column.strip() for column in named):
            raise ConfigError("columns of the corpus: got a blank name; expected names of columns")
        if len(set(named)) != len(named):
            raise ConfigError(
                f"columns of the corpus: got {', '.join(map(repr, named))}; expected each once"
            )
        if self.label_delimiter == "":
            raise ConfigError("--label-delimiter: got nothing; expected what stands between labels")

    @property
    def names_columns(self) -> bool:
        """Whether a column is named."""
        named = (self.text_columns, self.label_column, self.id_column, self.group_column)
        return any(named)

    def to_json(self) -> dict[str, Any]:
        """Return the given options, the vocabulary by its file name; empty where none is given."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.vocabulary is not None:
            given["vocabulary"] = self.vocabulary.name
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in given.items()
            if value
        }


RECOGNISED = CorpusOptions()
"""Nothing is given: all is recognised."""


class ColumnChoiceError(DataError):
    """A column that was named is not there, or several could be meant."""


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The columns of a corpus that are read.

    Attributes:
        text: Columns of the text, in the order in which they are joined; not empty.
        labels: Columns of the labels; empty where they are not read.
        id: Column of the document's id; None where there is none.
        group: Column of the group that keeps documents in one split; None where none is named.
    """

    text: tuple[str, ...]
    labels: str
    id: str | None
    group: str | None = None

    @property
    def read(self) -> set[str | None]:
        """All of them."""
        return {*self.text, self.labels, self.id, self.group}

    def remarks(self, options: CorpusOptions, unread: Mapping[str, Sequence[object]]) -> list[str]:
        """Return the recognised columns, and those that are not read.

        Args:
            options: What is said of the columns.
            unread: The first cells of the columns that are not read.
        """
        found = []
        usual = ((TEXT,), (TITLE,), ("content",), (TITLE, "content"))
        if not options.text_columns and self.text not in usual:
            found.append(f"the text is taken from {_listed(self.text)}")
        if not options.label_column and self.labels not in {"", LABELS}:
            found.append(f"the labels are taken from {self.labels!r}")
        if not options.id_column and self.id not in {None, "id", UID}:
            found.append(f"the ids are taken from {self.id!r}")
        texts = [name for name, cells in unread.items() if name in TEXT_NAMES or _are_texts(cells)]
        texts = [] if options.text_columns else texts
        ids = [name for name, cells in unread.items() if self.id is None and _are_ids(cells)]
        if unread:
            found.append(f"not read: {_listed_in_short([*unread])}")
        if texts:
            joined = shlex.quote(",".join([*self.text, *texts]))
            found[-1] += f"; {_listed(texts)} looks like text: --text-columns {joined} joins it"
        if ids:
            found[-1] += f"; {ids[0]!r} looks like an id: --id-column {shlex.quote(ids[0])}"
        return found


def _are_texts(cells: Sequence[object]) -> bool:
    """Whether most cells differ and have several words."""
    texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    num_long = sum(sum(x[0].isalpha() for x in text.split()) > 1 for text in texts)
    are_different = len(set(texts)) >= 0.9 * len(texts) >= 0.9 * _LEAST_CELLS
    return are_different and 2 * num_long > len(texts)


def _are_ids(cells: Sequence[object]) -> bool:
    """Whether all cells differ, and are short and without spaces; no dates, times and decimals."""
    ids = {str(cell) for cell in cells if isinstance(cell, str | int)}
    return len(ids) == len(cells) >= _LEAST_CELLS and all(
        len(x) <= 40 and not set(x) & set(" :.,") and x.count("-") not in {2} for x in ids
    )


def find_columns(
    present: Sequence[str], options: CorpusOptions, *, reads_labels: bool = True
) -> ColumnNames:
    """Return the columns to read.

    Args:
        present: Names of all columns.
        options: Those that are named are taken, in any case.
        reads_labels: Whether labels are wanted, and there must be some.

    Raises:
        ColumnChoiceError: A column that is named is not there, or several could be meant.
        DataError: There is none that could be.
    """
    labels = ""
    if reads_labels:
        labels = (
            _named(options.label_column, present, "--label-column")
            if options.label_column
            else _label_column(present)
        )
    text = tuple(_named(name, present, "--text-columns") for name in options.text_columns)
    ids = ID_NAMES if reads_labels else (*ID_NAMES, UID)
    found_id = (
        _named(options.id_column, present, "--id-column")
        if options.id_column
        else next((name for name in ids if name in present), None)
    )
    group = (
        _named(options.group_column, present, "--group-column") if options.group_column else None
    )
    taken = {labels, found_id, group}
    return ColumnNames(text or _text_columns(present, taken), labels, found_id, group)


def as_trained(
    present: Sequence[str], options: CorpusOptions, trained: Sequence[str]
) -> CorpusOptions:
    """Return options that name the columns of the training's texts, if all of them are present.

    Those that are given stay where they name columns, or the same ones would be read anyway.

    Args:
        present: Names of all columns.
        options: What is given.
        trained: Columns of the texts that the model was trained on; empty where they had none.
    """
    if options.text_columns:
        return options
    with suppress(DataError, ConfigError):
        found = replace(options, text_columns=tuple(trained))
        text = find_columns(present, found, reads_labels=False).text
        with suppress(DataError):
            if find_columns(present, options, reads_labels=False).text == text:
                return options
        return found
    return options


def _label_column(present: Sequence[str]) -> str:
    found = _usual(LABEL_NAMES, present)
    if LABELS in found:
        return LABELS
    if not found:
        raise DataError(
            f"no {LABELS!r}; {_has(present)}; name the column of the labels with --label-column, "
            f"or call it {_either(LABEL_NAMES)}"
        )
    if len(found) > 1:
        raise ColumnChoiceError(
            f"{_listed(found)} may each hold the labels; choose with '--label-column {found[0]}'"
        )
    return found[0]


def _text_columns(present: Sequence[str], taken: set[str | None]) -> tuple[str, ...]:
    free = {*present} - taken
    title = [name for name in TITLE_NAMES if name in free][:1]
    if TEXT in present:
        return (*title, TEXT)
    bodies = _usual(BODY_NAMES, free)
    if len(bodies) > 1:
        raise ColumnChoiceError(
            f"{_listed(bodies)} may each hold the text; choose with "
            f"'--text-columns {','.join([*title, bodies[0]])}'"
        )
    if not title and not bodies:
        raise DataError(
            f"no {TEXT!r}; {_has(present)}; name the columns of the text with --text-columns, or "
            f"call one {_either(TEXT_NAMES)}"
        )
    return (*title, *bodies)


def _usual(names: Sequence[str], present: Collection[str]) -> list[str]:
    """Return the names that are present; those that may be other things where there are no more."""
    found = [name for name in names if name in present]
    return [name for name in found if name not in OTHER_NAMES] or found


def _named(name: str, present: Sequence[str], option: str) -> str:
    """Return the column of this name, or else the only one that differs from it in case alone."""
    if name in present:
        return name
    alike = [other for other in present if other.strip().lower() == name.strip().lower()]
    if len(alike) != 1:
        raise ColumnChoiceError(f"{option}: no column {name!r}; {_has(present)}")
    return alike[0]


def _has(present: Sequence[str]) -> str:
    return f"it has {_listed_in_short(present)}" if present else "it has no columns"


def _listed_in_short(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return f"{_listed(names[:_MAX_SHOWN])}{more}"


def _either(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
