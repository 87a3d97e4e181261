"""Requests a second of the service and of two peers, on one machine with the same texts.

    python tests/bench/service_against_peers.py REGISTRY \\
        --infinity-python A/bin/python --model FOLDER --annif-python B/bin/python

`infinity-emb` serves the same MiniLM for embeddings alone; Longtail ranks labels too, by the scorer
`classifier` or another dense one. Both take single titles, with one number of threads.

Annif suggests labels by omikuji (Parabel), served by gunicorn with two workers; Longtail by the
scorer `sparse`, or what `--annif-scorer` says. Both were trained on the demo's training split, and
are asked for five labels of each document of its test split, title and content, or by
`--annif-texts` the title alone. P@5 is that of their answers.

Each peer lives in an environment of its own: `pip install 'infinity-emb[server,torch]'`; `pip
install annif omikuji`, and NLTK's `punkt_tab` where NLTK finds it. A peer without its option is
left out. Service and peer take turns, several rounds each; what is compared are their best rounds.
Longtail is one process with a thread a core; with `--processes 2` two, which share the model's
pages and half the connections each, as Annif's two workers do.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from load_generator import asked, post, predict_requests, run
from machine import begin, same_threads
from recording import add_json_option, keep
from served_process import Served, served

DEMO = Path(__file__).parents[2] / "training" / "demo_data"
PLACES = 5
PROJECT = "omikuji"
PROJECT_FILE = f"""[{PROJECT}]
name=omikuji Parabel
language=en
backend=omikuji
analyzer=snowball(english)
vocab=demo(en)
limit=100
cluster_balanced=True
cluster_k=2
max_depth=20
"""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("--infinity-python", type=Path)
    parser.add_argument("--model", type=Path, help="folder of the encoder that infinity serves")
    parser.add_argument("--dtype", default="bfloat16", help="of the encoder, for both")
    parser.add_argument("--scorer", default="classifier", help="against infinity")
    parser.add_argument("--annif-python", type=Path)
    parser.add_argument("--annif-scorer", default="sparse", help="against Annif")
    parser.add_argument("--annif-texts", choices=("titles", "documents"), default="documents")
    parser.add_argument("--processes", type=int, default=1, help="of Longtail, against Annif")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    add_json_option(parser)
    chosen = begin(parser)
    same_threads(chosen.threads)
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    figures = {}
    if chosen.infinity_python:
        figures["infinity"] = against_infinity(chosen)
    if chosen.annif_python:
        figures["annif"] = against_annif(chosen)
    keep(chosen.json, figures)


def against_infinity(chosen: argparse.Namespace) -> list[dict[str, float | str]]:
    """Return the comparison with embeddings alone."""
    titles = [document["title"] for document in read_split("tst")]
    theirs = [
        post("/embeddings", json.dumps({"model": "m", "input": [title]}).encode())
        for title in titles
    ]
    ours = predict_requests(titles, scorer=chosen.scorer, k=PLACES)
    options = ("--num-threads", str(chosen.threads), "--precision", chosen.dtype)
    with served(chosen.registry, *options) as service, infinity(chosen) as peer:
        rates = best_rates(chosen, {"longtail": ([service], ours), "infinity": ([peer], theirs)})
    print(f"\nLongtail ({chosen.scorer}) over infinity-emb (embeddings alone), {chosen.dtype}:")
    print(f"{rates['longtail'] / rates['infinity']:.2f} x the requests a second (bar: 1.0)\n")
    return [{"service": name, "requests a second": rate} for name, rate in rates.items()]


def against_annif(chosen: argparse.Namespace) -> list[dict[str, float | str]]:
    """Return the comparison with Annif's suggestions by omikuji."""
    documents = read_split("tst")
    is_whole = chosen.annif_texts == "documents"
    texts = [text_of(document) if is_whole else document["title"] for document in documents]
    ours = predict_requests(texts, scorer=chosen.annif_scorer, k=PLACES)
    theirs = [
        post(
            f"/v1/projects/{PROJECT}/suggest",
            urllib.parse.urlencode({"text": text, "limit": PLACES}).encode(),
            "application/x-www-form-urlencoded",
        )
        for text in texts
    ]
    options = ("--num-threads", str(chosen.threads))
    with ExitStack() as stack:
        services = [
            stack.enter_context(served(chosen.registry, *options)) for _ in range(chosen.processes)
        ]
        peer = stack.enter_context(annif(chosen))
        precisions = {
            "longtail": precision(services[0], ours, documents, found_by_longtail),
            "annif": precision(peer, theirs, documents, found_by_annif),
        }
        rates = best_rates(chosen, {"longtail": (services, ours), "annif": ([peer], theirs)})
    what = f"{chosen.annif_scorer}) over Annif (omikuji, two workers), {chosen.annif_texts}"
    print(f"\nLongtail ({what}:")
    print(f"{rates['longtail'] / rates['annif']:.2f} x the requests a second (bar: 2.0)")
    for name, value in precisions.items():
        print(f"{name}: P@{PLACES} {100 * value:.2f} %, test split of the demo")
    return [
        {"service": name, "requests a second": rates[name], f"P@{PLACES}": 100 * precisions[name]}
        for name in rates
    ]


def best_rates(
    chosen: argparse.Namespace, peers: dict[str, tuple[Sequence[Served], list[bytes]]]
) -> dict[str, float]:
    """Return the best requests a second of each, of its processes together, in turns."""
    best = dict.fromkeys(peers, 0.0)
    for name, (processes, requests) in peers.items():
        run(asked([each.port for each in processes], requests, chosen.connections, 3))  # warm
        print(f"{name}: warm", flush=True)
    for number in range(chosen.rounds):
        for name, (processes, requests) in peers.items():
            loads = run(
                asked(
                    [each.port for each in processes], requests, chosen.connections, chosen.seconds
                )
            )
            rate = sum(load.rate for load in loads)
            best[name] = max(best[name], rate)
            p99 = max(1e3 * load.percentile(200, 99) for load in loads)
            memory = sum(each.memory_mib() for each in processes)
            print(
                f"round {number}, {name}: {rate:.1f} requests/s, "
                f"{[dict(load.statuses) for load in loads]}, p99 {p99:.0f} ms, "
                f"{chosen.connections} connections, {memory:.0f} MiB",
                flush=True,
            )
    return best


@contextmanager
def infinity(chosen: argparse.Namespace) -> Iterator[Served]:
    """Serve the encoder by infinity-emb.

    Yields:
        What to talk to.
    """
    program = chosen.infinity_python.parent / "infinity_emb"
    command = [str(program), "v2", "--model-id", str(chosen.model), "--served-model-name", "m"]
    command += ["--engine", "torch", "--device", "cpu", "--dtype", chosen.dtype]
    command += ["--no-bettertransformer", "--log-level", "warning"]
    with running(command, "/health") as peer:
        yield peer


@contextmanager
def annif(chosen: argparse.Namespace) -> Iterator[Served]:
    """Train omikuji by Annif on the demo, and serve it by gunicorn with two workers.

    Yields:
        What to talk to.
    """
    bin_folder = chosen.annif_python.parent
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "projects.cfg").write_text(PROJECT_FILE, encoding="utf-8")
        rows = [f"<urn:{i}>\t{label}" for i, label in enumerate(read_labels())]
        (folder / "labels.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        with gzip.open(folder / "train.tsv.gz", "wt", encoding="utf-8") as file:
            for document in read_split("trn"):
                uris = " ".join(f"<urn:{i}>" for i in document["target_ind"])
                text = " ".join(text_of(document).split())
                file.write(f"{text}\t{uris}\n")
        for arguments in (
            ["load-vocab", "--language", "en", "demo", "labels.tsv"],
            ["train", PROJECT, "train.tsv.gz"],
        ):
            subprocess.run([str(bin_folder / "annif"), *arguments], cwd=folder, check=True)
        command = [str(bin_folder / "gunicorn"), "--workers", "2", "--chdir", name]
        command += ["--worker-class", "uvicorn.workers.UvicornWorker"]
        with running([*command, "annif:create_app()"], "/v1/projects", binds=True) as peer:
            yield peer


@contextmanager
def running(command: list[str], path: str, *, binds: bool = False) -> Iterator[Served]:
    """Run a server on a free port until it has answered, and end it at last.

    Yields:
        What to talk to.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = ["--bind", f"127.0.0.1:{port}"] if binds else ["--port", str(port)]
    process = subprocess.Popen([*command, *where], env=os.environ)
    try:
        deadline = time.monotonic() + 180
        while not answers(port, path):
            assert process.poll() is None and time.monotonic() < deadline, "it did not start"
            time.sleep(0.3)
        yield Served(port, process.pid)
    finally:
        process.terminate()
        process.wait()


def answers(port: int, path: str) -> bool:
    """Whether a server is up."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10):
            return True
    except OSError:
        return False


def precision(
    peer: Served, requests: Sequence[bytes], documents: list[dict[str, Any]], found_in: Any
) -> float:
    """Return P@5 of the answers to one request a document."""
    hits = 0
    for request, document in zip(requests, documents, strict=True):
        head, _, body = request.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        media_type = next(line for line in lines if line.startswith("Content-Type")).split()[1]
        url = f"http://127.0.0.1:{peer.port}{lines[0].split()[1]}"
        asked = urllib.request.Request(url, body, {"Content-Type": media_type})
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - our own
            hits += len(found_in(json.load(answer)) & set(document["target_ind"]))
    return hits / (PLACES * len(documents))


def found_by_longtail(answer: dict[str, Any]) -> set[int]:
    """Return the labels by place in the demo's list."""
    place = {label: i for i, label in enumerate(read_labels())}
    return {place[label["name"]] for label in answer["results"][0]["labels"]}


def found_by_annif(answer: dict[str, Any]) -> set[int]:
    """Return the labels by place in the demo's list."""
    return {int(label["uri"].removeprefix("urn:")) for label in answer["results"]}


def read_split(name: str) -> list[dict[str, Any]]:
    """Return the documents of a split of the demo."""
    with gzip.open(DEMO / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_labels() -> list[str]:
    """Return the names of the demo's labels."""
    with gzip.open(DEMO / "lbl.json.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line)["title"] for line in file]


def text_of(document: dict[str, Any]) -> str:
    """Return title and content."""
    return f"{document['title']}\n{document['content']}"


if __name__ == "__main__":
    main()
