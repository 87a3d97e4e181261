"""The reader of label files: those of a corpus, and of labels that are added to a bundle.

JSON lines or CSV, plain or gzip-compressed, UTF-8 or UTF-16. A label has the fields `id`, `name`
and, where given, `description`, `alternative_names` and `parents`, which are ids; in the form of
the Extreme Classification Repository they are `uid`, `title`, `content`, `alt` and `parents`.
Either list is a JSON list of strings, or one string with semicolons between. White space around ids
and names does not count, and blank lines hold nothing.

A field of another name in a file of our own form is an error: it may be one of these, misspelt.
Files of the repository's form have more fields than are read, and a warning names those.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models.errors import DataError
from models.files.bad_lines import BadLine, ProblemList, list_problems
from models.files.fields import id_of, present, shown, string_of
from models.files.rows import Fields, Row, csv_rows, header_of, json_rows
from models.labels.catalogue import Label
from models.labels.cells import labels_of_cell

logger = logging.getLogger(__name__)

MAX_PROBLEMS = 20
"""Lines that a message lists, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class LabelForm:
    """What the fields of a label file are called.

    Attributes:
        id: Of the label's identifier.
        name: Of its name.
        description: Of its description.
        alternative_names: Of its other names.
        parents: Of the ids of broader labels.
        unread: Fields that may stand there and are not read.
        is_strict: Whether a field of any other name is an error.
        is_indexed: Whether a label's index is its line, so that a blank line is an error: it would
            shift the labels below it.
    """

    id: str
    name: str
    description: str
    alternative_names: str
    parents: str = "parents"
    unread: tuple[str, ...] = ()
    is_strict: bool = True
    is_indexed: bool = False

    @property
    def read(self) -> tuple[str, ...]:
        """The fields that are read."""
        return self.id, self.name, self.description, self.alternative_names, self.parents


OWN_FORM = LabelForm(
    "id",
    "name",
    "description",
    "alternative_names",
    # What `longtail describe --all` writes besides.
    unread=("pseudo_description", "training_count", "keywords", "keywords_read"),
)
REPOSITORY_FORM = LabelForm(
    "uid", "title", "content", "alt", unread=("ntrn",), is_strict=False, is_indexed=True
)


def read_label_file(path: Path, form: LabelForm, max_problems: int = MAX_PROBLEMS) -> list[Label]:
    """Return the labels of a file, in its order, their parents as ids.

    Args:
        path: Of the file; CSV by its name, else JSON lines.
        form: What its fields are called.
        max_problems: Lines that a message lists.

    Raises:
        DataError: The file can't be read to its end, its CSV header lacks a column, there is no
            label, or some can't be used: a line is none, has a field of an unknown name, lacks id
            or name, or has the id of an earlier one. The message lists the lines.
    """
    labels: list[Label] = []
    line_of: dict[str, int] = {}
    problems, unread = ProblemList(path, max_problems), set[str]()
    for line, fields in _rows(path, form):
        if isinstance(fields, BadLine):
            problems.add(fields)
            continue
        try:
            label = _label_of(fields, form)
        except DataError as error:
            problems.add(BadLine(line, str(error)))
            continue
        unread.update(fields.keys() - {*form.read, *form.unread})
        if (first := line_of.setdefault(label.id, line)) == line:
            labels.append(label)
        else:
            problems.add(BadLine(line, f"id {label.id!r} again, as on line {first}"))
    _check(path, labels, problems)
    if unread:
        logger.warning(
            "%s: the fields %s are not read; those of a label are %s",
            path, _listed(sorted(unread)), _listed(form.read),
        )  # fmt: skip
    return labels


def form_of(path: Path) -> LabelForm:
    """Return the form of a label file by its first label: the repository's where that has a `uid`.

    Raises:
        DataError: The file can't be read.
    """
    if _is_csv(path):
        return OWN_FORM
    _, fields = next(json_rows(path), (0, {}))
    is_repository = not isinstance(fields, BadLine) and REPOSITORY_FORM.id in fields
    return REPOSITORY_FORM if is_repository else OWN_FORM


def _rows(path: Path, form: LabelForm) -> Iterator[Row]:
    if _is_csv(path):
        needed, known = ((form.id,), (form.name,)), form.read[2:]
        for remark in header_of(path, needed, known).remarks():
            logger.warning("%s: %s", path, remark)
        return csv_rows(path, needed, known)
    return json_rows(path, keep_blank=form.is_indexed)


def _is_csv(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".csv")


def _check(path: Path, labels: list[Label], problems: ProblemList) -> None:
    """Refuse a file with bad lines, for a label can't be skipped, or without labels.

    Raises:
        DataError: It is one.
    """
    if problems.num_problems:
        listed = list_problems(problems.kept, problems.num_problems)
        raise DataError(
            f"{path}: {problems.num_problems} labels can't be used; "
            f"correct them, for a label can't be skipped\n{listed}"
        )
    if not labels:
        raise DataError(f"{path}: no labels; give one a line")


def _label_of(fields: Fields, form: LabelForm) -> Label:
    """Return the label of a line.

    Raises:
        DataError: It is none; the message is the bare reason.
    """
    unknown = [name for name in fields if name not in form.read and name not in form.unread]
    if unknown and form.is_strict:
        raise DataError(
            f"unknown field {_listed(unknown)}; expected of {_listed(form.read)}; correct the "
            "name, or remove the field"
        )
    label_id, name = id_of(fields, form.id), string_of(fields, form.name).strip()
    if not label_id or not name:
        raise DataError(f"no {form.name if label_id else form.id!r}; {present(fields)}")
    return Label(
        label_id,
        name,
        string_of(fields, form.description),
        alternative_names=_strings_of(fields, form.alternative_names),
        parents=_strings_of(fields, form.parents),
    )


def _strings_of(fields: Fields, name: str) -> tuple[str, ...]:
    """Return a field of strings; empty where it is missing or null, and without blank ones.

    Raises:
        DataError: It holds something else.
    """
    values = fields.get(name)
    if values is None:
        return ()
    if isinstance(values, str):  # a cell of a CSV file
        values = labels_of_cell(values)
    if not isinstance(values, list):
        raise DataError(f"{name} is {shown(values)}; expected a list of strings")
    found = (id_of({name: value}, name) for value in values)
    return tuple(value for value in found if value)


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(map(repr, names))
