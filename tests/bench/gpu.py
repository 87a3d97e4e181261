"""What a GPU gives: one table of search, tree correction, prediction and training.

    python tests/bench/gpu.py --device cuda --registry REGISTRY [--output FILE]
    python tests/bench/gpu.py --device cpu --quick

The same code runs on a CPU, where sizes are best kept small (--quick). Times are medians of some
rounds, the device synchronised before and after, with the 99th percentile where single texts are
searched for. Rows have 386 numbers, as a vector with bias and prior has (392 on a GPU). Each search
is measured as the service runs it, in float32, by PyTorch and, where it is installed, by FAISS.
Memory is what the index takes. *Exact* is `longtail.models.ranking.index`: the search and what
decides near ties in float64, so the answer of the service; *search* is the search alone, whose
order near ties may differ. The limit is the time in which memory can be read once, by a copy of
256 MiB measured here; a batch of 1024 is bound by arithmetic instead, and vectors that fit into the
cache are not read from memory, so neither has a ratio. Rows that can't be measured say why.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from machine import begin
from recording import add_json_option, keep

from longtail.models.bundle.registry import Registry
from longtail.models.errors import LongtailError
from longtail.models.extras import is_installed
from longtail.models.label_tree.corrected_top_k import IndexCorrection, corrected_sources
from longtail.models.label_tree.tree import LabelTree, depth_of, one_sided_biases
from longtail.models.names import IndexName
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.certified import SLACK
from longtail.models.ranking.device_rows import faiss_problem, free_gpu_bytes
from longtail.models.ranking.index import InnerProductIndex
from longtail.models.ranking.threshold_algorithm import SUM, rank
from longtail.models.ranking.top_k import Ranking

DEMO = Path(__file__).parents[2] / "training" / "demo_data"
DIM, K, NUM_CLUSTERS, TREE_DIM = 386, 10, 1000, 16
BATCHES = (1, 64, 1024)
MANY = 5000  # results, more than FAISS selects on a GPU
CACHE_BYTES = 2**27  # vectors of less may lie in a GPU's cache
NO_RATIO = "-"
_FEW_ROUNDS = 5  # of what takes seconds


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table.

    Attributes:
        what: Was measured.
        size: On how much.
        figure: The result, with its unit.
        limit: The least time that memory allows, and the ratio to it; "-" where that says nothing.
        memory: Of the device.
    """

    what: str
    size: str
    figure: str
    limit: str = NO_RATIO
    memory: str = NO_RATIO


@dataclass(frozen=True, slots=True)
class Times:
    """Median and 99th percentile (of few rounds the largest) of one call, in seconds."""

    median: float
    p99: float


class Device:
    """Where it runs."""

    def __init__(self, name: str, rounds: int) -> None:
        self.name = name
        self._rounds = rounds

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.name == "cuda"

    def describe(self) -> str:
        """Return the hardware and the releases."""
        releases = f"PyTorch {torch.__version__}"
        if is_installed("faiss"):
            releases += f", FAISS {import_module('faiss').__version__}"
        if self.is_gpu:
            return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, {releases}"
        return f"{_processor()}, {torch.get_num_threads()} thread(s), {releases}"

    def seconds(self, work: Callable[..., object], *given: object, **named: object) -> Times:
        """Return the times of some rounds of a call; one more goes before them."""
        found = []
        for number in range(self._rounds + 1):
            self._wait()
            started = time.perf_counter()
            work(*given, **named)
            self._wait()
            if number:
                found.append(time.perf_counter() - started)
        return Times(statistics.median(found), sorted(found)[len(found) * 99 // 100])

    def bytes_a_second(self) -> float:
        """Return the bandwidth of memory: of a copy, which reads and writes every byte."""
        source = torch.zeros(2**26, device=self.name)
        target = torch.empty_like(source)
        return 2 * source.nbytes / self.seconds(target.copy_, source).median

    def free_bytes(self) -> int:
        """Return the free memory of the GPU, once what nobody holds is gone; 0 on a CPU."""
        gc.collect()
        return (free_gpu_bytes() or 0) if self.is_gpu else 0

    def _wait(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize()


def vectors_of(num_rows: int, seed: int) -> Float32[np.ndarray, "row dim"]:
    """Return made-up vectors around 1000 centres, of length 1."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((NUM_CLUSTERS, DIM), dtype=np.float32)
    rng = np.random.default_rng(seed)
    vectors = np.empty((num_rows, DIM), dtype=np.float32)
    for start in range(0, num_rows, 2**17):
        part = vectors[start : start + 2**17]
        rng.standard_normal(out=part, dtype=np.float32)
        part += centres[rng.integers(NUM_CLUSTERS, size=len(part))]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def search_rows(device: Device, sizes: Sequence[int], bandwidth: float) -> Iterator[Row]:
    """Yield the rows of exact and plain searches."""
    if problem := faiss_problem(torch.device(device.name)):
        yield Row("faiss, exact top", "all sizes", f"not measured: {problem}")
    for size in sizes:
        vectors, queries = vectors_of(size, 1), vectors_of(max(BATCHES), 2)
        try:
            for index in _indexes(device):
                yield from _rows_of(device, vectors, queries, bandwidth, index)
        except (RuntimeError, LongtailError) as error:
            reason = str(error).strip().splitlines()[0][:100]
            yield Row("search", f"{size:,} labels", f"not measured: {reason}")


def _rows_of(
    device: Device,
    vectors: Float32[np.ndarray, "label dim"],
    queries: Float32[np.ndarray, "row dim"],
    bandwidth: float,
    name: IndexName,
) -> Iterator[Row]:
    """Yield the rows of one index, which is gone afterwards."""
    free = device.free_bytes()
    labels = np.arange(len(vectors), dtype=np.int64)
    index = InnerProductIndex(vectors, labels, device=device.name, index=name)
    memory = _memory(free - device.free_bytes() if device.is_gpu else vectors.nbytes)
    asked = [(batch, K) for batch in BATCHES]
    if len(vectors) > 2 * MANY:
        asked.append((1, MANY))
    for batch, k in asked:
        part = queries[:batch]
        for kind, work in (("exact top", index.top), ("search", partial(_search, index))):
            times = device.seconds(work, part, k)
            is_read = batch < max(BATCHES) and (not device.is_gpu or vectors.nbytes > CACHE_BYTES)
            limit = _limit(times.median, vectors.nbytes / bandwidth) if is_read else NO_RATIO
            shape = f"{len(vectors):,} labels, batch {batch}"
            yield Row(f"{name}, {kind} {k}", shape, _figure(times, batch), limit, memory)


def _indexes(device: Device) -> list[IndexName]:
    return ["torch"] if faiss_problem(torch.device(device.name)) else ["torch", "faiss"]


def _search(index: InnerProductIndex, queries: Float32[np.ndarray, "row dim"], k: int) -> None:
    """Propose the best rows, without deciding."""
    scores = index.scores(queries)
    everything = torch.arange(len(queries), device=index.device)
    scores.propose(everything, min(k + SLACK, len(index)))


def tree_rows(device: Device, sizes: Sequence[int]) -> Iterator[Row]:
    """Yield the rows of rankings that a label tree corrects, beside those without."""
    for size in sizes:
        vectors, queries = vectors_of(size, 1), vectors_of(64, 2)
        index = InnerProductIndex(vectors, np.arange(size, dtype=np.int64), device=device.name)
        tree = IndexCorrection(index, _tree_of(size))
        for batch in (1, 64):
            part = queries[:batch]
            shape = f"{size:,} labels, batch {batch}"
            plain = device.seconds(index.top, part, K).median
            both = device.seconds(_corrected_top, tree, part, size)
            ratio = f"{both.median / plain:.2f} times without it"
            yield Row("corrected by the tree", shape, _figure(both, batch), ratio)


def _corrected_top(
    tree: IndexCorrection, vectors: Float32[np.ndarray, "row dim"], size: int
) -> Ranking:
    return rank([corrected_sources(tree, vectors, vectors)], SUM, K, size)


def _tree_of(num_labels: int) -> LabelTree:
    """Return a random tree."""
    rng = np.random.default_rng(0)
    num_leaves = 2 ** depth_of(num_labels)
    label_of_leaf = np.full(num_leaves, -1, dtype=np.int64)
    label_of_leaf[:num_labels] = rng.permutation(num_labels)
    forced = one_sided_biases((label_of_leaf >= 0).astype(np.int64))
    return LabelTree.from_arrays(
        {
            "mean": np.zeros(DIM, dtype=np.float32),
            "components": rng.standard_normal((TREE_DIM, DIM), dtype=np.float32),
            "weights": rng.standard_normal((num_leaves - 1, TREE_DIM), dtype=np.float32),
            "biases": forced,
            "label_of_leaf": label_of_leaf,
        }
    )


def prediction_rows(device: Device, registry: Path | None, num_texts: int) -> Iterator[Row]:
    """Yield a row for each scorer of a model: texts a second, from text to labels."""
    if registry is None:
        yield Row("texts a second", "no --registry", "not measured")
        return
    from service_throughput import read_texts

    texts = read_texts("documents", num_texts)
    for precision in ("float32", "bfloat16"):
        predictor = Predictor.of_bundle(
            Registry(registry).open(),
            device=device.name,
            precision=precision,  # type: ignore[arg-type]
        )
        for scorer in predictor.scorers.names:
            seconds = device.seconds(predictor.predict, texts, scorer=scorer).median
            shape = f"{len(texts)} documents, {predictor.max_tokens} tokens, {precision}"
            yield Row(
                f"`{scorer}`, end to end", shape, f"{len(texts) / seconds:.0f} texts a second"
            )


def training_rows(device: Device, is_quick: bool) -> Iterator[Row]:
    """Yield a row for each neural stage: training documents a second, an epoch of the demo data."""
    from longtail.training.configuration.run import read_config
    from longtail.training.data.dataset import open_dataset
    from longtail.training.pipeline.train import Run, train
    from longtail.training.runtime.run_log import read_stage_costs

    one = {"epochs": 1}
    overrides: dict[str, Any] = {"classifier": one, "retrieval": one, "linear": one}
    if is_quick:
        overrides["document_max_tokens"] = 16
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = _first_documents(folder / "data", 256) if is_quick else DEMO
        config = read_config(DEMO.parent / "configs" / "demo.yaml", overrides)
        run = Run(config, open_dataset(data), folder / "work")
        version = train(run, Registry(folder / "registry"))
        num = Registry(folder / "registry").open(version).manifest.training_document_count
        for cost in read_stage_costs(run.folder):
            if cost.stage in ("classifier", "retrieval", "document vectors"):
                shape = f"{num:,} documents, {config.document_max_tokens} tokens"
                yield Row(
                    f"training, {cost.stage}", shape, f"{num / cost.wall_s:.0f} documents a second"
                )


def _first_documents(folder: Path, count: int) -> Path:
    """Return a copy of the demo data with its first training documents alone."""
    shutil.copytree(DEMO, folder)
    for path in (folder / f"{name}.json.gz" for name in ("trn", "dev", "tst")):
        lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        path.write_bytes(gzip.compress(b"".join(lines[:count])))
    return folder


def _figure(times: Times, batch: int) -> str:
    last = f" (p99 {1000 * times.p99:.3g})" if batch == 1 else ""
    return f"{1000 * times.median:.3g} ms{last}"


def _limit(seconds: float, least: float) -> str:
    return f"{1000 * least:.3g} ms; {seconds / least:.2f} times"


def _memory(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    names = [x.split(":")[1].strip() for x in path.read_text().splitlines() if "model name" in x]
    return names[0] if names else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="small sizes, two rounds")
    parser.add_argument(
        "--registry", type=Path, help="of the model whose texts a second to measure"
    )
    parser.add_argument("--rounds", type=int, default=100, help="of each search, without --quick")
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of labels")
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("--output", type=Path)
    add_json_option(parser)
    options = begin(parser)
    rounds = 2 if options.quick else options.rounds
    device = Device(options.device, rounds)
    sizes = options.sizes or ([1000, 10_000] if options.quick else [10**4, 10**5, 10**6, 10**7])
    bandwidth = device.bytes_a_second()
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {device.describe()}.",
        f"Memory: {bandwidth / 1e9:.0f} GB/s by a copy of 256 MiB.",
        "",
        "| what | of what | figure | limit of memory; ratio | memory |",
        "|---|---|---:|---:|---:|",
    ]
    print("\n".join(lines), flush=True)
    few = Device(options.device, rounds=min(rounds, _FEW_ROUNDS))
    parts: list[Iterator[Row]] = [
        search_rows(device, sizes, bandwidth),
        prediction_rows(few, options.registry, 8 if options.quick else 2000),
        tree_rows(few, [size for size in sizes if size <= 10**6]),
    ]
    if not options.no_training:
        parts.append(training_rows(device, options.quick))
    rows: list[Row] = []
    for part in parts:
        for row in part:
            rows.append(row)
            cells = (row.what, row.size, row.figure, row.limit, row.memory)
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if options.output is not None:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    figures = {"device": device.describe(), "bytes_a_second": bandwidth}
    keep(options.json, {**figures, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
