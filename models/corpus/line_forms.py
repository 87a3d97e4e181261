"""Text files of documents a line or a row: JSON lines, CSV, TSV, the repository's, plain text."""

from __future__ import annotations

from itertools import islice

from longtail.models.corpus.annif import is_short_text, short_text_rows
from longtail.models.corpus.columns import ID_NAMES, LABEL_NAMES, TEXT_NAMES, UID
from longtail.models.corpus.forms import DocumentSource, Format, TableRows, named
from longtail.models.errors import DataError
from longtail.models.files.rows import CsvTable, Fields, json_rows
from longtail.models.files.text_files import BadLine

PEEKED = 100
"""Lines from which columns, and the form of labels, are told."""


def table_of(source: DocumentSource) -> CsvTable:
    """Return the rows of a CSV or TSV file; where labels are not read, quotes may be left open."""
    options, reads_labels = source.options, source.reads_labels
    labels = LABEL_NAMES if options.label_column is None else (options.label_column,)
    texts: list[tuple[str, ...]] = [(name,) for name in options.text_columns] or [TEXT_NAMES]
    others = [(name,) for name in (options.id_column, options.group_column) if name]
    needed = [*([labels] if reads_labels else []), *texts, *others]
    optional = () if options.id_column else (*ID_NAMES, *([] if reads_labels else [UID]))
    try:
        return CsvTable(source.paths[0], needed, optional, source.progress, strict=reads_labels)
    except DataError as error:
        given = {
            "--text-columns": options.text_columns,
            "--label-column": options.label_column or not reads_labels,
        }
        missing = " and ".join(option for option, is_given in given.items() if not is_given)
        more = f"; name others with {missing}" if missing and "expected" in str(error) else ""
        raise DataError(f"{error}{more}") from error


def _csv(source: DocumentSource) -> TableRows:
    table = table_of(source)
    return TableRows(lambda _: table.rows(), table.header.names, table.header.remarks())


def _tsv(source: DocumentSource) -> TableRows:
    if is_short_text(source):
        remark = "read as Annif's short texts: a text, a tab, its labels; without a header"
        return TableRows(lambda _: short_text_rows(source), None, [remark])
    table = table_of(source)
    remarks = [remark for remark in table.header.remarks() if "tabs" not in remark]
    return TableRows(lambda _: table.rows(), table.header.names, remarks)


def _json_lines(source: DocumentSource) -> TableRows:
    path = source.paths[0]
    rows = islice(json_rows(path), PEEKED)
    names = dict.fromkeys(x for _, row in rows if not isinstance(row, BadLine) for x in row)
    return TableRows(lambda _: json_rows(path), [*names])


def _plain(line: bytes) -> Fields:
    # What is not UTF-8 becomes halves of surrogate pairs, which its answer refuses.
    return {"text": line.removesuffix(b"\r").decode(errors="surrogateescape")}


EXTREME_CLASSIFICATION = Format(
    "Extreme Classification Repository",
    {"train": ("trn.json",), "dev": ("dev.json",), "test": ("tst.json",)},
    label_files=("lbl.json",), is_indexed=True, rows=lambda paths: json_rows(*paths),
)  # fmt: skip
JSON_LINES = Format(
    "JSON lines", named(".jsonl"), suffixes=(".jsonl", ".json", ".ndjson"), has_own_fields=True,
    table=_json_lines, line=lambda line: line if line.strip() else b"",
)  # fmt: skip
CSV = Format("CSV", named(".csv"), suffixes=(".csv",), is_csv=True, table=_csv)
TSV = Format("TSV", named(".tsv"), suffixes=(".tsv",), is_csv=True, table=_tsv)
PLAIN_TEXT = Format("Plain text", suffixes=(".txt",), line=_plain)
"""A text a line, without labels: no corpus."""
