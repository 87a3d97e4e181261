"""What ways to compute the encoder gain and cost: speed and ranking against float32, in one run.

    python tests/bench/service_precision.py REGISTRY DATA [--texts 400] [--rounds 3]
        [--ways float32,bfloat16,onnx-int8,openvino-int8,compile]

DATA is a corpus with a dev split. All ways encode the same texts in turn, in the batches that a
service would make; speeds are those of their best rounds, and latency is the median of single
texts of about 32 tokens. Ranking: P@1, P@3 and P@5 on the dev split, and how many of the five best
labels are the same, and macro-F1@5 over labels with 1 to 9 training documents. `compile` is
`torch.compile` of the float32 encoder, for shapes of any size; `openvino-int8` is the graph of the
float32 encoder, quantised by NNCF on the first texts and run by OpenVINO (`pip install openvino
nncf`). Both are measured only. Seconds to load hold the export or compilation.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import begin
from recording import Table, add_json_option, keep
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from longtail.models.bundle.registry import Registry
from longtail.models.options import RankingOptions
from longtail.models.parts.batches import TextBatch
from longtail.models.predict.predictor import Predictor
from longtail.training.data.dataset import open_dataset

DEPTHS = (1, 3, 5)
OPENVINO = "openvino-int8"
NUM_CALIBRATION = 100
WAYS = ("float32", "bfloat16", "onnx-int8", "compile")
SHORT_CHARACTERS = 130


@dataclass
class Way:
    """A way to compute the encoder, and its best figures so far."""

    predictor: Predictor
    load_s: float
    documents_per_s: float = 0.0
    single_ms: float = float("inf")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--ways", default=",".join(WAYS))
    add_json_option(parser)
    chosen = begin(parser)

    dataset = open_dataset(chosen.data)
    documents = list(islice(dataset.split("dev"), chosen.texts))
    texts = [document.text for document in documents]
    truths = [{dataset.catalogue[i].id for i in document.labels} for document in documents]
    names = ["float32", *(name for name in chosen.ways.split(",") if name != "float32")]
    ways = {name: load(chosen.registry, name, chosen.threads, texts) for name in names}
    for _ in range(chosen.rounds):
        for way in ways.values():
            seconds = time_of(way.predictor, texts)
            way.documents_per_s = max(way.documents_per_s, len(texts) / seconds)
            singles = [time_of(way.predictor, [text[:SHORT_CHARACTERS]]) for text in texts[:50]]
            way.single_ms = min(way.single_ms, 1e3 * float(np.median(singles)))
    speeds, rankings = tables_of(ways, texts, truths)
    keep(chosen.json, {"speeds": speeds, "rankings": rankings})


def load(registry: Path, name: str, num_threads: int, texts: list[str]) -> Way:
    """Load the current model for a way, and let it answer once."""
    started = time.perf_counter()
    precision: Any = "float32" if name in ("compile", OPENVINO) else name
    bundle = Registry(registry).open()
    predictor = Predictor.of_bundle(bundle, num_threads=num_threads, precision=precision)
    if name == "compile":
        assert predictor.parts.dense is not None
        predictor.parts.dense.encoder.transformer.compile(dynamic=True)
    if name == OPENVINO:
        dense = predictor.parts.dense
        assert dense is not None
        batch = predictor.read(texts[:NUM_CALIBRATION])
        predictor.prepare(batch, "retrieval")
        graph = QuantisedGraph(bundle.encoder_folder, num_threads)
        recorded = RecordingTransformer(dense.encoder.transformer)
        dense.encoder.transformer = recorded
        predictor.encode(batch)
        graph.quantise(recorded.given)
        dense.encoder.transformer = graph
    time_of(predictor, texts[:50])
    time_of(predictor, texts[:1])
    return Way(predictor, time.perf_counter() - started)


class RecordingTransformer(nn.Module):
    """Keeps what a transformer is given."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self._inner = inner
        self.given: list[dict[str, np.ndarray]] = []

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        given = {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
        self.given.append(given)
        return self._inner(input_ids=input_ids, attention_mask=attention_mask)


class QuantisedGraph(nn.Module):
    """The transformer of an encoder by OpenVINO, in 8-bit integers."""

    def __init__(self, folder: Path, num_threads: int) -> None:
        super().__init__()
        self._folder, self._num_threads = folder, num_threads

    def quantise(self, given: list[dict[str, np.ndarray]]) -> None:
        """Fit the ranges of activations on what the transformer was given, and compile."""
        import nncf
        import openvino

        with tempfile.TemporaryDirectory() as scratch:
            exact = Path(scratch) / "exact.onnx"
            command = "import sys; from pathlib import Path; "
            command += "from longtail.ext.onnx.export import export; "
            command += "export(*map(Path, sys.argv[1:]))"
            subprocess.run(
                [sys.executable, "-c", command, str(self._folder), str(exact)], check=True
            )
            model = openvino.Core().read_model(exact)
        quantised = nncf.quantize(
            model, nncf.Dataset(given), model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(given),
        )  # fmt: skip
        settings = {"INFERENCE_NUM_THREADS": self._num_threads, "PERFORMANCE_HINT": "LATENCY"}
        self._run = openvino.Core().compile_model(quantised, "CPU", settings)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> BaseModelOutput:
        """Return the last layer."""
        found = self._run(
            {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
        )
        return BaseModelOutput(last_hidden_state=torch.from_numpy(found[0]))


def time_of(predictor: Predictor, texts: list[str]) -> float:
    """Return the seconds that the encoder takes for texts, without the tokeniser."""
    batch = predictor.read(texts)
    predictor.prepare(batch, "retrieval")
    started = time.perf_counter()
    predictor.encode(batch)
    return time.perf_counter() - started


def tables_of(
    ways: dict[str, Way], texts: list[str], truths: list[set[str]]
) -> tuple[Table, Table]:
    """Return speeds once a way, and ranking once a scorer and way."""
    speeds = Table({
        "way": "", "to load, s": ".1f", "documents/s": ".1f", "against float32": ".2f",
        "one short text, ms": ".1f",
    })  # fmt: skip
    base = ways["float32"]
    for name, way in ways.items():
        ratio = way.documents_per_s / base.documents_per_s
        speeds.add(name, way.load_s, way.documents_per_s, ratio, way.single_ms)
    depths = {f"P@{depth}": ".4f" for depth in DEPTHS}
    columns = {**depths, "macro-F1@5 (1-9)": ".4f", "same of 5 best": ".3f"}
    rankings = Table({"scorer": "", "way": "", **columns})
    counts = {label.id: label.training_count for label in base.predictor.catalogue}
    rare = [x for x in set().union(*truths) if 1 <= counts.get(x, 0) <= 9]
    batches = {name: way.predictor.read(texts) for name, way in ways.items()}  # encoded but once
    for scorer in filter(base.predictor.scorers.needs_encoder, base.predictor.scorers.names):
        tops = {name: top_ids(way.predictor, batches[name], scorer) for name, way in ways.items()}
        wanted = tops["float32"]
        for name, found in tops.items():
            precisions = (precision_at(depth, found, truths) for depth in DEPTHS)
            same = np.mean([len({*x} & {*y}) / 5 for x, y in zip(found, wanted, strict=True)])
            rankings.add(scorer, name, *precisions, macro_f1(found, truths, rare), same)
    return speeds, rankings


def top_ids(predictor: Predictor, batch: TextBatch, scorer: str) -> list[list[str]]:
    """Return the ids of the five best labels of each text."""
    predictions = predictor.predict_batch(batch, RankingOptions(5, scorer))
    return [[label.id for label in found.labels] for found in predictions]


def precision_at(depth: int, found: list[list[str]], truths: list[set[str]]) -> float:
    """Return P@depth."""
    hits = (len({*ids[:depth]} & truth) for ids, truth in zip(found, truths, strict=True))
    return sum(hits) / (depth * len(found))


def macro_f1(found: list[list[str]], truths: list[set[str]], labels: list[str]) -> float:
    """Return the mean F1 at 5 of some labels."""
    hits, given, true = (dict.fromkeys(labels, 0) for _ in range(3))
    for ids, truth in zip(found, truths, strict=True):
        for label in given.keys() & {*ids}:
            given[label] += 1
            hits[label] += label in truth
        for label in true.keys() & truth:
            true[label] += 1
    return float(np.mean([2 * hits[x] / max(1, given[x] + true[x]) for x in labels]))


if __name__ == "__main__":
    main()
