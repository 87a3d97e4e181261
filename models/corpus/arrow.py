"""Parquet files and the Arrow files of Hugging Face `datasets`, by pyarrow, an extra."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from longtail.models.corpus.forms import DocumentSource, Format, TableRows, named
from longtail.models.errors import DataError
from longtail.models.extras import require
from longtail.models.files.rows import Row

_BATCH = 1024  # rows that are held as Python values
_HUGGING_FACE = b"huggingface"
_CLASS_LABEL = "ClassLabel"


def _table(source: DocumentSource) -> TableRows:
    with reading(source.paths[0]) as file:
        names = list(_schema(file).names)
    return TableRows(partial(_rows, source.paths), names)


def _rows(paths: Sequence[Path], columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of files one after another, numbered from 1 over all of them.

    Numbers of a class, as `datasets` stores labels, become the names that its schema gives them.
    """
    number = 0
    for path in paths:
        with reading(path) as source:
            schema = _schema(source)
            if missing := [name for name in columns if name not in schema.names]:
                raise DataError(f"{path}: no column {missing[0]!r}, which other files have")
            classes = class_names(schema.metadata or {})
            for batch in _batches(source, columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, _named(path, number, row, classes)


def class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Return the names of the classes of each column that holds numbers of classes.

    Args:
        metadata: The schema's metadata; `datasets` writes a JSON object with its features there.
    """
    try:
        features = json.loads(metadata.get(_HUGGING_FACE, b"{}"))["info"]["features"]
        columns = dict(features)
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    found = {name: _names_of(feature) for name, feature in columns.items()}
    return {name: names for name, names in found.items() if names}


def _names_of(feature: object) -> list[str]:
    # A class, or a list of them, written as [feature], {"feature": feature} or with "_type".
    while isinstance(feature, list) and len(feature) == 1:
        feature = feature[0]
    if not isinstance(feature, dict):
        return []
    if feature.get("_type") == _CLASS_LABEL and isinstance(feature.get("names"), list):
        return [str(name) for name in feature["names"]]
    return _names_of(feature.get("feature"))


def _named(
    path: Path, number: int, row: dict[str, Any], classes: Mapping[str, list[str]]
) -> dict[str, Any]:
    for column, names in classes.items():
        if column not in row or row[column] is None:
            continue
        value = row[column]
        numbers = value if isinstance(value, list) else [value]
        if any(type(each) is not int or not 0 <= each < len(names) for each in numbers):
            raise DataError(
                f"{path}, row {number}: {column} is {value!r}; expected numbers of classes, from 0 "
                f"to {len(names) - 1}"
            )
        row[column] = [names[each] for each in numbers]
    return row


def _schema(source: Any) -> Any:
    return source.schema_arrow if hasattr(source, "schema_arrow") else source.schema


def _batches(source: Any, columns: Sequence[str]) -> Iterator[Any]:
    if hasattr(source, "iter_batches"):  # Parquet
        yield from source.iter_batches(batch_size=_BATCH, columns=list(columns))
        return
    for batch in source:
        batch.validate(full=True)  # offsets of a broken file would be read beyond its end
        for start in range(0, batch.num_rows, _BATCH):
            yield batch.slice(start, _BATCH).select(list(columns))


@contextmanager
def reading(path: Path) -> Iterator[Any]:
    """Yield pyarrow's reader of a Parquet file, or of a stream of Arrow batches."""
    require("parquet", f"{path}: reading Parquet and Arrow files", DataError)
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as file:
            yield _reader(path, file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: can't be read to its end ({error}); is it whole?") from error


def _reader(path: Path, file: Any) -> Any:
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.ParquetFile(file)
    from pyarrow import ipc

    return ipc.open_stream(file)


def check_all_shards(paths: Sequence[Path]) -> None:
    """Refuse shards of which some are missing: their number stands in their names."""
    if not paths:
        return
    expected = int(paths[0].stem.rpartition("-of-")[2])
    if len(paths) != expected:
        raise DataError(
            f"{paths[0].parent}: {len(paths)} of {expected} shards of {paths[0].name!r}; expected "
            "all of one set"
        )


def _arrow_files(folder: Path) -> list[Path]:
    # What `save_to_disk` writes; caches of `datasets` lie beside it and are called otherwise.
    paths = sorted(folder.glob("data-[0-9]*-of-[0-9]*.arrow"))
    check_all_shards(paths)
    return paths or sorted(folder.glob("dataset.arrow"))


PARQUET = Format(
    "Parquet", named(".parquet"), shard_folders=("", "data"), suffixes=(".parquet",),
    is_text=False, table=_table,
)  # fmt: skip
ARROW = Format(
    "Hugging Face datasets", folder_files=_arrow_files, suffixes=(".arrow",), is_text=False,
    table=_table,
)  # fmt: skip
