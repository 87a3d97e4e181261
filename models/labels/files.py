"""The reader of label files: those of a corpus, and of labels that are added to a bundle.

JSON lines, CSV, TSV, or a vocabulary (SKOS, or a table of Annif's), plain or gzip-compressed. A
label has the fields `id`, `name` and, where given, `description`, `alternative_names` and
`parents`, which are ids; in the form of the Extreme Classification Repository they are `uid`,
`title`, `content`, `alt` and `parents`.
Files of our own form may also have `names` (an object: preferred names by language), `notation`,
`broader` (ids; `parents` are the same where they are not given), `is_deprecated`, `replaced_by`
(ids) and `scheme` (names of the schemes that the label belongs to).
A list is a JSON list of strings, or one string with semicolons between. White space around ids
and names does not count, and blank lines hold nothing.

A field of another name in a file of our own form is an error: it may be one of these, misspelt.
Files of the repository's form have more fields than are read, and a warning names those.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from longtail.models.errors import DataError, count_of
from longtail.models.files.rows import (
    CsvTable,
    Fields,
    Row,
    garbage_collection_off,
    id_of,
    json_rows,
    present,
    shown,
    string_of,
)
from longtail.models.files.text_files import BadLine, ProblemList, list_problems
from longtail.models.labels.catalogue import FIELDS_OF_MODELS, Label
from longtail.models.labels.cells import labels_of_cell
from longtail.models.labels.concepts import read_vocabulary_labels, without_deprecated
from longtail.models.vocabulary.reading import is_vocabulary_file

logger = logging.getLogger(__name__)

MAX_PROBLEMS = 20
"""Lines that a message lists, by default."""


@dataclass(frozen=True, slots=True)
class LabelForm:
    """What the fields of a label file are called.

    Attributes:
        id: Field of the label's identifier.
        name: Field of its name.
        description: Field of its description.
        alternative_names: Field of its other names.
        parents: Field of the ids of broader labels.
        unread: Fields that may be there and are not read.
        of_vocabularies: Further fields: preferred names by language, notation, ids of broader
            labels, whether it is deprecated, ids of the labels that replace it, its schemes.
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
    of_vocabularies: tuple[str, ...] = ()
    is_strict: bool = True
    is_indexed: bool = False

    @property
    def read(self) -> tuple[str, ...]:
        """The fields that are read."""
        own = (self.id, self.name, self.description, self.alternative_names, self.parents)
        return *own, *self.of_vocabularies


OWN_FORM = LabelForm(
    "id", "name", "description", "alternative_names",
    # What `longtail describe --all` writes besides.
    unread=(*FIELDS_OF_MODELS, "keywords", "keywords_read"),
    of_vocabularies=("names", "notation", "broader", "is_deprecated", "replaced_by", "scheme"),
)  # fmt: skip
REPOSITORY_FORM = LabelForm(
    "uid", "title", "content", "alt", unread=("ntrn",), is_strict=False, is_indexed=True
)


def read_label_file(
    path: Path,
    form: LabelForm,
    max_problems: int = MAX_PROBLEMS,
    language: str | None = None,
    *,
    keep_deprecated: bool = False,
) -> list[Label]:
    """Return the labels of a file, in its order (those of a vocabulary by id), parents as ids.

    Args:
        path: The file's path; a vocabulary, CSV or TSV by its name, else JSON lines.
        form: What its fields are called, unless it is a vocabulary.
        max_problems: Lines that a message lists.
        language: Language of the names shown, in a vocabulary; None: that in which most concepts
            have one.
        keep_deprecated: Whether deprecated labels stay; else they are left out, and counted in the
            log. See `longtail.models.labels.concepts.without_deprecated`.
    """
    if is_vocabulary_file(path):
        labels = read_vocabulary_labels(path, max_problems, language)
    else:
        with garbage_collection_off():
            labels = _read_rows(path, form, max_problems)
    kept = labels if keep_deprecated else without_deprecated(labels, str(path))
    if not kept:
        raise DataError(f"{path}: all labels are deprecated; give others")
    return kept


def _read_rows(path: Path, form: LabelForm, max_problems: int) -> list[Label]:
    """Return the labels of JSON lines, CSV or TSV; see `read_label_file`."""
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
    """Return the form of a label file by its first label: the repository's if that has a `uid`."""
    if _is_csv(path) or is_vocabulary_file(path):
        return OWN_FORM
    _, fields = next(json_rows(path), (0, {}))
    is_repository = not isinstance(fields, BadLine) and REPOSITORY_FORM.id in fields
    return REPOSITORY_FORM if is_repository else OWN_FORM


def _rows(path: Path, form: LabelForm) -> Iterator[Row]:
    if _is_csv(path):
        needed, known = ((form.id,), (form.name,)), form.read[2:]
        table = CsvTable(path, needed, known)
        for remark in table.header.remarks():
            logger.warning("%s: %s", path, remark)
        return table.rows()
    return json_rows(path, keep_blank=form.is_indexed)


def _is_csv(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith((".csv", ".tsv"))


def _check(path: Path, labels: list[Label], problems: ProblemList) -> None:
    if problems.num_problems:
        listed = list_problems(problems.kept, problems.num_problems)
        raise DataError(
            f"{path}: {count_of(problems.num_problems, 'label')} can't be used; "
            f"fix them, for a label can't be skipped\n{listed}"
        )
    if not labels:
        raise DataError(f"{path}: no labels; give one a line")


def _label_of(fields: Fields, form: LabelForm) -> Label:
    # Return the label of a line.
    unknown = [name for name in fields if name not in form.read and name not in form.unread]
    if unknown and form.is_strict:
        raise DataError(
            f"unknown field {_listed(unknown)}; expected of {_listed(form.read)}; correct the "
            "name, or remove the field"
        )
    label_id, name = id_of(fields, form.id), string_of(fields, form.name).strip()
    if not label_id or not name:
        raise DataError(f"no {form.name if label_id else form.id!r}; {present(fields)}")
    label = Label(
        label_id,
        name,
        string_of(fields, form.description),
        alternative_names=_strings_of(fields, form.alternative_names),
        parents=_strings_of(fields, form.parents),
    )
    return _with_vocabulary_fields(label, fields) if form.of_vocabularies else label


def _with_vocabulary_fields(label: Label, fields: Fields) -> Label:
    # Return a label with what it has of a vocabulary.
    broader = _strings_of(fields, "broader")
    return replace(
        label,
        parents=label.parents or broader,
        names=_names_of(fields),
        notation=id_of(fields, "notation"),
        broader=broader,
        is_deprecated=_truth_of(fields, "is_deprecated"),
        replaced_by=_strings_of(fields, "replaced_by"),
        scheme=_strings_of(fields, "scheme"),
    )


def _names_of(fields: Fields) -> dict[str, str]:
    # Return the preferred names by language; empty where there are none.
    value = fields.get("names")
    if isinstance(value, str) and value.strip():  # a cell of a CSV file
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if not value:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"names is {shown(value)}; expected an object of names by language")
    return {language: string_of(value, language).strip() for language in value}


def _truth_of(fields: Fields, name: str) -> bool:
    # Return a field that is true or false; false where it is missing.
    value = fields.get(name)
    if isinstance(value, bool) or value is None:
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in {"", "true", "false"}:
        return value.strip().lower() == "true"
    raise DataError(f"{name} is {shown(value)}; expected true or false")


def _strings_of(fields: Fields, name: str) -> tuple[str, ...]:
    # Return a field of strings; empty where it is missing or null, and without blank ones.
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
