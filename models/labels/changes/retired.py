"""What stands for labels that changes of the vocabulary took out of use."""

from __future__ import annotations

from longtail.models.labels.catalogue import LabelCatalogue


def row_in_use(catalogue: LabelCatalogue, label_id: str) -> int | None:
    """Return the row of a label, or of the one that replaces it; None where there is none."""
    row, seen = catalogue.row_of_id(label_id), set[str]()
    while row is not None and catalogue[row].is_retired:
        label = catalogue[row]
        if len(label.replaced_by) != 1 or label.id in seen:
            return None
        seen.add(label.id)
        row = catalogue.row_of_id(label.replaced_by[0])
    return row
