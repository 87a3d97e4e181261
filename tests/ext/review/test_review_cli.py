"""`longtail review`: a version that counts a reviewer's scores, and when there is none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

import longtail
from longtail.models.bundle.registry import Registry
from longtail.models.edit.rewriting import rewrite
from longtail.models.errors import BundleCorruptError, ConfigError
from longtail.models.fitted.promises import PROMISES
from longtail.models.fitted.review import REVIEW
from longtail.models.kinds.storage import read_parts
from longtail.service.app import create_app
from longtail.service.settings import Settings
from tests.bench.reviewers import standing_in


@pytest.fixture
def registry(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained.registry.folder, tmp_path / "registry"))


@pytest.fixture
def call(registry, tiny_corpus, monkeypatch) -> Callable[..., Result]:
    monkeypatch.setattr("longtail.ext.review.reviewed.LEAST_DOCUMENTS", 10)

    def run(command: str, *arguments: object) -> Result:
        given = [command, tiny_corpus, "--registry", registry, *arguments]
        return CliRunner().invoke(longtail.app, [*map(str, given)], catch_exceptions=False)

    return run


@pytest.fixture
def oracle(tiny_corpus) -> Callable[[str, str], float]:
    """Knows the labels of all documents by the names of these."""
    names = {each["id"]: each["name"] for each in read(tiny_corpus / "labels.jsonl")}
    documents = [*read(tiny_corpus / "dev.jsonl"), *read(tiny_corpus / "test.jsonl")]
    right = {x["text"][:4000]: {names[label] for label in x["labels"]} for x in documents}
    return lambda text, candidate: float(candidate in right[text])


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_perfect_reviewer_is_fitted_and_served(call, registry, oracle, tiny_corpus):
    call("threshold", "--precision", 0.1, "--confidence", 0.2)
    with standing_in(oracle, ["busy"]) as server:
        asked = ("--reviewer", "rerank", "--address", server.url, "--candidates", 30)
        figures = json.loads(call("review", *asked, "--json", "-").stdout)["figures"]
        before, after = figures["evaluation"]["scorers"].values()
        assert after["all"]["values"]["P@1"] >= before["all"]["values"]["P@1"]
        bundle = Registry(registry).open("current")
        assert REVIEW.of(read_parts(bundle)).num_candidates == 30
        assert PROMISES.read(bundle)
        settings = Settings(registry=registry, reviewer="rerank", review_address=server.url)
        with TestClient(create_app(settings)) as client:
            while client.get("/readyz").status_code != 200:
                pass
            for document in read(tiny_corpus / "test.jsonl")[:5]:
                body = {"text": document["text"], "k": 30, "review": True, "accept": True}
                (result,) = client.post("/v1/predict", json=body).json()["results"]
                assert result["reviewed"]
                is_right = [oracle(document["text"], x["name"]) for x in result["labels"]]
                assert is_right == sorted(is_right, reverse=True)
                assert all("accepted" in x for x in result["labels"])


@pytest.mark.parametrize(
    ("score", "faults", "options", "words"),
    [
        (lambda text, name: crc32((text + name).encode()) % 97, [], (), "from chance"),
        (lambda *_: 0.0, ["refused"] * 99, (), "answers with 401"),
        (lambda *_: 0.0, ["silent"] * 99, (), "no scores within"),
        (lambda *_: 0.0, [], ("--scorer", "magic"), "expected one of"),
        (lambda *_: 0.0, [], ("--documents", 5), "at least 10"),
    ],
)
def test_a_reviewer_that_adds_nothing_publishes_nothing(
    call, registry, monkeypatch, score, faults, options, words
):
    monkeypatch.setattr("longtail.ext.review.reviewed.TIMEOUT_S", 0.1 if faults else 60.0)
    with standing_in(score, faults) as server, pytest.raises(ConfigError, match=words):
        call("review", "--reviewer", "rerank", "--address", server.url, *options)
    assert Registry(registry).versions() == [1]


def test_a_review_of_a_scorer_that_is_not_there_is_refused(call, registry, oracle):
    with standing_in(oracle) as server:
        call("review", "--reviewer", "rerank", "--address", server.url, "--candidates", 30)
    bundle = Registry(registry).open("current")
    text = bundle.text(REVIEW.file).replace(bundle.manifest.default_scorer, "magic")
    number = Registry(registry).publish(
        lambda to: rewrite(to, bundle, bundle.manifest, bundle.catalogue, {}, {REVIEW.file: text})
    )
    with pytest.raises(BundleCorruptError, match="magic"):
        read_parts(Registry(registry).open(number))


def test_a_reviewer_is_sent_texts_without_html_where_the_model_reads_them_so(tmp_path, monkeypatch):
    monkeypatch.setattr("longtail.ext.review.reviewed.LEAST_DOCUMENTS", 3)
    monkeypatch.setattr("longtail.ext.review.reviewed.Reviewed.check_gain", lambda _: None)
    names = ["olive", "steel", "cotton"]
    texts = [f"<p>Duties on {names[row % 3]} &amp; <em>no. {row}</em></p>" for row in range(300)]
    labels = [[names[row % 3]] for row in range(300)]
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split, rows in {
        "train": range(200),
        "dev": range(200, 250),
        "test": range(250, 300),
    }.items():
        lines = [json.dumps({"text": texts[x], "labels": labels[x]}) for x in rows]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    registry = tmp_path / "registry"
    longtail.train(folder, registry=registry, work=tmp_path / "run", scorers=["sparse"])
    sent = []

    def score(text: str, candidate: str) -> float:
        sent.append(text)
        return float(candidate in text)

    with standing_in(score) as server:
        given = ["review", folder, "--registry", registry, "--reviewer", "rerank"]
        given += ["--address", server.url, "--candidates", 2]
        CliRunner().invoke(longtail.app, [*map(str, given)], catch_exceptions=False)
        num_fitted = len(sent)
        settings = Settings(registry=registry, reviewer="rerank", review_address=server.url)
        with TestClient(create_app(settings)) as client:
            while client.get("/readyz").status_code != 200:
                pass
            body = {"text": texts[299], "k": 2, "review": True}
            (result,) = client.post("/v1/predict", json=body).json()["results"]
        assert result["reviewed"]
    assert len(sent) > num_fitted > 0
    assert not [text for text in sent if "<" in text or "&amp;" in text]
    assert "Duties on cotton & no. 299" in " ".join(sent[-1].split())
