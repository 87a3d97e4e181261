"""Labels as the lines of files: JSON lines, CSV, and Annif's TSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator

from longtail.models.labels.catalogue import Label

_COLUMNS = (
    "id", "name", "description", "alternative_names", "names", "notation", "broader",
    "is_deprecated", "replaced_by", "scheme",
)  # fmt: skip
"""What is written of a label that no model has seen; `parents` follow from `broader`."""


def jsonl_lines(labels: Iterable[Label]) -> Iterator[str]:
    """Yield a JSON object for each label, without fields that hold nothing."""
    for label in labels:
        fields = _fields_of(label)
        kept = {name: value for name, value in fields.items() if value}
        yield json.dumps(kept, ensure_ascii=False)


def csv_lines(labels: Iterable[Label]) -> Iterator[str]:
    """Yield a header and a record for each label; lists and objects are JSON."""
    yield ",".join(_COLUMNS)
    for label in labels:
        yield csv_record(map(_cell, _fields_of(label).values()))


def tsv_lines(labels: Iterable[Label]) -> Iterator[str]:
    """Yield `<id>`, name and notation of each label, their white space as single spaces."""
    for label in labels:
        cells = (label.name, label.notation)
        texts = [" ".join(cell.split()) for cell in cells if cell]
        yield "\t".join([f"<{label.id}>", *texts])


def _fields_of(label: Label) -> dict[str, object]:
    fields: dict[str, object] = {name: getattr(label, name) for name in _COLUMNS}
    return fields


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value
    if not value:
        return ""
    return "true" if value is True else json.dumps(value, ensure_ascii=False)


def csv_record(cells: Iterable[object]) -> str:
    """Return a line of a CSV file, without its end."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()
