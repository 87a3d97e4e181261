"""Makes the demo data: a seeded random slice of EURLEX57K, in the form that the source has.

    python tests/bench/demo_slice.py --source <eurlex57k folder> --out training/demo_data

Documents are drawn at random, each part from the same part of the source and untouched; labels are
those that the slice's documents carry. The same seed and source give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from longtail.models.errors import DataError

logger = logging.getLogger(__name__)

PART_SIZES: Mapping[str, int] = {"trn": 3000, "dev": 400, "tst": 700}
"""Documents drawn from each part of the source."""

SEED = 57

LABEL_FILE = "lbl.json.gz"

_Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SliceCounts:
    """What a slice holds."""

    num_documents: Mapping[str, int]
    num_labels: int
    num_trained: int
    num_tail: int
    num_zero_shot: int
    num_zero_shot_uses: int
    size_bytes: int


def make_slice(
    source: Path, out: Path, *, sizes: Mapping[str, int] = PART_SIZES, seed: int = SEED
) -> SliceCounts:
    """Write a random slice of a corpus into `out` and return what it holds."""
    rng = np.random.default_rng(seed)
    parts = {part: _draw(source / f"{part}.json.gz", size, rng) for part, size in sizes.items()}
    source_labels = list(_read(source / LABEL_FILE))
    uses = {part: _count_labels(documents) for part, documents in parts.items()}
    labels, new_index = _slice_labels(source_labels, uses)

    out.mkdir(parents=True, exist_ok=True)
    for part, documents in parts.items():
        _write(out / f"{part}.json.gz", (_reindexed(x, new_index) for x in documents))
    _write(out / LABEL_FILE, labels)

    names = [f"{part}.json.gz" for part in parts] + [LABEL_FILE]
    counts = [label["ntrn"] for label in labels]
    used = Counter[int]()
    for part in uses:
        used.update(uses[part])
    return SliceCounts(
        num_documents={part: len(documents) for part, documents in parts.items()},
        num_labels=len(labels),
        num_trained=sum(count > 0 for count in counts),
        num_tail=sum(1 <= count <= 9 for count in counts),
        num_zero_shot=counts.count(0),
        num_zero_shot_uses=sum(n for index, n in used.items() if uses["trn"][index] == 0),
        size_bytes=sum((out / name).stat().st_size for name in names),
    )


def _draw(path: Path, size: int, rng: np.random.Generator) -> list[_Record]:
    # Two passes, so that only the drawn documents are ever held.
    num_documents = sum(1 for _ in _lines(path))
    if num_documents < size:
        raise DataError(
            f"{path}: has {num_documents} documents, the slice wants {size}; "
            "give the full corpus as the source"
        )
    drawn = set(rng.choice(num_documents, size, replace=False).tolist())
    return [json.loads(line) for row, line in enumerate(_lines(path)) if row in drawn]


def _read(path: Path) -> Iterator[_Record]:
    return (json.loads(line) for line in _lines(path))


def _lines(path: Path) -> Iterator[str]:
    if not path.is_file():
        raise DataError(f"{path}: no such file; give the folder of EURLEX57K as the source")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from lines


def _count_labels(documents: Iterable[_Record]) -> Counter[int]:
    return Counter(index for document in documents for index in document["target_ind"])


def _slice_labels(
    source_labels: Sequence[_Record], uses: Mapping[str, Counter[int]]
) -> tuple[list[_Record], dict[int, int]]:
    """Return the labels that are used, with `ntrn` recounted, and their new index by the old."""
    used = set().union(*uses.values())
    # Labels with training documents first, as in the source; else in the order of the source.
    order = sorted(used, key=lambda index: (uses["trn"][index] == 0, index))
    labels = [{**source_labels[index], "ntrn": uses["trn"][index]} for index in order]
    return labels, {old: new for new, old in enumerate(order)}


def _reindexed(document: _Record, new_index: Mapping[int, int]) -> _Record:
    return {**document, "target_ind": sorted(new_index[old] for old in document["target_ind"])}


def _write(path: Path, records: Iterable[_Record]) -> None:
    # No file name and no time in the header: the same records give the same bytes.
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as packed,
    ):
        for record in records:
            packed.write((json.dumps(record, ensure_ascii=False) + "\n").encode())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: make the slice and log what it holds."""
    parser = argparse.ArgumentParser(prog="python tests/bench/demo_slice.py", description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="folder of EURLEX57K")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the slice to")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the draws")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logger.info("%s: %s", options.out, make_slice(options.source, options.out, seed=options.seed))


if __name__ == "__main__":
    main()
