"""A Parquet file in, a Parquet file with labels out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from longtail.models.corpus.arrow import reading
from longtail.models.interface.arrow import ArrowPredictor
from longtail.service.offline.predict import replacing
from longtail.service.wire.lines import Tally

BATCH_ROWS = 8192
"""Rows that are answered together, and become a row group."""
MAX_BATCH_BYTES = 2**26
"""Largest batch in memory, however few bytes of the file it is; a row alone may have more."""


def predict_parquet(source: Path, target: Path, predictor: ArrowPredictor) -> Tally:
    """Answer the rows of a Parquet file, and return the counts of rows and answers."""
    from pyarrow import parquet

    with reading(source) as part:
        given, num_rows = part.schema_arrow, part.metadata.num_rows
    schema = predictor.schema(given, f"{source}: ")
    tally = Tally()
    with (
        replacing(target) as incoming,
        parquet.ParquetWriter(incoming, schema) as out,
        tqdm(total=num_rows, desc="predict", unit=" rows") as bar,
    ):
        for batch in predictor(_bounded_batches(source, given)):
            out.write_batch(batch)
            for row in batch.select(["error", "remarks"]).to_pylist():
                if row["error"]:
                    tally.note_error(tally.num_lines, row["error"])
                else:
                    truncated = "truncated" in row["remarks"]
                    tally.note_result(predictor.version or 0, truncated=truncated)
                tally.num_lines += 1
            bar.update(batch.num_rows)
    return tally


def _bounded_batches(source: Path, schema: Any) -> Iterator[Any]:
    """Yield batches of at most `BATCH_ROWS` rows and `MAX_BATCH_BYTES`, or of one row.

    Texts are read as dictionaries: 600 bytes of a file can stand for gigabytes of equal texts.
    """
    from pyarrow import compute, parquet, types

    repeated = [x.name for x in schema if str(x.type) in {"string", "large_string", "binary"}]
    with reading(source), parquet.ParquetFile(source, read_dictionary=repeated) as part:
        groups = map(part.metadata.row_group, range(part.num_row_groups))
        row_bytes = max((x.total_byte_size / max(x.num_rows, 1) for x in groups), default=0)
        num_rows = min(BATCH_ROWS, max(1, int(MAX_BATCH_BYTES / max(row_bytes, 1))))
        for batch in part.iter_batches(num_rows):
            sizes = np.zeros(batch.num_rows)
            for column in filter(lambda x: types.is_dictionary(x.type), batch.columns):
                lengths = compute.binary_length(column.dictionary.cast("large_binary"))
                sizes += lengths.take(column.indices).fill_null(0).to_numpy()
            ends = np.flatnonzero(np.diff(np.cumsum(sizes) // MAX_BATCH_BYTES)) + 1
            for start, end in pairwise([0, *ends.tolist(), batch.num_rows]):
                yield batch.slice(start, end - start).cast(schema)
