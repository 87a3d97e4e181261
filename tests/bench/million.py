"""From files to answers with millions of labels: time and memory of every stage, and growth.

    python tests/bench/million.py --output runs/million          # hours on two cores
    python tests/bench/million.py --output runs/million --labels 300 600 --held-out 100
    python tests/bench/million.py --output runs/titles --titles --labels 1000000 3000000

For each number of labels a made-up corpus (`synthetic.py`: a document for each label, three labels
and 24 words a document, label frequencies by a power law) goes the way of a real one, each stage in
a process of its own: written as files; trained and published by `longtail train`, by a tiny encoder
with random weights, with all scorers and the label tree of `linear`; verified; labelled offline by
`longtail predict`; served, asked over HTTP one text at a time, and swapped for another version
while clients ask. With `--titles`: two documents of eight words and two labels for each label,
`longtail train --without-encoder`, and a service that maps its arrays.

What is done is kept in million.json, so a bench that was stopped goes on, and so does a training.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
import yaml
from machine import begin
from recording import Table, add_json_option, keep
from served_process import Served, served
from service_swaps import Clients, Tally, make_versions, until_freed
from synthetic import TITLE_WORDS, SyntheticCorpus, write_corpus
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from longtail.models.bundle.registry import Registry
from longtail.service.http.api_keys import make_key

NUM_FEATURES = 300_000
NUM_TEXTS = 1000  # asked, at the most
PREDICT = "predict texts of a file"
NUM_SINGLE = 100  # asked one after the other, over HTTP
READY_TIMEOUT_S = 3600
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONFIG = {
    "scorers": ["retrieval", "linear", "sparse", "names", "neighbours", "fast", "ensemble"],
    "document_max_tokens": 64,
    "warmup_texts": 4,
    "descriptions": {"max_tokens": 24},
    "classifier": {"epochs": 0},
    "retrieval": {"epochs": 1, "max_steps": 100, "batch_size": 64, "label_subset_size": 256},
    "linear": {
        "negatives": {
            "distribution": {"kind": "tree"},
            "weighting": "constant",
            "num_negatives": 8,
            "exclude": "none",
        },
        "loss": {"kind": "decoupled"},
        "epochs": 1,
    },
}


@dataclass(frozen=True)
class Cost:
    """The cost of one stage.

    Attributes:
        labels: The corpus' labels.
        stage: What was done.
        seconds: By the clock.
        cpu_s: Seconds of all cores; None where nothing but waiting is measured.
        gib: Most resident memory of the process.
    """

    labels: int
    stage: str
    seconds: float
    cpu_s: float | None
    gib: float | None


class Costs:
    """What is measured so far, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows = [Cost(**x) for x in json.loads(path.read_text())] if path.exists() else []
        self.table = Table({"labels": ",", "stage": "", "s": ",.1f", "CPU s": ",.1f", "GiB": ".2f"})
        for row in self.rows:
            self.table.add(*asdict(row).values())

    def has(self, labels: int, stage: str) -> bool:
        """Return whether a stage is measured."""
        return any((row.labels, row.stage) == (labels, stage) for row in self.rows)

    def add(self, *costs: Cost) -> None:
        """Keep what was measured."""
        self.rows += costs
        for row in costs:
            self.table.add(*asdict(row).values())
        self._path.write_text(json.dumps([asdict(row) for row in self.rows], indent=1) + "\n")


def run(labels: int, stage: str, *command: object) -> Cost:
    """Run a command to its end.

    Raises:
        SystemExit: It failed.
    """
    started = time.monotonic()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{stage}, {labels} labels: exit status {process.returncode}")
    seconds, cpu = time.monotonic() - started, usage.ru_utime + usage.ru_stime
    return Cost(labels, stage, seconds, cpu, usage.ru_maxrss / 2**20)


def longtail(*arguments: object) -> tuple[object, ...]:
    """Return the command line."""
    return (sys.executable, "-m", "longtail", *arguments)


def measure(labels: int, held_out: int, folder: Path, costs: Costs, *, titles: bool) -> None:
    """Go the whole way with a corpus of some size; what is measured already is skipped."""
    measure_training(labels, held_out, folder, costs, titles=titles)
    measure_serving(labels, folder, costs, titles=titles)


def measure_training(
    labels: int, held_out: int, folder: Path, costs: Costs, *, titles: bool
) -> None:
    """Go the way from files to answers in a file."""
    corpus, registry = folder / "corpus", folder / "registry"
    if not costs.has(labels, "write the corpus"):
        make = ["--make", labels, "--held-out", held_out, "--output", folder]
        command = [sys.executable, __file__, *make, *["--titles"] * titles]
        costs.add(run(labels, "write the corpus", *command))
    if not costs.has(labels, "train"):
        options = ["--registry", registry, "--work", folder / "work"]
        if titles:
            options += ["--without-encoder"]
        else:
            make_encoder(folder / "encoder")
            config = folder / "config.yaml"
            config.write_text(yaml.safe_dump(CONFIG | {"encoder": str(folder / "encoder")}))
            options += ["--config", config]
        run(labels, "train", *longtail("train", corpus, *options))
        costs.add(*costs_of_training(labels, folder / "work"))
        shutil.rmtree(folder / "work")
    if not costs.has(labels, "verify"):
        costs.add(run(labels, "verify", *longtail("registry", "verify", 1, "--registry", registry)))
    if not costs.has(labels, PREDICT):
        lines = folder / "texts.jsonl"
        texts = first_texts(corpus)
        lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        options = ["--registry", registry, "--output", folder / "answers.jsonl", "--overwrite"]
        costs.add(run(labels, PREDICT, *longtail("predict", "--input", lines, *options)))


def measure_serving(labels: int, folder: Path, costs: Costs, *, titles: bool) -> None:
    """Serve what was trained; where documents are whole ones, swap it under load."""
    registry, texts = folder / "registry", first_texts(folder / "corpus")
    if not costs.has(labels, "serve"):
        mapped = ["--map-arrays", "always"] if titles else []
        costs.add(*serve(labels, registry, texts, *mapped))
    if not titles and not costs.has(labels, "swap under load"):
        costs.add(swap(labels, registry, folder / "versions", texts))
        shutil.rmtree(folder / "versions")


def costs_of_training(labels: int, work: Path) -> list[Cost]:
    """Return what a run has written of its stages, all sessions together: whole, then of each."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in (work / "stages.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        found.setdefault(entry["stage"], []).append(entry)
    stages = [
        Cost(
            labels,
            f"train: {stage}",
            sum(x["wall_s"] for x in entries),
            sum(x["cpu_s"] for x in entries),
            max(x["peak_rss_bytes"] for x in entries) / 2**30,
        )
        for stage, entries in found.items()
    ]
    seconds, cpu, gib = np.array([(x.seconds, x.cpu_s, x.gib) for x in stages]).T
    whole = Cost(labels, "train", float(seconds.sum()), float(cpu.sum()), float(gib.max()))
    return [whole, *stages]


def make_encoder(folder: Path) -> None:
    """Write a BERT of two layers with random weights, whose tokens are halves of made-up words."""
    digits = [f"{number:03}" for number in range(1000)]
    vocabulary = [*SPECIAL_TOKENS, *(f"w{x}" for x in digits), *(f"##{x}" for x in digits)]
    ids = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(x, ids[x]) for x in ("[CLS]", "[SEP]")]
    )
    names = dict(
        zip(
            ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
            SPECIAL_TOKENS,
            strict=True,
        )
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)


def first_texts(corpus: Path) -> list[str]:
    """Return texts of the test split."""
    command = ["zcat", str(corpus / "tst.json.gz")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    documents = map(json.loads, lines[:NUM_TEXTS])
    return [f"{document['title']}\n{document['content']}".strip() for document in documents]


@contextmanager
def ready(registry: Path, *options: str) -> Iterator[tuple[Served, float]]:
    """Serve a registry.

    Yields:
        The service and the seconds until it was ready.
    """
    started = time.monotonic()
    with served(registry, *options, timeout_s=READY_TIMEOUT_S) as service:
        yield service, time.monotonic() - started


def serve(labels: int, registry: Path, texts: Sequence[str], *mapped: str) -> tuple[Cost, ...]:
    """Start a service, and ask it one text after the other."""
    with ready(registry, *mapped) as (service, seconds):
        starting = Cost(labels, "serve", seconds, None, peak_gib(service))
        taken = []
        with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=600) as http:
            # Built after the start, which takes from the first answers.
            http.get("/v1/labels", params={"query": "w"}).raise_for_status()
            for text in texts[:NUM_SINGLE]:
                started = time.monotonic()
                answer = http.post("/v1/predict", json={"text": text})
                answer.raise_for_status()
                taken.append(time.monotonic() - started)
        median = float(np.median(taken))
        return starting, Cost(labels, "answer a text", median, None, peak_gib(service))


def swap(labels: int, registry: Path, folder: Path, texts: list[str]) -> Cost:
    """Replace the served version by another while clients ask.

    Raises:
        SystemExit: A request failed, or an answer was of two versions.
    """
    shutil.rmtree(folder, ignore_errors=True)
    versions = Registry(folder)
    make_versions(Registry(registry).open(), versions)
    key, entry = make_key("bench")
    with ready(folder, "--admin-keys", entry, "--watch-interval-s", "0") as (service, _):
        seconds, tally = asyncio.run(swapped(service, key, texts))
        if tally.failures or tally.num_mixed or not tally.answers:
            raise SystemExit(f"{labels} labels: {tally}")
        return Cost(labels, "swap under load", seconds, None, peak_gib(service))


async def swapped(service: Served, key: str, texts: list[str]) -> tuple[float, Tally]:
    """Swap once, while two clients ask.

    Returns:
        Seconds that it took, and what the clients saw.
    """
    clients = Clients(service.port, texts, [])
    load = asyncio.create_task(clients.run(2, 0, 0))
    headers = {"Authorization": f"Bearer {key}"}
    base = f"http://127.0.0.1:{service.port}"
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=READY_TIMEOUT_S) as http:
        answer = await http.post("/v1/admin/models/2/activate")
        answer.raise_for_status()
        await until_freed(http)
    clients.stop()
    await load
    return answer.json()["seconds"], clients.tally


def peak_gib(service: Served) -> float:
    """Return the most memory that a service has held."""
    status = Path(f"/proc/{service.pid}/status").read_text(encoding="utf-8")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 2**20


def exponent(rows: Sequence[Cost], what: str) -> float:
    """Return b of seconds, or memory, that grow as labels to the power b: by least squares."""
    logs = np.log([(row.labels, getattr(row, what)) for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def by_stage(rows: Sequence[Cost]) -> dict[str, list[Cost]]:
    """Return the costs of each stage, by number of labels."""
    found: dict[str, list[Cost]] = {}
    for row in sorted(rows, key=lambda row: row.labels):
        found.setdefault(row.stage, []).append(row)
    return found


def growth(rows: Sequence[Cost]) -> dict[str, Any]:
    """Return a table of what each stage took by number of labels, with the exponents."""
    sizes = sorted({row.labels for row in rows})
    columns: list[dict[str, Any]] = [{"name": "stage"}]
    columns += [{"name": f"{labels:,}: s", "digits": 1} for labels in sizes]
    columns += [{"name": "s grow by labels to the", "digits": 2}]
    columns += [{"name": "in the last step", "digits": 2}]
    columns += [{"name": f"{labels:,}: GiB", "digits": 2} for labels in sizes]
    found: list[list[Any]] = []
    for stage, own in by_stage(rows).items():
        of_size = {row.labels: row for row in own}
        at = [of_size.get(labels) for labels in sizes]
        seconds, gib = (
            [None if x is None else getattr(x, y) for x in at] for y in ("seconds", "gib")
        )
        powers = [exponent(x, "seconds") if len(own) > 1 else None for x in (own, own[-2:])]
        found.append([stage, *seconds, *powers, *gib])
    return {"columns": columns, "rows": found}


def main() -> None:
    """Measure what is not measured yet, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/million"))
    parser.add_argument("--labels", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--held-out", type=int, default=2000, help="documents in dev and in test")
    parser.add_argument("--titles", action="store_true", help="documents; without an encoder")
    parser.add_argument("--make", type=int, help=argparse.SUPPRESS)
    add_json_option(parser)
    options = begin(parser)
    if options.make:
        num_documents = options.make * (1 + options.titles) + 2 * options.held_out
        corpus = SyntheticCorpus(
            num_documents,
            options.make,
            NUM_FEATURES,
            labels_a_document=2 if options.titles else 3,
            words_a_document=TITLE_WORDS if options.titles else 24,
        )
        write_corpus(corpus, options.output / "corpus", options.held_out)
        return
    options.output.mkdir(parents=True, exist_ok=True)
    costs = Costs(options.output / "million.json")
    for labels in options.labels:
        folder = options.output / str(labels)
        folder.mkdir(exist_ok=True)
        measure(labels, options.held_out, folder, costs, titles=options.titles)
    keep(options.json, {"stages": costs.table, "growth": growth(costs.rows)}, seeds=[0])


if __name__ == "__main__":
    main()
