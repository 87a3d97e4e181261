"""Parquet files in, Parquet files with labels out, wherever fsspec reaches: one part at a time.

A part is written in the folder `_parts` and moved when it is whole. Before that its record is
written: `_parts/NAME.json` says what was asked, with sizes and digests of input and output. So a
run that was cut off repeats only the part that it was at. In the end all records become one file,
`_manifest.jsonl`, and the folder goes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import file_digest
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypeAlias
from uuid import uuid4

import numpy as np
from fsspec.core import url_to_fs
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from pydantic import Field, create_model
from tqdm import tqdm

from longtail.models.bundle.bundle import file_info
from longtail.models.corpus.columns import CorpusOptions, as_trained, find_columns
from longtail.models.errors import ConfigError, DataError
from longtail.models.extras import require
from longtail.models.files.outputs import check_output_file
from longtail.models.interface.arrow import ArrowPredictor
from longtail.models.sharing.places import reaching
from longtail.service.offline.tables import differences
from longtail.service.wire.lines import Tally

MANIFEST = "_manifest.jsonl"
RECORDS = "_parts"
BATCH_ROWS = 8192
"""Rows that are answered together, and become a row group."""
MAX_BATCH_BYTES = 2**26
"""Largest batch in memory, however few bytes of a file it is; a row alone may have more."""
_Count: TypeAlias = Annotated[int, Field(ge=0, le=2**53)]


_File = create_model("_File", sha256=str, size_bytes=_Count, key=(Any, None))
_Record = create_model(
    "_Record", part=str, rows=_Count, errors=_Count, truncated=_Count, first_error=str,
    input=_File, output=_File, defaults=dict[str, Any],
)  # fmt: skip
Record: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[["Parts", Sequence[str]], Iterable[Record]]
"""Answers parts by their names, and yields their records in any order."""


@dataclass  # neither frozen nor with slots: engines make workers of it
class Parts:
    """Parquet files that are to be answered.

    Attributes:
        source: A path or URI that ends in ".parquet"; *, ** and ? stand for any characters.
        target: Folder of the answers, or its URI; a part has the same name there, and lies in the
            same folder below.
        predictor: Adds the labels.
        asked: What must be the same of all answers: the model's `digest`, `defaults`, `label_sets`.
    """

    source: str
    target: str
    predictor: ArrowPredictor
    asked: Mapping[str, Any]

    def __post_init__(self) -> None:
        with reaching(self.source):
            self._files, self._pattern = url_to_fs(self.source)
        fixed = re.split(r"[*?\[]", self._pattern)[0]
        self._root = fixed[: fixed.rfind("/") + 1]
        with reaching(self.target):
            files, path = url_to_fs(self.target)
            self._folder = DirFileSystem(path.rstrip("/"), files)

    def predict(self, answer: Answer | None = None, *, overwrite: bool = False) -> Tally:
        """Answer the parts that have no answers; return what became of all rows of all runs.

        Args:
            answer: Answers parts in other processes; None: in this one.
            overwrite: Whether answers that are there already may be replaced.
        """
        names = self._names()
        with reaching(self.target):
            records = self._kept({*names}, overwrite=overwrite)
        left = [name for name in names if name not in records]
        answers = answer(self, left) if answer and left else map(self.answer, left)
        for record in tqdm(answers, "predict", len(names), initial=len(records), unit=" parts"):
            records[record["part"]] = record
        with reaching(self.target):
            self._folder.pipe_file(MANIFEST, b"".join(_line(records[name]) for name in names))
            if self._folder.exists(RECORDS):
                self._folder.rm(RECORDS, recursive=True)
        return _tally_of([records[name] for name in names])

    def move_to(self, target: str) -> None:
        """Give the answers to the only part this address, and let the folder go."""
        (name,) = self._names()
        with reaching(target):
            files, folder = self._folder.fs, self._folder.path
            files.mv(f"{folder}/{name}", url_to_fs(target)[1])
            files.rm(folder, recursive=True)

    def answer(self, name: str) -> Record:
        """Answer one part, and return its record."""
        where = f"{self.source}: part {name!r}"
        with reaching(where), TemporaryDirectory() as folder:
            path, source, target = self._root + name, Path(folder, "in"), Path(folder, "out")
            key = self._files.ukey(path)
            if isinstance(self._files, LocalFileSystem):
                source = Path(path)
            else:
                self._files.get_file(path, str(source))
            try:
                counts = self._write(source, target)
            except DataError as error:
                raise DataError(f"{where}: {error}") from error
            record = {
                "part": name,
                **counts,
                "input": {"key": key, **asdict(file_info(source))},
                "output": asdict(file_info(target)),
                "version": self.predictor.version,
                **self.asked,
            }
            self._publish(name, target, record)
        return record

    def _names(self) -> list[str]:
        with reaching(self.source):
            paths = sorted(filter(self._files.isfile, self._files.glob(self._pattern)))
        if not paths:
            raise DataError(f"--input {self.source!r}: there is no such file; check the address")
        within = [path for path in paths if path.startswith(f"{self._folder.path}/")]
        if within and type(self._folder.fs) is type(self._files):
            raise DataError(f"--output {self.target!r}: has {within[0]!r} of --input; name another")
        names = [path.removeprefix(self._root) for path in paths]
        if own := [name for name in names if name.startswith((MANIFEST, f"{RECORDS}/"))]:
            raise DataError(
                f"--input {self.source!r}: part {own[0]!r} has a name of our records, {RECORDS!r} "
                f"or {MANIFEST!r}; rename it"
            )
        return names

    def _kept(self, names: Set[str], *, overwrite: bool) -> dict[str, Record]:
        present = self._folder.find("")
        ours = sorted(name for name in present if name.startswith((MANIFEST, f"{RECORDS}/")))
        noted = [name for name in ours if name.endswith((MANIFEST, ".json"))]
        contents = self._folder.cat(noted) if noted else {}
        records, done = dict[str, Record](), dict[str, Record]()
        for line in b"\n".join(contents[name] for name in noted).splitlines():  # the oldest first
            with suppress(ValueError):  # cut off, or not ours
                _Record.model_validate_json(line, strict=True)
                record = json.loads(line)
                records[record["part"]] = record
        for name in sorted({*present} - {*ours}):
            problem = self._problem(name, records.get(name), names)
            if problem and not (overwrite and name in names):
                raise ConfigError(f"--output {self.target!r}: {name!r} {problem}")
            if not problem and records[name]["output"]["sha256"] == self._sha256(name):
                done[name] = records[name]
        return done

    def _sha256(self, name: str) -> str:
        with self._folder.open(name, "rb") as file:
            return file_digest(file, "sha256").hexdigest()

    def _problem(self, name: str, record: Record | None, names: Set[str]) -> str:
        """Return why a file of the target is not the answer to a part; empty where it may be."""
        if name not in names:
            return "is not the answer to a part of --input; choose an empty folder"
        if record is None:
            return "already exists; pass --overwrite to replace it, or choose another folder"
        differing = differences(record, self.asked)
        if not differing and self._files.ukey(self._root + name) != record["input"]["key"]:
            differing = "its input has changed since"
        advice = "give the same command, replace them with --overwrite, or choose another folder"
        return differing and f"has the answers of another run ({differing}); {advice}"

    def _write(self, source: Path, target: Path) -> Record:
        """Write the answers to a part; return how many rows there are, and how many failed."""
        from pyarrow import parquet

        tally = Tally()
        given = parquet.read_schema(source)
        schema = self.predictor.schema(given)
        repeated = [x.name for x in given if str(x.type) in {"string", "large_string", "binary"}]
        with (
            parquet.ParquetFile(source, read_dictionary=repeated) as part,
            parquet.ParquetWriter(target, schema) as out,
        ):
            for batch in self.predictor(_bounded_batches(part, given)):
                out.write_batch(batch)
                for row in batch.select(["error", "remarks"]).to_pylist():
                    if row["error"]:
                        tally.note_error(tally.num_lines, row["error"])
                    tally.num_truncated += "truncated" in (row["remarks"] or ())
                    tally.num_lines += 1
        counts = (tally.num_lines, tally.num_errors, tally.num_truncated, tally.first_error)
        return dict(zip(("rows", "errors", "truncated", "first_error"), counts, strict=True))

    def _publish(self, name: str, written: Path, record: Record) -> None:
        """Put an answered part under its name, whole; its record comes first."""
        noted, incoming = (f"{RECORDS}/{name}.{end}" for end in ("json", uuid4().hex))
        for path in (name, noted):
            self._folder.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._folder.put_file(str(written), incoming)
        if self._folder.exists(name):  # else it could be taken for what the record says
            self._folder.rm_file(name)
        self._folder.pipe_file(noted, _line(record))
        self._folder.mv(incoming, name)


def check_alone(source: str, target: str, registry: Path, *, overwrite: bool) -> None:
    """Raise ConfigError where one file must not become the answers to another."""
    if "://" not in target:
        check_output_file(
            Path(target), inputs=[Path(source)], registry=registry, overwrite=overwrite
        )
        return
    with reaching(target):
        files, path = url_to_fs(target)
        if source == target or (files.exists(path) and not overwrite):
            raise ConfigError(
                f"--output {target!r} already exists; pass --overwrite to replace it, or choose "
                "another file, which is not --input"
            )


def columns_in(source: str, options: CorpusOptions, trained: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the text of Parquet files, by those of the first; see `as_trained`."""
    require("parquet", f"--input {source!r}")
    from pyarrow import parquet

    with reaching(source):
        files, pattern = url_to_fs(source)
        paths = sorted(filter(files.isfile, files.glob(pattern)))
        if not paths:
            raise DataError(f"--input {source!r}: there is no such file; check the address")
        with files.open(paths[0]) as file:
            names = parquet.read_schema(file).names
    try:
        return find_columns(names, as_trained(names, options, trained), reads_labels=False).text
    except DataError as error:
        raise DataError(f"--input {source!r}: {error}") from error


def _bounded_batches(part: Any, schema: Any) -> Iterator[Any]:
    """Yield batches of at most `BATCH_ROWS` rows and `MAX_BATCH_BYTES`, or of one row.

    Args:
        part: A `pyarrow.parquet.ParquetFile` that reads texts as dictionaries: 600 bytes can stand
            for gigabytes of equal texts.
        schema: Of the batches.
    """
    from pyarrow import compute, types

    groups = map(part.metadata.row_group, range(part.num_row_groups))
    row_bytes = max((each.total_byte_size / max(each.num_rows, 1) for each in groups), default=0)
    num_rows = min(BATCH_ROWS, max(1, int(MAX_BATCH_BYTES / max(row_bytes, 1))))
    for batch in part.iter_batches(num_rows):
        sizes = np.zeros(batch.num_rows)
        for column in filter(lambda each: types.is_dictionary(each.type), batch.columns):
            lengths = compute.binary_length(column.dictionary.cast("large_binary"))
            sizes += lengths.take(column.indices).fill_null(0).to_numpy()
        ends = np.flatnonzero(np.diff(np.cumsum(sizes) // MAX_BATCH_BYTES)) + 1
        for start, end in pairwise([0, *ends.tolist(), batch.num_rows]):
            yield batch.slice(start, end - start).cast(schema)


def _tally_of(records: Sequence[Record]) -> Tally:
    rows, errors, cut = (sum(x[name] for x in records) for name in ("rows", "errors", "truncated"))
    reasons = (f"part {x['part']!r}, {x['first_error']}" for x in records if x["errors"])
    return Tally(rows, errors, cut, Counter({0: rows - errors}), next(reasons, ""))


def _line(record: Record) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"
