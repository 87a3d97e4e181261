"""A registry of tiny real bundles, a predictor without weights, and clients of both."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from longtail.models.bundle.bundle import Bundle, write_bundle
from longtail.models.bundle.manifest import EncoderInfo, Manifest
from longtail.models.bundle.registry import Registry
from longtail.models.bundle.trained_on import PROBES_NAME, probes_to_jsonl
from longtail.models.errors import RequestError
from longtail.models.explain import LabelDetails
from longtail.models.labels.catalogue import Label, LabelCatalogue
from longtail.models.labels.search import LabelSearch
from longtail.models.labels.selection import LabelSelector
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.models.ranking.top_k import IndexChoice
from longtail.models.results import (
    BlendedScorer,
    FoundName,
    Keyword,
    LabelExplanation,
    NearLabel,
    Prediction,
    ScoredLabel,
    ScoreExplanation,
    SimilarDocument,
    TokenContribution,
    TokenExplanation,
    with_explanations,
)
from longtail.service.app import create_app
from longtail.service.http.api_keys import make_key
from longtail.service.server import uvicorn_options
from longtail.service.settings import Settings

NUM_LABELS = 8
EXPLANATION = LabelExplanation(
    tokens=TokenExplanation((TokenContribution("x", 0.5, ((0, 1),)),), rest=0.25, bias=-1.0),
    keywords=(Keyword("x", 2.0),),
    nearest=(NearLabel("L1", "Label 1", 0.75),),
    training_count=3,
    scores=(ScoreExplanation("retrieval", 1.0, base=0.5, correction=0.25, tail_dial=0.25),),
    name=FoundName("Name", is_own_name=False, manner="phrase", count=2, in_title=True),
    documents=(SimilarDocument("D7", similarity=0.5, share=0.75),),
    blend=(BlendedScorer("sparse", weight=1.5, contribution=-0.25),),
)


def _leave_out_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches for garbage take a second with them; `test_garbage` has those of a service."""
    monkeypatch.setattr(
        "longtail.service.versions.redeploy.gc", SimpleNamespace(freeze=lambda: None)
    )
    for module in ("redeploy", "changes"):
        monkeypatch.setattr(f"longtail.service.versions.{module}.collect_cycles", gc.collect)
    for name in os.environ:
        if name.startswith("LONGTAIL_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _without_libraries_and_settings(monkeypatch):
    _leave_out_the_libraries(monkeypatch)


@dataclass(frozen=True)
class FakeBatch:
    texts: list[str]

    def take(self, rows: Sequence[int]) -> FakeBatch:
        return FakeBatch([self.texts[row] for row in rows])

    @classmethod
    def joined(cls, batches: Sequence[FakeBatch]) -> FakeBatch:
        return cls([text for batch in batches for text in batch.texts])


@dataclass
class FakeScorers:
    selector: LabelSelector
    names: tuple[str, ...] = ("retrieval", "sparse")
    default: str = "retrieval"
    index_choices: dict[str, IndexChoice] = field(
        default_factory=lambda: {"retrieval": IndexChoice("torch", 1.5)}
    )

    def needs_encoder(self, scorer: str) -> bool:
        return scorer == "retrieval"


class FakePredictor:
    """Scores label i of a text of n characters with n - i, and keeps count of its calls.

    A text has as many tokens as words, of which 100 are read; all are known but "unknown".
    """

    parts = SimpleNamespace(fitted={})
    max_tokens = 100
    batch_tokens = 64
    padding_cost = 1.0
    device = "cpu"
    encoder_precision = "float32"

    def __init__(self, bundle: Bundle) -> None:
        self.left_out = bundle.left_out
        self.catalogue = bundle.catalogue
        names = tuple(x for x in FakeScorers.names if x not in self.left_out)
        self.scorers = FakeScorers(
            LabelSelector(self.catalogue), names, bundle.manifest.default_scorer
        )
        self.label_search = LabelSearch(self.catalogue)
        self.calls: list[list[str]] = []
        self.threads: set[str] = set()

    lacks = Predictor.lacks

    def prepare_label_search(self) -> LabelSearch:
        return self.label_search

    def cleaned(self, text: str) -> str:
        return text

    def read(self, texts: Sequence[str]) -> FakeBatch:
        return FakeBatch(list(texts))

    def prepare(self, batch: FakeBatch, scorer: str | None = None) -> list[int]:
        return [min(self.max_tokens, len(text.split())) for text in batch.texts]

    def encode(self, batch: FakeBatch) -> None:
        pass

    def predict_batch(self, batch: FakeBatch, options: RankingOptions) -> list[Prediction]:
        keywords = {field.name: getattr(options, field.name) for field in fields(options)}
        return self.predict(batch.texts, **keywords)

    def predict(self, texts: Sequence[str], **keywords: Any) -> list[Prediction]:
        options = RankingOptions(**keywords)
        self.calls.append(list(texts))
        self.threads.add(threading.current_thread().name)
        names = self.scorers.names
        if options.scorer not in (None, *names):
            raise RequestError(f"unknown scorer {options.scorer!r}; expected one of {names}")
        if options.k > len(self.catalogue):
            raise RequestError(f"k is {options.k}; expected at most {len(self.catalogue)}")
        selection = self.scorers.selector.select(options.label_filter)
        rows = range(len(self.catalogue)) if selection is None else selection.labels.tolist()
        least = 0.5 if options.threshold == "auto" else options.threshold or 0.0
        found = [self._predict_one(text, rows[: options.k], least) for text in texts]
        if options.explain:
            return with_explanations(found, [[EXPLANATION] * len(x.labels) for x in found])
        return found

    def _predict_one(self, text: str, rows: Sequence[int], threshold: float) -> Prediction:
        labels = (
            ScoredLabel(
                self.catalogue[i].id,
                self.catalogue[i].name,
                float(len(text) - i),
                1 / (i + 1),
                index=i,
            )
            for i in rows
        )
        kept = tuple(x for x in labels if x.probability >= threshold)
        words = text.split()
        read = words[: self.max_tokens]
        known = sum(word != "unknown" for word in read)
        return Prediction(
            kept, num_tokens=len(read), exact=True, truncated=len(read) < len(words),
            num_text_tokens=len(words), known_tokens=known,
        )  # fmt: skip

    def describe(self, label: int) -> LabelDetails:
        self.threads.add(threading.current_thread().name)
        return LabelDetails(
            label, self.catalogue[label], EXPLANATION.keywords, EXPLANATION.nearest,
            self.scorers.names,
        )  # fmt: skip


@dataclass
class Loader:
    """Loads fake predictors: at once, when `gate` opens, or not at all."""

    gate: threading.Event | None = None
    failure: Exception | None = None
    predictor_class: type[FakePredictor] = FakePredictor
    loaded: list[FakePredictor] = field(default_factory=list)

    def __call__(self, bundle: Bundle) -> FakePredictor:
        if self.gate is not None:
            assert self.gate.wait(60)
        if self.failure is not None:
            raise self.failure
        self.loaded.append(self.predictor_class(bundle))
        return self.loaded[-1]


@pytest.fixture
def publish(tmp_path):
    """Publish a tiny bundle in the registry of this test; returns its version."""
    return partial(publish_one, tmp_path)


def publish_one(
    folder: Path,
    *,
    activate: bool = True,
    probes: Sequence[str] = (),
    default_scorer: str = "retrieval",
    **metrics: float,
) -> int:
    """Publish a tiny bundle in the registry below a folder; returns its version."""
    encoder = folder / "encoder"
    encoder.mkdir(exist_ok=True)
    (encoder / "config.json").write_text("{}")
    manifest = Manifest(
        label_count=NUM_LABELS, training_document_count=3,
        encoder=EncoderInfo(name="fake", dim=2, max_tokens=16, sha256="0" * 64),
        scorers=("retrieval", "sparse"), default_scorer=default_scorer, training={"seed": 7},
        data_fingerprint="f" * 64, metrics={"retrieval": metrics},
    )  # fmt: skip
    vectors = {"vectors": np.zeros((NUM_LABELS, 2), dtype=np.float32)}

    def write(bundle: Path) -> Manifest:
        return write_bundle(
            bundle,
            manifest=manifest,
            catalogue=LabelCatalogue(Label(f"L{i}", f"Label {i}") for i in range(NUM_LABELS)),
            tensors={"retrieval.safetensors": vectors},
            texts={PROBES_NAME: probes_to_jsonl(probes)} if probes else {},
            encoder_folder=encoder,
        )

    return Registry(folder / "registry").publish(write, activate=activate)


@pytest.fixture(scope="session")
def two_versions(tmp_path_factory):
    """The folder of a registry with versions 1 and 2, the second one current; not to be changed."""
    folder = tmp_path_factory.mktemp("two-versions")
    publish_one(folder, p_at_1=0.5)
    publish_one(folder, p_at_1=0.6)
    return folder / "registry"


@pytest.fixture
def registry(two_versions, tmp_path):
    """A copy of it."""
    shutil.copytree(two_versions, tmp_path / "registry", symlinks=True)
    return Registry(tmp_path / "registry")


@contextmanager
def started(
    registry: Path, loader: Loader | None = None, *, wait: bool = True, **settings: object
) -> Iterator[TestClient]:
    """Start the service; by default wait for the models."""
    settings = {"watch_interval_s": 0} | settings  # a test looks when it wants to
    app = create_app(Settings(registry=registry, **settings), load=loader or Loader())
    with TestClient(app, raise_server_exceptions=False, follow_redirects=False) as client:
        if wait:
            wait_until_loaded(client)
        yield client


@pytest.fixture
def open_client(registry):
    """Start the service with a loader and settings; by default wait for the models."""
    return partial(started, registry.folder)


@pytest.fixture
def open_admin(open_client):
    """The same, whose client may change what is served."""
    key, entry = make_key("tester")

    @contextmanager
    def start(loader: Loader | None = None, **options: Any) -> Iterator[TestClient]:
        with open_client(loader, admin_keys=entry, **options) as client:
            client.headers["Authorization"] = f"Bearer {key}"
            yield client

    return start


@pytest.fixture(scope="module")
def client(two_versions):
    """A service that the tests of a module share."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        _leave_out_the_libraries(monkeypatch)
        with started(two_versions) as client:
            yield client


@pytest.fixture
def fresh_client(open_client):
    """A service of this test's own, whose counters begin at 0."""
    with open_client() as client:
        yield client


@pytest.fixture
def make_loader():
    return Loader


@pytest.fixture
def fake_predictor():
    return FakePredictor


@pytest.fixture
def wait_for_loading():
    return wait_until_loaded


def wait_until_loaded(client: TestClient) -> None:
    """Wait until loading has ended, well or badly."""
    deadline = time.monotonic() + 300
    while "still loading" in client.get("/readyz").text:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def open_server(start_server, registry):
    """Start the service on a port of this machine; yields its URL."""
    return lambda loader=None, **settings: start_server(
        loader, **{"registry": registry.folder} | settings
    )


@pytest.fixture(scope="session")
def start_server():
    """The same, of a registry that is among the settings."""

    @contextmanager
    def start(loader: Loader | None = None, **settings: object) -> Iterator[str]:
        chosen = Settings(**{"watch_interval_s": 0, "log_level": "warning"} | settings)
        with listening(create_app(chosen, load=loader or Loader()), chosen) as url:
            yield url

    return start


@contextmanager
def listening(app: FastAPI, settings: Settings) -> Iterator[str]:
    """Serve on a port of this machine; yields the URL once a model is loaded."""
    # Makes the routes, else each server does it in its thread at its first request; FastAPI
    # silences warnings meanwhile, for one thread at a time.
    app.openapi()
    options = uvicorn_options(settings) | {"port": 0, "timeout_graceful_shutdown": 1}
    server = uvicorn.Server(uvicorn.Config(app, **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 300
        while not server.started or app.state.service.manager.served is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def server(start_server, two_versions):
    with pytest.MonkeyPatch.context() as monkeypatch:
        _leave_out_the_libraries(monkeypatch)
        with start_server(registry=two_versions) as url:
            yield url


@pytest.fixture
def keys():
    """Two keys, each with its entry."""
    return [make_key("one"), make_key("two")]
