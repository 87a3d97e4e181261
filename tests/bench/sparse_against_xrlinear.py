"""The sparse model against PECOS XR-Linear on the same features: quality, time and memory, one run.

    LONGTAIL_DATA=<folder with eurlex57k> python tests/bench/sparse_against_xrlinear.py \
        --peer-python <python of an environment with libpecos==1.2.8>

Both train in processes of their own, one after the other, with as many threads or processes as
there are cores. Memory is the largest sum over a process and its children of proportional set
sizes, sampled every second. Rankings are judged by Longtail's metrics. Say --split test once only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, csr_matrix, load_npz, save_npz

from models.ranking import Ranking, rank
from models.sparse import SparseSource, TfidfModel
from training.config import SparseConfig
from training.corpus import open_dataset
from training.evaluation import evaluate
from training.sparse import fit_sparse_model, fit_tfidf

PEER = """
import sys, numpy as np, scipy.sparse as sp, time, json
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
folder, scheme = sys.argv[1:]
X, Y, Xt = (sp.load_npz(f"{folder}/{n}.npz").astype(np.float32) for n in ("X", "Y", "Xt"))
started = time.time()
chain = Indexer.gen(LabelEmbeddingFactory.create(Y, X), indexer_type="hierarchicalkmeans")
model = XLinearModel.train(X, Y, C=chain, negative_sampling_scheme=scheme)
seconds = time.time() - started
model.save(f"{folder}/{scheme}")
model = XLinearModel.load(f"{folder}/{scheme}", is_predict_only=True)
found = model.predict(Xt, only_topk=10, beam_size=50)
labels = np.full((Xt.shape[0], 10), -1)
for i in range(Xt.shape[0]):
    row = slice(found.indptr[i], found.indptr[i + 1])
    order = np.argsort(-found.data[row], kind="stable")
    labels[i, : len(order)] = found.indices[row][order]
np.save(f"{folder}/labels-{scheme}.npy", labels)
print(json.dumps({"seconds": seconds}))
"""


def main() -> None:
    """Train all, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--split", default="dev", choices=("dev", "test"))
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--ours", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        train_ours(Path(options.ours))
        return
    data = options.data or Path(os.environ.get("LONGTAIL_DATA", "../shared/data")) / "eurlex57k"
    if not data.is_dir():
        sys.exit(f"no EURLEX57K in {str(data)!r}: name its parent folder in LONGTAIL_DATA")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth, counts, num_training = write_features(data, options.split, folder)
        command = [sys.executable, __file__, "--peer-python", "-", "--ours", name]
        measured = {"Longtail sparse": measure(command)}
        for scheme in ("tfn", "tfn+man"):
            peer = [options.peer_python, "-c", PEER, name, scheme]
            measured[f"XR-Linear {scheme}"] = measure(peer)
        files = ["ours", "tfn", "tfn+man"]
        rankings = {
            title: ranking_of(np.load(folder / f"labels-{file}.npy"))
            for title, file in zip(measured, files, strict=True)
        }
    print(evaluate(rankings, truth, counts, num_training).overall_table())
    print("\n| model | training, s | peak memory, GiB |\n|---|---:|---:|")
    for title, (seconds, gib) in measured.items():
        print(f"| {title} | {seconds:.0f} | {gib:.2f} |")


def write_features(data: Path, split: str, folder: Path) -> tuple[csr_array, np.ndarray, int]:
    """Write tf-idf and labels for both; return the truth, training counts and their number."""
    dataset = open_dataset(data)
    training, judged = dataset.split("train"), dataset.split(split)
    tfidf, features = fit_tfidf(training.texts(), SparseConfig())
    labels = training.scan().labels
    for name, matrix in (("X", features), ("Y", labels), ("Xt", tfidf.transform(judged.texts()))):
        save_npz(folder / f"{name}.npz", csr_matrix(matrix))
    return judged.scan().labels, dataset.catalogue.training_counts, labels.shape[0]


def train_ours(folder: Path) -> None:
    """Train and rank; prints the seconds of training."""
    features, truth, judged = (csr_array(load_npz(folder / f"{n}.npz")) for n in ("X", "Y", "Xt"))
    num_features = features.shape[1]
    tfidf = TfidfModel(list(map(str, range(num_features))), np.ones(num_features, np.float32))
    started = time.monotonic()
    config = SparseConfig()
    model = fit_sparse_model(tfidf, features, truth, config, seed=0, folder=folder / "work")
    seconds = time.monotonic() - started
    np.save(folder / "labels-ours.npy", rank([SparseSource(model, judged)], 10).labels)
    print(json.dumps({"seconds": seconds}))


def ranking_of(labels: np.ndarray) -> Ranking:
    """Return labels as a ranking; their scores play no part in the metrics."""
    return Ranking(labels.astype(np.int64), np.zeros(labels.shape, dtype=np.float32))


def measure(command: list[str]) -> tuple[float, float]:
    """Run a command; return the seconds of training that it prints, and its peak memory in GiB."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(memory_kib, family_of(process.pid))))
        time.sleep(1.0)
    output = process.stdout.read() if process.stdout else ""
    if process.returncode:
        sys.exit(f"{command[0]} ended with status {process.returncode}")
    return json.loads(output.splitlines()[-1])["seconds"], peak / 2**20


def family_of(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue  # it has ended
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def memory_kib(pid: int) -> int:
    """Return the proportional set size of a process; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


if __name__ == "__main__":
    main()
