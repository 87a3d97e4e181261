"""Following a large vocabulary: seconds to compare it with a model, and to write the new version.

    python tests/bench/vocabulary_changes.py --labels 1000000 --json FILE

The model has made-up labels, a hundredth of them with weights, and no encoder and no names. The new
vocabulary is JSON lines: of 1,000 labels each, one is renamed, merged, deprecated, gone and moved,
and as many are new. Every step is timed as a command would do it, reading and verifying included.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from machine import begin
from recording import Table, add_json_option, keep
from scipy.sparse import random_array

from longtail.ext.editions.applying import apply_changes
from longtail.ext.editions.states import compare_states, read_state, state_of
from longtail.models.bundle.manifest import Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.kinds.storage import write_parts
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.writing import jsonl_lines
from longtail.models.parts.model_parts import ModelParts
from longtail.models.scorers.sparse import SparseModel
from longtail.models.scorers.tfidf import TfidfModel

NUM_FEATURES = 50_000
WEIGHTS_A_LABEL = 50
ONE_OF = 1000
WORDS = ("river", "law", "fish", "copyright", "glass", "port")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=1_000_000)
    add_json_option(parser)
    options = begin(parser)
    load = os.getloadavg()[0]
    table = Table({"step": "", "seconds": ".1f", "seconds of the processor": ".1f"})
    with tempfile.TemporaryDirectory() as folder:
        registry, new = made_up(Path(folder), options.labels)
        with timed(table, "open the model"):
            bundle = registry.open(1)
        with timed(table, "read the vocabulary"):
            state = read_state(new, None, "NEW")
        with timed(table, "compare"):
            changes = compare_states(state_of(bundle), state)
        with timed(table, "apply"):
            write, applied = apply_changes(bundle, changes)
        with timed(table, "write and publish"):
            registry.publish(write, activate=False)
    totals = [sum(row[column] for row in table.rows) for column in (1, 2)]  # type: ignore[misc, arg-type]
    table.add("all", *totals)
    table.add("load of the machine before", load, None)
    check(applied.num_retired, applied.num_new, len(applied.merged), options.labels // ONE_OF)
    keep(options.json, {"changes": table, "labels": options.labels}, seeds=[0])


def check(num_retired: int, num_new: int, num_merged: int, each: int) -> None:
    """Fail where not all changes were made."""
    assert (num_retired, num_new, num_merged) == (3 * each, each, each)


@contextmanager
def timed(table: Table, step: str) -> Iterator[None]:
    """Add the seconds that a step takes."""
    wall, processor = time.perf_counter(), time.process_time()
    yield
    table.add(step, time.perf_counter() - wall, time.process_time() - processor)


def made_up(folder: Path, number: int) -> tuple[Registry, Path]:
    """Write a model and the vocabulary that it is to follow."""
    labels = [label_of(index, number) for index in range(number)]
    registry = Registry(folder / "registry")
    registry.publish(lambda to: write_parts(to, *model_of(labels), folder / "scratch"))
    path = folder / "new.jsonl"
    plain = (replace(label, training_count=0) for label in labels)
    path.write_text("\n".join(jsonl_lines(after(list(plain)))), encoding="utf-8")
    return registry, path


def label_of(index: int, number: int) -> Label:
    words = f"{WORDS[index % 6]} {WORDS[index // 7 % 6]} {index}"
    has_documents = index < number // 100
    return Label(
        f"http://example.org/concept/{index}",
        words,
        training_count=3 if has_documents else 0,
        names={"en": words},
        broader=(f"http://example.org/concept/{index // 8}",) if index else (),
    )


def model_of(labels: list[Label]) -> tuple[ModelParts, Manifest]:
    """Return a sparse model in which a hundredth of the labels has weights."""
    covered = np.arange(len(labels) // 100, dtype=np.int64)
    shape = (len(covered), NUM_FEATURES)
    weights = random_array(
        shape,
        density=WEIGHTS_A_LABEL / NUM_FEATURES,
        format="csr",
        dtype=np.float32,
        rng=np.random.default_rng(0),
    )
    tfidf = TfidfModel(
        [f"w{index:05}" for index in range(NUM_FEATURES)], np.ones(NUM_FEATURES, np.float32)
    )
    sparse = SparseModel.of_rows(tfidf, weights, np.zeros(len(covered), np.float32), covered)
    manifest = Manifest(
        label_count=len(labels),
        training_document_count=1,
        encoder=None,
        scorers=("sparse",),
        default_scorer="sparse",
        training={},
        data_fingerprint="",
        metrics={},
    )
    return ModelParts(LabelCatalogue(labels), sparse, dense=None), manifest


def after(labels: list[Label]) -> Iterator[Label]:
    """Yield the labels of the new vocabulary."""
    for index, label in enumerate(labels):
        match index % ONE_OF:
            case 100:
                yield replace(label, name=f"{label.name} (renamed)")
            case 200:
                yield replace(label, is_deprecated=True, replaced_by=(labels[index + 1].id,))
            case 300:
                yield replace(label, is_deprecated=True)
            case 400:
                yield Label(f"http://example.org/new/{index}", f"new {index}")
            case 500:
                yield replace(label, broader=(labels[index - 1].id,))
            case _:
                yield label


if __name__ == "__main__":
    main()
