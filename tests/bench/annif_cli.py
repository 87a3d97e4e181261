"""Annif's own command line, through its `http` backend, against a model trained from Annif's forms.

    python tests/bench/annif_forms.py FORMS --data ../shared/data
    longtail train FORMS/tate --without-encoder --registry REGISTRY --work WORK
    python tests/bench/annif_cli.py REGISTRY FORMS/tate --annif-python ENV/bin/python

The environment of Annif is one of its own: `python -m venv ENV; ENV/bin/pip install annif`. Annif
loads the vocabulary, asks for suggestions and evaluates on the test documents; its precision is
compared with what the model's own answers give on the same documents.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from itertools import islice
from pathlib import Path
from typing import Any

from machine import begin, same_threads
from recording import Table, add_json_option, keep
from served_process import served

PLACES = 5
PROJECT = """[longtail]
name=Longtail
language=en
backend=http
vocab=subjects
limit=10
endpoint=http://localhost:{port}/v1/projects/longtail/suggest
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("registry", type=Path)
    parser.add_argument("corpus", type=Path, help="with vocabulary.ttl and test.tsv.gz")
    parser.add_argument("--annif-python", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=300)
    add_json_option(parser)
    chosen = begin(parser)
    same_threads(len(os.sched_getaffinity(0)))
    annif = str(chosen.annif_python.parent.resolve() / "annif")
    documents = read_documents(chosen.corpus / "test.tsv.gz", chosen.documents)
    with served(chosen.registry) as service, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "projects.cfg").write_text(PROJECT.format(port=service.port), encoding="utf-8")
        run(
            annif,
            folder,
            "load-vocab",
            "subjects",
            str((chosen.corpus / "vocabulary.ttl").resolve()),
        )
        print(run(annif, folder, "suggest", "--limit", "3", "longtail", stdin=documents[0][0]))
        rows = [f"{text}\t{' '.join(f'<{uri}>' for uri in uris)}" for text, uris in documents]
        (folder / "test.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        theirs = run(annif, folder, "eval", "--limit", str(PLACES), "longtail", "test.tsv")
        ours = precision(service.port, documents)
    found = re.search(rf"Precision@{PLACES}:\s*([\d.]+)", theirs)
    assert found, theirs
    table = Table({"asked by": "", f"P@{PLACES}": ".4f"})
    table.add("Annif's command line", float(found[1]))
    table.add("POST /v1/predict", ours)
    if abs(float(found[1]) - ours) > 1e-3:
        sys.exit("Annif's precision is another than that of the model's own answers")
    keep(chosen.json, {"precision": table.to_json()})


def read_documents(path: Path, most: int) -> list[tuple[str, list[str]]]:
    """Return texts with the URIs of their labels, those without any left out."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = (line.rstrip("\n").split("\t") for line in file)
        pairs = ((text, re.findall("<(.+?)>", uris)) for text, uris in rows)
        return list(islice((pair for pair in pairs if pair[1]), most))


def run(program: str, folder: Path, *arguments: str, stdin: str = "") -> str:
    """Return what a command of Annif printed."""
    done = subprocess.run(
        [program, *arguments], cwd=folder, input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"annif {' '.join(arguments)}: {done.stderr[-2000:]}")
    return done.stdout


def precision(port: int, documents: list[tuple[str, list[str]]]) -> float:
    """Return the precision of the model's own first answers."""
    hits = 0
    for text, uris in documents:
        body = json.dumps({"text": text, "k": PLACES}).encode()
        url = f"http://127.0.0.1:{port}/v1/predict"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own
            labels: list[dict[str, Any]] = json.load(answer)["results"][0]["labels"]
        hits += len({label["id"] for label in labels} & set(uris))
    return hits / (PLACES * len(documents))


if __name__ == "__main__":
    main()
