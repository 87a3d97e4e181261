"""The whole circle over the years of a corpus: answer, be corrected, learn, promote under load.

    python tests/bench/learning_loop.py training/demo_data --work runs/demo-loop    # make demo-loop
    python tests/bench/learning_loop.py <folder of eurlex57k> --work runs/loop --json loop.json

The documents come in the order of the years in their ids. The first part of them trains a model
without an encoder; the others come in steps of some years. The documents of a step are first asked
for their labels, which measures the models that there are, and then learned from, by three arms:

    never      the first model, which stays
    loop       a service answers; each answer is corrected by `POST /v1/feedback`: the best 5 labels
               are accepted or rejected, others added, labels that the model lacks proposed. Then
               `longtail learn` makes a candidate, and `longtail promote` judges it, and promotes
               it or not
    retrained  is trained in full on all documents so far

A label is known from its first document on that is learned from. Documents of the corpus's test
split are never learned from; those so far are what candidates are judged by. Every arm is given the
same: documents of the training and the dev split, and of a label that is new since the start its
name, but no alternative ones. All the while somebody else asks the service, so many times a second.

P@5 is over all documents of a step, R@10 over those with a label that is new since the start, and
of these labels alone. `possible` is the R@10 of one who knows each label that had a document
before. Figures are written as they come, to WORK/steps; the same command goes on from there.
Seconds are of commands beside the load, so compare them with each other.

Bars: no failed request; every candidate that is better is promoted.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from document_stream import CELEX, LEARNED_FROM, Step, cut_by_year, labels_of, write_corpus
from learning_loop_measures import K, Measures, padded
from learning_loop_picture import draw
from load_generator import Asking, at_rate, predict_requests
from machine import begin
from recording import Table, add_json_option, keep
from served_process import Served, served

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.registry import Registry
from longtail.models.files.durable import write_lines_durably
from longtail.models.predict.predictor import Predictor
from longtail.service.client import Client
from longtail.service.http.api_keys import make_key
from longtail.training.data.chunks import chunks
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.data.splits import Document

PARTS = ("asked", "learned", "trained", "done")
"""Parts of a step, whose figures are kept in files of their own."""
ARMS = ("never", "loop", "retrained")
NOT_PROMOTED = "is not promoted, version"
JUDGED = 5
"""Labels of an answer that somebody accepts or rejects."""
_TEXTS_A_REQUEST = 16
_LOAD_S = 3.0
COLUMNS = {
    "years": "", "documents": "", "new": "",
    **{f"P@5, {arm}": ".1f" for arm in ARMS}, **{f"R@10 of new, {arm}": ".1f" for arm in ARMS},
    "possible": ".1f",
}  # fmt: skip
TIMES = {
    "years": "", "candidate": "", "learn, s": ".0f", "promote, s": ".0f", "train, s": ".0f",
    "learn, CPU s": ".0f", "train, CPU s": ".0f", "requests": "", "failed": "",
}  # fmt: skip


@dataclass
class Loop:
    """The stream, and all that is made of it, in one folder.

    Attributes:
        corpus: All documents.
        steps: The start first.
        work: The folder.
        chosen: Options of the command line.
    """

    corpus: Dataset
    steps: list[Step]
    work: Path
    chosen: argparse.Namespace
    started: float = field(default_factory=time.monotonic)

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the labels of the corpus."""
        return [label.id for label in self.corpus.labels]

    @property
    def registry(self) -> Registry:
        """The registry of `never` and `loop`."""
        return Registry(self.work / "registry")

    @property
    def retrained(self) -> Registry:
        """The registry of the arm that is trained again."""
        return Registry(self.work / "retrained")

    def known(self, place: int) -> set[int]:
        """Return the labels that had a document to learn from in a step or before it."""
        return labels_of(x for step in self.steps[: place + 1] for x in step.to_learn)

    def corpus_of(self, place: int) -> Path:
        """Return the folder of all documents to learn from up to a step; made if need be."""
        splits = {
            name: [x for step in self.steps[: place + 1] for x in step.documents[name]]
            for name in LEARNED_FROM
        }
        folder = self.work / "corpora" / str(place)
        known = self.known(place)
        write_corpus(folder, self.corpus, splits, known, known - self.known(0))
        return folder

    def judged_of(self, place: int) -> Path:
        """Return the folder of the documents that are held out of learning up to a step."""
        held_out = [x for step in self.steps[: place + 1] for x in step.documents["test"]]
        folder = self.work / "judged" / str(place)
        write_corpus(folder, self.corpus, {"test": held_out}, set(range(len(self.ids))), set())
        return folder

    def tell(self, what: str) -> None:
        """Print a line with the time."""
        print(f"[{time.monotonic() - self.started:5.0f} s] {what}", file=sys.stderr, flush=True)

    def command(self, *words: object) -> tuple[subprocess.CompletedProcess[str], float, float]:
        """Run a command of Longtail; return it, its seconds, and those of the processor.

        Raises:
            RuntimeError: It failed, otherwise than by promoting nothing.
        """
        self.tell(f"longtail {words[0]} ...")
        before, since = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        line = [sys.executable, "-m", "longtail", *map(str, words)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        seconds, after = time.monotonic() - since, resource.getrusage(resource.RUSAGE_CHILDREN)
        with (self.work / "log").open("a", encoding="utf-8") as log:
            log.write(f"$ longtail {' '.join(map(str, words))}\n{done.stdout}{done.stderr}\n")
        if done.returncode and NOT_PROMOTED not in done.stderr:
            raise RuntimeError(f"longtail {words[0]}: {done.stderr.strip().splitlines()[-1]}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return done, seconds, cpu

    def figures(self, place: int, name: str) -> dict[str, Any]:
        """Return what was kept of a part of a step; nothing where it was not done."""
        path = self.work / "steps" / f"{place}-{name}.json"
        found: dict[str, Any] = {}
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
        return found

    def once(self, place: int, name: str, do: Callable[[], dict[str, Any]]) -> None:
        """Do a part of a step, and keep its figures, unless that was done before."""
        path = self.work / "steps" / f"{place}-{name}.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_lines_durably(path, [json.dumps(do(), indent=1)])

    def train(self, place: int, registry: Registry) -> dict[str, Any]:
        """Train in full on all documents up to a step; return the seconds."""
        words = ["train", self.corpus_of(place), "--without-encoder", "--registry", registry.folder]
        if self.chosen.config:
            words += ["--config", self.chosen.config]
        _, seconds, cpu = self.command(*words, "--work", self.work / "runs" / str(place))
        return {"train, s": seconds, "train, CPU s": cpu}


def main() -> None:
    """Train the start, then go through the steps, and tell what came of it."""
    chosen = options()
    corpus = open_dataset(chosen.corpus)
    steps = cut_by_year(corpus, chosen.year, chosen.start, chosen.steps)
    chosen.work.mkdir(parents=True, exist_ok=True)
    check_plan(chosen)
    loop = Loop(corpus, steps, chosen.work, chosen)
    if not loop.registry.versions():
        loop.tell(f"{told(steps[0])} train the first model")
        loop.train(0, loop.registry)
    left = [place for place in range(1, len(steps)) if not loop.figures(place, "done")]
    if left:
        with asked(loop) as (service, asking, key):
            for place in left:
                go_through(loop, place, service, asking, key)
    report(loop)


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, help="with training, dev and test documents")
    parser.add_argument("--work", type=Path, required=True, help="goes on where it was stopped")
    parser.add_argument("--steps", type=int, default=4, help="after the start")
    parser.add_argument("--start", type=float, default=0.5, help="share of the documents")
    parser.add_argument("--year", default=CELEX, help="pattern of ids; its first group")
    parser.add_argument("--config", type=Path, help="YAML file of the trainings")
    parser.add_argument("--rate", type=float, default=15, help="requests a second of the load")
    parser.add_argument("--picture", type=Path, help="else WORK/learning-loop.png")
    add_json_option(parser)
    return begin(parser)


def check_plan(chosen: argparse.Namespace) -> None:
    """Note what decides the result; refuse a folder of another run.

    Raises:
        ValueError: It is one.
    """
    names = ("corpus", "steps", "start", "year", "config")
    plan = json.dumps({name: str(getattr(chosen, name)) for name in names}, indent=1)
    path = chosen.work / "plan.json"
    if path.exists() and path.read_text(encoding="utf-8") != plan + "\n":
        raise ValueError(f"{path}: the folder holds another run; name another one with --work")
    write_lines_durably(path, [plan])


@contextmanager
def asked(loop: Loop) -> Iterator[tuple[Served, Asking, str]]:
    """Serve the registry of the loop, and ask it all the while.

    Yields:
        The service, who asks, and an admin key.
    """
    key, entry = make_key("bench")
    words = ["--admin-keys", entry, "--watch-interval-s", "1", "--feedback-texts"]
    words += ["--feedback", str(loop.work / "feedback"), "--max-text-characters", "10000000"]
    texts = [each.text[:2000] for each in loop.steps[0].documents["test"][:500]]
    requests, rate = predict_requests(texts, k=5), loop.chosen.rate
    with (
        served(loop.registry.folder, *words) as service,
        Asking(lambda: at_rate(service.port, requests, rate, _LOAD_S, connections=4)) as asking,
    ):
        yield service, asking, key


def go_through(loop: Loop, place: int, service: Served, asking: Asking, key: str) -> None:
    """Measure a step, let the arms learn it if another one follows, and write the figures."""
    before = Counter(asking.statuses)
    url = f"http://127.0.0.1:{service.port}"
    loop.once(place, "asked", lambda: ask(loop, place, url))
    if place + 1 < len(loop.steps):
        loop.once(place, "said", lambda: say(loop, place, url, key))
        loop.once(place, "learned", lambda: learn_and_promote(loop, place, url))
        loop.once(place, "trained", lambda: loop.train(place, loop.retrained))
    counted = asking.statuses - before
    failed = counted.total() - counted[200]
    loop.once(place, "done", lambda: {"requests": counted.total(), "failed": failed})


def ask(loop: Loop, place: int, url: str) -> dict[str, Any]:
    """Let all arms answer the documents of a step; return the figures, and what is said of it."""
    step = loop.steps[place]
    loop.tell(f"{told(step)} ask for their labels")
    texts = [each.text for each in step.all]
    newest = loop.retrained.open() if loop.retrained.versions() else loop.registry.open(1)
    with Client(url) as client:
        answers, version = answers_of(client, texts)
    column = {label_id: row for row, label_id in enumerate(loop.ids)}
    answers_by_arm = {
        "never": rank(loop.registry.open(1), texts),
        "loop": answers,
        "retrained": rank(newest, texts),
    }
    ranked = {
        arm: np.array([padded([column[label_id] for label_id in found]) for found in each])
        for arm, each in answers_by_arm.items()
    }
    known = {label.id for label in loop.registry.open(version).catalogue}
    names = {label.id: label.name for label in loop.corpus.labels}
    said = [
        entry_of(document, [loop.ids[row] for row in document.labels], found, known, names)
        | {"version": version}
        for document, found in zip(step.to_learn, answers, strict=False)  # they were asked first
    ]
    known_before = (loop.known(0), loop.known(place - 1))
    measures = Measures(step, len(loop.ids), *known_before, ranked)
    return {**measures.to_json(), "said": said}


def told(step: Step) -> str:
    """Return years and sizes of a step in words."""
    first, last = step.years
    return f"{first}-{last}, {len(step.all)} documents:"


def answers_of(client: Client, texts: Sequence[str]) -> tuple[list[list[str]], int]:
    """Return the ids of the best labels of each text as a service answers, and its version.

    Raises:
        RuntimeError: Several versions answered.
    """
    found: list[list[str]] = []
    versions = set()
    for first in range(0, len(texts), _TEXTS_A_REQUEST):
        answer = client.predict(list(texts[first : first + _TEXTS_A_REQUEST]), k=K)
        versions.add(answer.model.version)
        found += [[label.id for label in result.labels] for result in answer.results]
    if len(versions) > 1:
        raise RuntimeError(f"the versions {sorted(versions)} answered; expected one")
    return found, versions.pop()


def rank(bundle: Bundle, texts: Sequence[str]) -> list[list[str]]:
    """Return the ids of the best labels of each text, by the default scorer."""
    predictor = Predictor.of_bundle(bundle)
    results = (result for chunk in chunks(texts) for result in predictor.predict(chunk, k=K))
    return [[label.id for label in result.labels] for result in results]


def say(loop: Loop, place: int, url: str, key: str) -> dict[str, Any]:
    """Send what is said of the answers to a step.

    Raises:
        RuntimeError: The service refuses it.
    """
    said = loop.figures(place, "asked")["said"]
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        for first in range(0, len(said), _TEXTS_A_REQUEST):
            entries = said[first : first + _TEXTS_A_REQUEST]
            answer = client.post("/v1/feedback", json={"entries": entries})
            if answer.status_code != 200:
                raise RuntimeError(f"feedback: {answer.status_code} {answer.text[:500]}")
    return {"entries": len(said)}


def entry_of(
    document: Document, right: list[str], found: list[str], known: set[str], names: dict[str, str]
) -> dict[str, Any]:
    """Return what one who knows the labels says of an answer."""
    judged = found[:JUDGED]
    return {
        "id": document.id,
        "document_id": document.id,
        "text": document.text,
        "accepted": [x for x in judged if x in right],
        "rejected": [x for x in judged if x not in right],
        "added": [x for x in right if x in known and x not in judged],
        "proposed": [{"id": x, "name": names[x]} for x in right if x not in known],
    }


def learn_and_promote(loop: Loop, place: int, url: str) -> dict[str, Any]:
    """Make a candidate of the feedback, and promote it if it may be."""
    registry = loop.registry.folder
    done, seconds, cpu = loop.command(
        "learn", loop.corpus_of(0), "--feedback", loop.work / "feedback",
        "--registry", registry, "--work", loop.work / "learn", "--no-activate",
    )  # fmt: skip
    candidate = int(re.match(r"Version (\d+) ", done.stdout)[1])  # type: ignore[index]
    figures: dict[str, Any] = {"learn, s": seconds, "learn, CPU s": cpu}
    figures["learned"] = done.stdout.splitlines()[1:-1]
    if candidate == loop.registry.current():  # by a run that was stopped then
        return figures | {"candidate": "promoted"}
    done, seconds, _ = loop.command(
        "promote", "--candidate", candidate, "--registry", registry,
        "--data", loop.judged_of(place), "--split", "test", "--not-worse",
    )  # fmt: skip
    figures |= {"promote, s": seconds, "candidate": "refused" if done.returncode else "promoted"}
    figures["told"] = (done.stderr if done.returncode else done.stdout).strip().splitlines()[-1]
    loop.tell(f"version {candidate}: {figures['told']}")
    with Client(url) as client:
        while not any(
            x.default and x.version == loop.registry.current() for x in client.models().models
        ):
            time.sleep(1)
    return figures


def report(loop: Loop) -> None:
    """Print the tables, draw the picture, and keep both."""
    rows = []
    for place in range(1, len(loop.steps)):
        parts = [loop.figures(place, name) for name in PARTS]
        rows.append({name: x for part in parts for name, x in part.items() if name != "said"})
    quality = Table(COLUMNS)
    for row in rows:
        years = f"{row['years'][0]}-{row['years'][1]}"
        quality.add(
            years, row["documents"], row["with new labels"], *(row[x] for x in [*COLUMNS][3:])
        )
    times = Table(TIMES)
    for row in rows:
        years = f"{row['years'][0]}-{row['years'][1]}"
        times.add(years, row.get("candidate"), *(row.get(x) for x in [*TIMES][2:]))
    print(f"\nfailed requests: {sum(row['failed'] for row in rows)} (bar: 0)")
    picture = loop.chosen.picture or loop.work / "learning-loop.png"
    draw(rows, picture)
    print(f"Picture: {picture}")
    keep(loop.chosen.json, {"quality": quality, "times": times, "steps": rows}, seeds=[0])


if __name__ == "__main__":
    main()
