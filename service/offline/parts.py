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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias
from uuid import uuid4

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from tqdm import tqdm

from longtail.models.bundle.bundle import file_info
from longtail.models.errors import ConfigError, DataError
from longtail.models.interface.arrow import ArrowPredictor
from longtail.models.ray_runtime import start_ray
from longtail.models.sharing.places import reaching
from longtail.service.offline.unfinished import differences
from longtail.service.wire.tally import Tally

MANIFEST = "_manifest.jsonl"
RECORDS = "_parts/"
BATCH_ROWS = 8192
"""Rows that are answered together, and become a row group."""

Record: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[["Parts", Sequence[str]], Iterable[Record]]
"""Answers the parts of these names, and yields their records in any order."""


def is_parquet(address: str) -> bool:
    """Whether an address is that of Parquet files by its name, which may be a pattern."""
    return address.lower().endswith(".parquet")


@dataclass  # neither frozen nor with slots: Ray makes workers of it
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

    def names(self) -> list[str]:
        """Return the names of the parts, below the last folder that is no pattern.

        Raises:
            DataError: There are none, or some lie in the folder of the answers.
            BundleError: They can't be listed.
        """
        (files, root, pattern), (there, folder) = self._source(), self._target()
        with reaching(self.source):
            paths = sorted(path for path in files.glob(pattern) if files.isfile(path))
        if not paths:
            raise DataError(f"--input {self.source!r}: there is no such file; check the address")
        within = [x for x in paths if x.startswith(folder) and type(there) is type(files)]
        if within:
            raise DataError(
                f"--output {self.target!r}: has {within[0]!r} of --input; choose another"
            )
        return [path.removeprefix(root) for path in paths]

    def _kept(self, names: Set[str], *, overwrite: bool) -> dict[str, Record]:
        """Return the records of the parts that are done."""
        files, root = self._target()
        with reaching(self.target):
            found = files.find(root, detail=True)
            sizes = {path.removeprefix(root): info["size"] for path, info in found.items()}
            noted = {name for name in sizes if name.startswith((MANIFEST, RECORDS))}
            records = self._records(noted)
        done = {}
        for name in sorted(sizes.keys() - noted):
            problem = self._problem(name, records.get(name), names)
            if problem and not (overwrite and name in names):
                raise ConfigError(f"--output {self.target!r}: {name!r} {problem}")
            if not problem and records[name]["output"]["size_bytes"] == sizes[name]:
                done[name] = records[name]
        return done

    def answer(self, name: str) -> Record:
        """Answer one part, and return its record.

        Raises:
            DataError: A column is missing, or is not as it should be.
            LongtailError: The part can't be read, answered or written.
        """
        where = f"{self.source}: part {name!r}"
        with reaching(where), TemporaryDirectory() as folder:
            files, root, _ = self._source()
            key, target, source = files.ukey(root + name), Path(folder, "out"), Path(root + name)
            if not isinstance(files, LocalFileSystem):
                source = Path(folder, "in")
                files.get_file(root + name, str(source))
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

    def _finish(self, records: Iterable[Record]) -> None:
        """Write the manifest, which replaces the records of the parts."""
        files, root = self._target()
        with reaching(self.target):
            files.pipe_file(root + MANIFEST, b"".join(map(_line, records)))
            if files.exists(root + RECORDS):
                files.rm(root + RECORDS, recursive=True)

    def _write(self, source: Path, target: Path) -> Record:
        """Write the answers to a part; return how many rows there are, and how many failed."""
        from pyarrow import parquet

        counts: Record = {"rows": 0, "errors": 0, "truncated": 0, "first_error": None}
        with parquet.ParquetFile(source) as part:
            schema = self.predictor.schema(part.schema_arrow)
            with parquet.ParquetWriter(target, schema) as out:
                for batch in self.predictor(part.iter_batches(BATCH_ROWS)):
                    out.write_batch(batch)
                    _count(counts, batch)
        return counts

    def _publish(self, name: str, written: Path, record: Record) -> None:
        """Put an answered part under its name, whole; its record comes first."""
        files, root = self._target()
        noted, incoming = (f"{root}{RECORDS}{name}.{end}" for end in ("json", uuid4().hex))
        for path in (root + name, noted):
            files.makedirs(path.rpartition("/")[0], exist_ok=True)
        files.put_file(str(written), incoming)
        if files.exists(root + name):  # else it could be taken for what the record says
            files.rm_file(root + name)
        files.pipe_file(noted, _line(record))
        files.mv(incoming, root + name)

    def _records(self, noted: Set[str]) -> dict[str, Record]:
        """Return the records of files of records, by part."""
        files, root = self._target()
        paths = [root + name for name in noted if name.endswith((MANIFEST, ".json"))]
        contents = files.cat(paths) if paths else {}
        found = {}
        for path in sorted(contents):  # the manifest comes first: the others are newer
            for line in contents[path].splitlines():
                with suppress(ValueError, KeyError, TypeError):  # cut off, or not ours
                    record = json.loads(line)
                    _ = record["input"]["key"], record["output"]["size_bytes"], record["rows"]
                    found[record["part"]] = record
        return found

    def _problem(self, name: str, record: Record | None, names: Set[str]) -> str:
        """Return why a file of the target is not the answer to a part; empty where it may be."""
        if name not in names:
            return "is not the answer to a part of --input; choose an empty folder"
        if record is None:
            return "is there already; replace it with --overwrite, or choose another folder"
        files, root, _ = self._source()
        differing = differences(record, self.asked)
        if not differing and files.ukey(root + name) != record["input"]["key"]:
            differing = "its input has changed since"
        advice = "give the same command, replace them with --overwrite, or choose another folder"
        return differing and f"has the answers of another run ({differing}); {advice}"

    def _source(self) -> tuple[Any, str, str]:
        """Return the file system, the folder of all parts with "/", and the path or pattern."""
        files, path = url_to_fs(self.source)
        fixed = re.split(r"[*?\[]", path)[0]
        return files, fixed[: fixed.rfind("/") + 1], path

    def _target(self) -> tuple[Any, str]:
        """Return the file system, and the folder with "/"."""
        files, path = url_to_fs(self.target)
        return files, path.rstrip("/") + "/"


def predict_parts(parts: Parts, answer: Answer, *, overwrite: bool = False) -> Tally:
    """Answer the parts that have no answers; return what became of all rows of all runs.

    Args:
        parts: What to do.
        answer: Answers parts, in this process or in others.
        overwrite: Whether answers that are there already may be replaced.

    Raises:
        ConfigError: The target holds other files, or answers to another question.
        LongtailError: What `Parts.answer` raises.
    """
    names = parts.names()
    records = parts._kept({*names}, overwrite=overwrite)
    left = [name for name in names if name not in records]
    answers = answer(parts, left) if left else ()
    for record in tqdm(answers, "predict", len(names), initial=len(records), unit=" parts"):
        records[record["part"]] = record
    done = [records[name] for name in names]
    parts._finish(done)
    return _tally_of(done)


def answer_here(parts: Parts, names: Sequence[str]) -> Iterable[Record]:
    """Answer parts one after another."""
    return map(parts.answer, names)


def answer_on_ray(
    num_workers: int, num_threads: int, device: str, parts: Parts, names: Sequence[str]
) -> Iterator[Record]:
    """Answer parts by workers of a Ray cluster, which repeat their part if they die.

    Args:
        num_workers: Processes with a model each.
        num_threads: Of each.
        device: "cpu", or "cuda" for a GPU a worker.
        parts: What to answer.
        names: Of the parts.

    Yields:
        The records.
    """
    ray = start_ray("--engine ray", num_workers * num_threads)
    options = {"num_cpus": num_threads, "num_gpus": int(device == "cuda")}
    worker = ray.remote(**options, max_restarts=-1, max_task_retries=-1)(Parts)
    pool = ray.util.ActorPool([worker.remote(**vars(parts)) for _ in names[:num_workers]])
    yield from pool.map_unordered(lambda each, name: each.answer.remote(name), names)


def _count(counts: Record, batch: Any) -> None:
    errors, remarks = (batch.column(name).to_pylist() for name in ("error", "remarks"))
    failed = [(row, error) for row, error in enumerate(errors, counts["rows"]) if error]
    if failed and not counts["errors"]:
        counts["first_error"] = "row {}: {}".format(*failed[0])
    counts["errors"] += len(failed)
    counts["rows"] += len(errors)
    counts["truncated"] += sum("truncated" in each for each in remarks if each)


def _tally_of(records: Sequence[Record]) -> Tally:
    rows, errors, cut = (sum(x[name] for x in records) for name in ("rows", "errors", "truncated"))
    reasons = (f"part {x['part']!r}, {x['first_error']}" for x in records if x["errors"])
    return Tally(rows, errors, cut, Counter({0: rows - errors}), next(reasons, ""))


def _line(record: Record) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"
