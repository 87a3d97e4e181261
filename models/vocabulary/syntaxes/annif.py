"""Annif's tables of subjects: TSV in one language, CSV in many (its "Subject vocabulary formats").

As in Annif, a subject without any label is a deprecated one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from longtail.models.errors import DataError, count_of
from longtail.models.files.rows import CsvTable, string_of
from longtail.models.files.text_files import BadLine, ProblemList, lines, list_problems
from longtail.models.vocabulary.concept import CONCEPT, UNTAGGED, Facts

URI: Final = "uri"
LABEL: Final = "label_"
"""Begins the name of a column of labels; the language follows."""
NOTATION: Final = "notation"
_MAX_CELLS = 3


def is_annif_csv(path: Path) -> bool:
    """Whether the header of a CSV file has `uri` and a column of labels."""
    names = _header(path)
    return URI in names and any(name.startswith(LABEL) for name in names)


def is_annif_tsv(path: Path) -> bool:
    """Whether a TSV file has no header with `id` and `name`, as a label file has."""
    return not {"id", "name"} <= set(_header(path))


def _header(path: Path) -> list[str]:
    _, first = next(lines(path), (0, b""))
    cells = re.split(r"[,;\t]", first.decode("utf-8-sig", errors="replace").lower())
    return [cell.strip(' "\r\n') for cell in cells]


def read_annif_tsv(path: Path, facts: Facts, max_problems: int) -> None:
    """Add the subjects of a file to the facts: `<uri>`, label, and a notation if there is one."""
    problems = ProblemList(path, max_problems)
    line_of: dict[str, int] = {}
    for number, line in lines(path):
        try:
            cells = [cell.strip() for cell in line.decode().strip("\r\n").split("\t")]
            if not any(cells):
                continue
            if len(cells) > _MAX_CELLS:
                raise DataError(f"{len(cells)} cells; expected a URI, a label and a notation")
            uri, label, notation = [*cells, "", ""][:_MAX_CELLS]
            if not (uri.startswith("<") and uri.endswith(">")):
                raise DataError(f"{uri!r} is no URI in angle brackets; expected <http://...>")
            _add(facts, line_of, number, uri, {UNTAGGED: label}, notation)
        except UnicodeDecodeError as error:
            problems.add(BadLine(number, f"not UTF-8 (byte 0x{line[error.start]:02x})"))
        except DataError as error:
            problems.add(BadLine(number, str(error)))
    _refuse(path, problems)


def read_annif_csv(path: Path, facts: Facts, max_problems: int) -> None:
    """Add the subjects of a file to the facts: `uri`, `label_en`, ..., `notation`."""
    problems = ProblemList(path, max_problems)
    line_of: dict[str, int] = {}
    names = CsvTable(path, ((URI,),)).header.names
    labels = [name for name in names if name.startswith(LABEL)]
    if not labels:
        raise DataError(f"{path}, line 1: no column of labels; expected 'label_en' or the like")
    for number, fields in CsvTable(path, ((URI,),), (*labels, NOTATION)).rows():
        if isinstance(fields, BadLine):
            problems.add(fields)
            continue
        texts = {
            name.removeprefix(LABEL).lower().replace("_", "-"): string_of(fields, name)
            for name in labels
        }
        try:
            notation = string_of(fields, NOTATION)
            _add(facts, line_of, number, string_of(fields, URI).strip(), texts, notation)
        except DataError as error:
            problems.add(BadLine(number, str(error)))
    _refuse(path, problems)


def _add(
    facts: Facts,
    line_of: dict[str, int],
    line: int,
    uri: str,
    labels: dict[str, str],
    notation: str,
) -> None:
    # Add a subject.
    if uri.startswith("<") and uri.endswith(">"):
        uri = uri[1:-1].strip()
    if not uri:
        raise DataError("no URI; give each subject one")
    if (first := line_of.setdefault(uri, line)) != line:
        raise DataError(f"URI {uri!r} again, as on line {first}")
    about = facts.setdefault(uri, [])
    about.append(("type", CONCEPT, None))
    found = {language: label for language, label in labels.items() if label.strip()}
    for language, label in found.items():
        about.append(("names", label, language))
    if notation.strip():
        about.append(("notations", notation, UNTAGGED))
    if not found:
        about.append(("deprecated", "true", UNTAGGED))


def _refuse(path: Path, problems: ProblemList) -> None:
    if problems.num_problems:
        listed = list_problems(problems.kept, problems.num_problems)
        bad = f"{count_of(problems.num_problems, 'line')} can't be read as subjects"
        raise DataError(f"{path}: {bad}; correct them\n{listed}")
