"""Files of replaced labels and their replacements, for vocabularies that lack them."""

from __future__ import annotations

from pathlib import Path

from longtail.models.errors import DataError
from longtail.models.files.rows import Fields, id_of, string_of, take_csv_rows
from longtail.models.labels.cells import labels_of_cell

ID, REPLACED_BY = "id", "replaced_by"
_COLUMNS = ((ID,), (REPLACED_BY,))


def read_merges(path: Path) -> dict[str, tuple[str, ...]]:
    """Return what replaces each label, by id: one label where it was merged, several where split.

    Args:
        path: CSV with the columns `id` and `replaced_by`; several ids in a cell have semicolons
            between, and an id may stand in several lines.

    Raises:
        DataError: The file can't be read to its end, or lines are none of these.
    """
    found: dict[str, list[str]] = {}

    def take(fields: Fields) -> None:
        label_id, others = _replacement_of(fields)
        found.setdefault(label_id, []).extend(others)

    take_csv_rows(path, _COLUMNS, take, "don't say what replaces a label")
    return {label_id: tuple(dict.fromkeys(others)) for label_id, others in found.items()}


def _replacement_of(fields: Fields) -> tuple[str, list[str]]:
    # Return the id of a label and those of the labels that replace it.
    label_id = id_of(fields, ID)
    cell = string_of(fields, REPLACED_BY)
    others = [each for each in map(str.strip, map(str, labels_of_cell(cell))) if each]
    if not label_id or not others:
        raise DataError(f"no {REPLACED_BY if label_id else ID!r}; give both")
    if label_id in others:
        raise DataError(f"label {label_id!r} is to replace itself; name another one")
    return label_id, others
