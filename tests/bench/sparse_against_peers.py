"""The sparse model against PECOS XR-Linear and omikuji on the same features, in one run.

    LONGTAIL_DATA=<folder of the data sets> python tests/bench/sparse_against_peers.py eurlex57k \
        --pecos-python <python with libpecos==1.2.8> --omikuji-python <python with omikuji==0.5.2>

Each trains in a process of its own, one after the other, with as many threads as there are cores.
Memory is the largest sum over a process and its children of proportional set sizes, sampled every
second. Rankings are judged by Longtail's metrics. A peer whose Python isn't named is left out.
Say --split test once only.
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
from machine import begin, same_threads
from recording import Table, add_json_option, keep
from scipy.sparse import csr_array, csr_matrix, load_npz, save_npz

from longtail.models.ranking.top_k import Ranking
from longtail.models.scorers.sparse import SparseModel, SparseSource
from longtail.models.scorers.tfidf import TfidfModel
from longtail.training.configuration.sections import SparseConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.evaluation.by_frequency import evaluate
from longtail.training.evaluation.scores import join_pairs
from longtail.training.sparse.fit import fit_sparse_model
from longtail.training.sparse.tfidf import fit_tfidf

XR_LINEAR = """
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
started = time.time()
found = model.predict(Xt, only_topk=10, beam_size=50)
ranking = time.time() - started
alone = []
for i in range(min(500, Xt.shape[0])):
    started = time.time()
    model.predict(Xt[i], only_topk=10, beam_size=50)
    alone.append(time.time() - started)
labels = np.full((Xt.shape[0], 10), -1)
for i in range(Xt.shape[0]):
    row = slice(found.indptr[i], found.indptr[i + 1])
    order = np.argsort(-found.data[row], kind="stable")
    labels[i, : len(order)] = found.indices[row][order]
np.save(f"{folder}/labels-{scheme}.npy", labels)
print(json.dumps({"seconds": seconds, "ranking": ranking, "alone": float(np.median(alone))}))
"""

OMIKUJI = """
import sys, time, json, omikuji
folder, rows = sys.argv[1], int(sys.argv[2])
started = time.time()
model = omikuji.Model.train_on_data(f"{folder}/train.txt", omikuji.Model.default_hyper_param())
seconds = time.time() - started
with open(f"{folder}/judged.txt") as file, open(f"{folder}/omikuji.json", "w") as out:
    found = []
    started = time.time()
    for line in file:
        pairs = [(int(f), float(v)) for f, v in (t.split(":") for t in line.split())]
        found.append([label for label, _ in model.predict(pairs, beam_size=30, top_k=10)])
    ranking = time.time() - started
    json.dump(found, out)
print(json.dumps({"seconds": seconds, "ranking": ranking}))
"""


def main() -> None:
    """Train all, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=("eurlex57k", "library-keywords", "tate"))
    parser.add_argument("--pecos-python")
    parser.add_argument("--omikuji-python")
    parser.add_argument("--schemes", nargs="*", default=["tfn", "tfn+man"], help="of XR-Linear")
    parser.add_argument("--split", default="dev", choices=("dev", "test"))
    parser.add_argument("--ours", metavar="FOLDER", help=argparse.SUPPRESS)
    add_json_option(parser)
    options = begin(parser)
    same_threads(len(os.sched_getaffinity(0)))
    if options.ours:
        train_ours(Path(options.ours))
        return
    data = Path(os.environ.get("LONGTAIL_DATA", "../shared/data")) / options.dataset
    if not data.is_dir():
        sys.exit(f"no {options.dataset} in {str(data)!r}: name its parent folder in LONGTAIL_DATA")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth, counts, num_training = write_features(data, options.split, folder)
        measured = {
            "Longtail `sparse`": measure([sys.executable, __file__, "tate", "--ours", name])
        }
        found = [np.load(folder / "labels-ours.npy")]
        for scheme in options.schemes if options.pecos_python else ():
            command = [options.pecos_python, "-c", XR_LINEAR, name, scheme]
            measured[f"XR-Linear `{scheme}`"] = measure(command)
            found.append(np.load(folder / f"labels-{scheme}.npy"))
        if options.omikuji_python:
            write_texts(folder)
            command = [options.omikuji_python, "-c", OMIKUJI, name, str(truth.shape[0])]
            measured["omikuji (Parabel)"] = measure(command)
            found.append(padded(json.loads((folder / "omikuji.json").read_text())))
    rankings = {title: ranking_of(labels) for title, labels in zip(measured, found, strict=True)}
    print(f"{options.dataset}, {options.split} split\n")
    evaluation = evaluate(rankings, truth, counts, num_training)
    print(evaluation.overall_table())
    table = Table({
        "model": "", "training, s": ".0f", "peak memory, GiB": ".2f",
        "ranking, ms a document": ".2f", "one alone, ms": ".2f",
    })  # fmt: skip
    for title, (times, gib) in measured.items():
        each = 1000 * times["ranking"] / truth.shape[0]
        alone = 1000 * times.get("alone", times["ranking"] / truth.shape[0])
        table.add(title, times["seconds"], gib, each, alone)
    keep(options.json, {"cost": table, **evaluation.to_json()}, seeds=[0])


def write_features(data: Path, split: str, folder: Path) -> tuple[csr_array, np.ndarray, int]:
    """Write tf-idf and labels for all; return the truth, training counts and their number."""
    dataset = open_dataset(data)
    training, judged = dataset.split("train"), dataset.split(split)
    tfidf, features = fit_tfidf(training.texts(), SparseConfig())
    labels = training.scan().labels
    for name, matrix in (("X", features), ("Y", labels), ("Xt", tfidf.transform(judged.texts()))):
        save_npz(folder / f"{name}.npz", csr_matrix(matrix))
    return judged.scan().labels, dataset.catalogue.training_counts, labels.shape[0]


def write_texts(folder: Path) -> None:
    """Write the features once more, as omikuji reads them."""
    features, truth, judged = (csr_array(load_npz(folder / f"{n}.npz")) for n in ("X", "Y", "Xt"))
    with (folder / "train.txt").open("w") as file:
        file.write(f"{features.shape[0]} {features.shape[1]} {truth.shape[1]}\n")
        for row in range(features.shape[0]):
            carried = truth.indices[truth.indptr[row] : truth.indptr[row + 1]].tolist()
            file.write(f"{','.join(map(str, carried))} {pairs_of(features, row)}\n")
    with (folder / "judged.txt").open("w") as file:
        file.writelines(f"{pairs_of(judged, row)}\n" for row in range(judged.shape[0]))


def pairs_of(matrix: csr_array, row: int) -> str:
    """Return the `feature:value` pairs of a row."""
    held = slice(*matrix.indptr[row : row + 2])
    return join_pairs(matrix.indices[held], matrix.data[held])


def padded(labels: list[list[int]]) -> np.ndarray:
    """Return lists of at most 10 labels as one array, filled up with -1."""
    return np.array([(row + [-1] * 10)[:10] for row in labels])


def train_ours(folder: Path) -> None:
    """Train and rank; prints the seconds of each."""
    features, truth, judged = (csr_array(load_npz(folder / f"{n}.npz")) for n in ("X", "Y", "Xt"))
    num_features = features.shape[1]
    tfidf = TfidfModel(list(map(str, range(num_features))), np.ones(num_features, np.float32))
    started = time.monotonic()
    config = SparseConfig()
    model = fit_sparse_model(tfidf, features, truth, config, seed=0, folder=folder / "work")
    seconds = time.monotonic() - started
    source = SparseSource(model, judged)
    started = time.monotonic()
    np.save(folder / "labels-ours.npy", source.top(np.arange(judged.shape[0]), 10).labels)
    ranking = time.monotonic() - started
    alone = [seconds_to_rank(model, judged[[row]]) for row in range(min(500, judged.shape[0]))]
    times = {"seconds": seconds, "ranking": ranking, "alone": float(np.median(alone))}
    print(json.dumps(times))


def seconds_to_rank(model: SparseModel, document: csr_array) -> float:
    """Rank the labels of one document, and return how long that took."""
    started = time.monotonic()
    SparseSource(model, document).top(np.zeros(1, dtype=np.int64), 10)
    return time.monotonic() - started


def ranking_of(labels: np.ndarray) -> Ranking:
    """Return labels as a ranking; their scores play no part in the metrics."""
    return Ranking(labels.astype(np.int64), np.zeros(labels.shape, dtype=np.float32))


def measure(command: list[str]) -> tuple[dict[str, float], float]:
    """Run a command; return the times that it prints, in seconds, and its peak memory in GiB."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(memory_kib, family_of(process.pid))))
        time.sleep(1.0)
    output = process.stdout.read() if process.stdout else ""
    if process.returncode:
        sys.exit(f"{command[0]} ended with status {process.returncode}")
    return json.loads(output.splitlines()[-1]), peak / 2**20


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
