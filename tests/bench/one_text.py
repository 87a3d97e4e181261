"""CPU of an answer beside that of an older commit: a title, a document, and 32 titles at once.

    python tests/bench/one_text.py CORPUS --before COMMIT [--registry FOLDER] [--json FILE]

The older code trains the model, without an encoder and with one thread, unless a registry is given.
Then a process of each code answers the same texts in turns. "ratio" is the median over the rounds
of the CPU of this code over that of the older one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from machine import begin, same_threads
from recording import Table, add_json_option, keep

from longtail.training.data.dataset import open_dataset

ROOT = Path(__file__).parents[2]
DOCUMENT_WORDS, TITLES, LEAST_CPU_S = 737, 32, 0.25
ANSWERS = f"""
import json, sys, time
import longtail
model = longtail.load(sys.argv[1], num_threads=1)
for line in sys.stdin:
    texts, count, started = json.loads(line), 0, time.process_time()
    while time.process_time() < started + {LEAST_CPU_S}:
        answers = [model.predict(each) for each in texts]
        count += len(texts)
    spent = time.process_time() - started
    labels = [[[x.id, x.score, x.probability] for x in answer.labels] for each in answers
              for answer in (each if hasattr(each, "predictions") else [each])]
    print(json.dumps([1000 * spent / count, labels]), flush=True)
"""
"""Answers lists of texts, or of lists of texts: milliseconds of CPU each, and the labels."""


@contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """Give the files of a commit of this repository in a new folder, and remove them."""
    git = [str(which("git")), "worktree"]
    subprocess.run([*git, "add", "--detach", folder, commit], cwd=ROOT, check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", folder], cwd=ROOT, check=True)


def of_code(tree: Path) -> dict[str, str]:
    """Return the environment of processes of this code."""
    return {**os.environ, "PYTHONPATH": str(tree)}


class Answering:
    """A process that answers by the code of a folder."""

    def __init__(self, tree: Path, registry: Path) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", ANSWERS, str(registry.absolute())], env=of_code(tree), cwd=tree,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, texts: Sequence[object]) -> tuple[float, object]:
        """Return milliseconds of CPU for each of these, and the labels."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps(texts), file=self._process.stdin, flush=True)
        spent, labels = json.loads(self._process.stdout.readline())
        return spent, labels

    def end(self) -> None:
        """End it."""
        self._process.communicate()


def texts_of(corpus: Path) -> dict[str, list[object]]:
    """Return what is answered, by its name: first lines, and test documents of one length."""
    found = list(islice(open_dataset(corpus).split("test").texts(), 400))
    titles = [text.strip().splitlines()[0][:120] for text in found]
    words = " ".join(found).split(" ")
    starts = range(0, min(len(words), 8 * DOCUMENT_WORDS), DOCUMENT_WORDS)
    documents = [" ".join(words[start : start + DOCUMENT_WORDS]) for start in starts]
    batches = [titles[start : start + TITLES] for start in range(0, 4 * TITLES, TITLES)]
    return {"title": titles[:40], "document": documents, f"{TITLES} titles": batches}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--before", required=True, metavar="COMMIT")
    parser.add_argument("--registry", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    add_json_option(parser)
    same_threads(1)
    chosen = begin(parser)
    with TemporaryDirectory() as held, worktree(chosen.before, Path(held, "before")) as before:
        registry = chosen.registry or Path(held, "registry")
        if chosen.registry is None:
            command = [sys.executable, "-m", "longtail", "train", chosen.corpus.absolute()]
            command += ["--without-encoder", "--registry", registry, "--work", Path(held, "work")]
            subprocess.run(command, env=of_code(before), cwd=before, check=True)
        codes = [Answering(before, registry), Answering(ROOT, registry)]
        table = Table({"what": "", "before ms": ".2f", "now ms": ".2f", "ratio": ".2f"})
        for name, texts in texts_of(chosen.corpus).items():
            answers = [code(texts)[1] for code in codes]  # the first answers are slower
            assert answers[0] == answers[1], f"{name}: other answers"
            rounds = [[code(texts)[0] for code in codes] for _ in range(chosen.rounds)]
            ratio = statistics.median(now / then for then, now in rounds)
            table.add(name, *map(statistics.median, zip(*rounds, strict=True)), ratio)
        for code in codes:
            code.end()
    keep(chosen.json, {"before": chosen.before, "documents' words": DOCUMENT_WORDS, "cpu": table})


if __name__ == "__main__":
    main()
