"""Generated corpora go the whole way: train, evaluate, describe, report, predict, serve.

A few by default, always the same. For many (`make fuzz` takes the date as its seed):

    FUZZ_CORPORA=2000 FUZZ_SEED=7 pytest tests/generated -s
"""

import importlib.util
import json
import math
import os
import re
import shutil
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, seed, settings

from longtail.models.bundle.bundle import Bundle
from longtail.models.bundle.registry import Registry
from longtail.models.corpus.columns import CorpusOptions
from longtail.models.corpus.files import find_unlabelled
from longtail.models.errors import LongtailError
from longtail.models.kinds.storage import read_parts
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.service.app import create_app
from longtail.service.offline.predict import Task, predict_file
from longtail.service.settings import Settings
from longtail.training.assessment.assess import Assessment, assess
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import Dataset, open_dataset
from longtail.training.pipeline.train import Run, train
from longtail.training.reports.labels import write_reports
from longtail.training.reports.report import report_page

if TYPE_CHECKING:
    from tests.generated.corpora import Corpus, corpora
else:  # tests are no packages
    _path = Path(__file__).with_name("corpora.py")
    _spec = importlib.util.spec_from_file_location("generated_corpora", _path)
    _module = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = _module
    _spec.loader.exec_module(_module)
    Corpus, corpora = _module.Corpus, _module.corpora

NUM_CORPORA = int(os.environ.get("FUZZ_CORPORA", "20"))
SEED = int(os.environ.get("FUZZ_SEED", "20261122"))
GOES_ON = NUM_CORPORA >= 100
"""Whether a failure is kept for the end, one of each kind, instead of made smaller at once."""
SECONDS_TO_LOAD = 60
LONGEST_TEXT = 50_000
"""Characters of what is sent to the service, half of what it takes by default; and no NUL, which
requests must not have."""

REFUSALS = {
    "no label": r"no document that can be used has a label; give some, or a label file",
    "no label in training": r": no training document has a label$",
    "open quote": r"a quote is opened here and never closed",
    "lines": r"\d+ lines? can't be used; (fix|no others are left; fix)",
    "easier test": r"can't be skipped, for unknown labels are no reason to measure on the rest",
    "trained documents": r"\d+ of \d+ documents of (dev|test) have the text of a document of",
    "labels": r"\d+ labels can't be used; fix them, for a label can't be skipped",
    "unknown to the encoder": r"\d+% of the tokens of \d+ training texts are unknown to its",
    "no words": r"tf-idf: no token occurs in at least \d+ and at most \d+% of the training|"
    r"none of the \d+ training documents has a word",
}
"""What a corpus may be refused for, once, before anything is trained."""


class Outcomes(Counter[str]):
    """What became of the corpora, and the first failure of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[str, str] = {}

    def fail(self, corpus: Corpus, error: Exception) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__} in {frame.name}, {Path(frame.filename).name}"
        self[f"FAILED: {kind}"] += 1
        text = "".join(traceback.format_exception(error)[-12:])
        self.failures.setdefault(kind, f"{corpus!r:.2000}\n{text}")


@pytest.fixture(scope="module")
def outcomes():
    """Printed with the seed at the end."""
    found = Outcomes()
    started = time.monotonic()
    yield found
    print(  # noqa: T201
        f"\n{found.total()} generated corpora, seed {SEED}, {time.monotonic() - started:.0f} s: "
        + ", ".join(f"{count} {name}" for name, count in found.most_common())
    )
    assert not found.failures, "\n\n".join(found.failures.values())


@seed(SEED)
@settings(
    max_examples=NUM_CORPORA,
    deadline=None,
    derandomize=False,
    database=None,
    phases=(Phase.generate,) if GOES_ON else (Phase.generate, Phase.shrink),
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(corpus=corpora())
def test_a_generated_corpus_goes_the_whole_way(corpus, outcomes, tiny_content, tmp_path_factory):
    folder = tmp_path_factory.mktemp("generated")
    try:
        outcomes[journey(corpus, folder, tiny_content)] += 1
    except Exception as error:
        if not GOES_ON:
            error.add_note(f"FUZZ_SEED={SEED}")
            raise
        outcomes.fail(corpus, error)
    finally:
        shutil.rmtree(folder)


def journey(corpus: Corpus, folder: Path, tiny_content: dict[str, Any]) -> str:
    """Do with a corpus all that a person does; return what became of it."""
    data = corpus.write(folder / "data")
    config = TrainingConfig.model_validate(
        {name: value for name, value in tiny_content.items() if name != "linear"} | corpus.config
    )
    registry = Registry(folder / "registry")
    try:
        dataset = open_dataset(data, CorpusOptions(skip_bad=corpus.skip_bad))
        version = train(Run(config, dataset, folder / "work"), registry)
    except LongtailError as error:
        return f"refused: {refusal(str(error))}"
    bundle = registry.open(version)
    check_evaluations(bundle, dataset, folder if corpus.has_pictures else None)
    write_reports(bundle, folder / "labels.jsonl", 5)
    assert len((folder / "labels.jsonl").read_text().split("\n")) - 1 == len(bundle.catalogue)
    predictor = Predictor.of_bundle(bundle, device="cpu")
    texts = [*corpus.queries, *(document.text for document in dataset.split("train"))]
    texts = [text for text in texts if text.strip()][:12]
    sent = [text for text in texts if len(text) <= LONGEST_TEXT and "\0" not in text]
    for scorer in predictor.scorers.names:
        check_answers(predictor, texts, scorer)
    check_file(bundle, version, predictor, sent, folder)
    if corpus.is_served:
        check_service(registry, predictor, sent)
    encoder = " with an encoder" if bundle.manifest.encoder else ""
    return f"done{encoder}, {'served' if corpus.is_served else 'not served'}"


def refusal(message: str) -> str:
    """Return which of the known refusals a message is."""
    found = [name for name, pattern in REFUSALS.items() if re.search(pattern, message, re.M)]
    assert found, f"refused for a reason that is none: {message}"
    return found[0]


def check_evaluations(bundle: Bundle, dataset: Dataset, folder: Path | None) -> None:
    """Every split can be measured, with baselines, and every number is one."""
    parts, manifest = read_parts(bundle), bundle.manifest
    predictor = Predictor(parts, default_scorer=manifest.default_scorer, device="cpu")
    for name in dataset.split_names:
        found = assess(
            predictor,
            dataset,
            name,
            num_training_documents=manifest.training_document_count,
            tfidf=parts.sparse.tfidf,
            reliability=True,
        )
        check_numbers(found)
        if folder is not None:
            found.write(folder / "evaluation")
            page = report_page(bundle, 1, name, found)
            assert "nan" not in re.sub(r"[^\W\d_]{4,}", "", page).split()


def check_numbers(found: Assessment) -> None:
    for scorer, subsets in found.evaluation.scorers.items():
        for subset, metrics in subsets.items():
            for metric, value in metrics.values.items():
                assert 0 <= value <= 1 + 1e-9, (scorer, subset, metric, value)
    assert found.reliability is not None
    check_finite(found.reliability.to_json())
    json.dumps(found.evaluation.to_json(), allow_nan=False)
    assert all(table.to_markdown() for table in found.evaluation.tables())


def check_finite(content: object) -> None:
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list | tuple):
        for each in content:
            check_finite(each)
    elif content is not None:
        assert math.isfinite(content)


def check_answers(predictor: Predictor, texts: list[str], scorer: str) -> None:
    """Answers are the best of all labels, ties by the smaller index; probabilities fall."""
    num_labels = len(predictor.catalogue)
    if num_labels > 10_000:
        texts = texts[:2]
    batch = predictor.read(texts)
    every = np.tile(np.arange(num_labels), (len(texts), 1))
    scores = predictor.score(batch, every, RankingOptions(scorer=scorer))
    assert not np.isnan(scores).any()
    for k in {1, min(5, num_labels), min(100, num_labels)}:
        predictions = predictor.predict(texts, k=k, scorer=scorer, explain=k <= 5)
        for row, prediction in enumerate(predictions):
            order = np.lexsort((every[row], -scores[row]))[:k]
            wanted = [int(label) for label in order if scores[row, label] > -np.inf]
            assert [label.index for label in prediction.labels] == wanted
            check_probabilities([label.probability for label in prediction.labels])
            explanations = [label.explanation for label in prediction.labels]
            assert all((x is not None) == (k <= 5) for x in explanations)
            check_spans(texts[row], explanations if k <= 5 else [])


def check_probabilities(found: list[float | None]) -> None:
    if None in found:
        assert set(found) == {None}
        return
    assert all(0 <= probability <= 1 for probability in found)
    assert found == sorted(found, reverse=True)


def check_spans(text: str, explanations: list[Any]) -> None:
    for explanation in explanations:
        assert len(explanation.nearest) <= 5
        for token in explanation.tokens.tokens if explanation.tokens else ():
            assert math.isfinite(token.contribution)
            assert token.spans
            for start, stop in token.spans:
                words = re.findall(r"\b\w\w+\b", text[start:stop].lower())
                assert 0 <= start < stop <= len(text)
                assert token.token in text[start:stop].lower() or " ".join(words) == token.token


def check_file(
    bundle: Bundle, version: int, predictor: Predictor, texts: list[str], folder: Path
) -> None:
    """`longtail predict` answers every line, as the predictor does."""
    source, target = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    k = min(3, len(bundle.catalogue))
    task = Task(find_unlabelled(source), target, version, {"k": k})
    summary = predict_file(task, predictor)
    assert (summary.num_lines, summary.num_errors) == (len(texts), 0), target.read_text("utf-8")
    answers = [json.loads(line) for line in target.read_text("utf-8").split("\n")[:-1]]
    wanted = predictor.predict(texts, k=k)
    found = [[label["id"] for label in answer["labels"]] for answer in answers]
    assert found == [[label.id for label in prediction.labels] for prediction in wanted]


def check_service(registry: Registry, predictor: Predictor, texts: list[str]) -> None:
    """The service is ready, answers as the predictor does, and stays so."""
    app = create_app(Settings(registry=registry.folder, watch_interval_s=0))
    with TestClient(app, raise_server_exceptions=False) as client:
        deadline = time.monotonic() + SECONDS_TO_LOAD
        while "still loading" in client.get("/readyz").text:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        # The first of a service has words: what happens otherwise is another test's.
        for text in sorted(texts, key=len, reverse=True):
            answer = client.post("/v1/predict", json={"text": text, "k": 1, "explain": True})
            assert answer.status_code == 200, answer.text
            (found,) = answer.json()["results"]
            (wanted,) = predictor.predict([text], k=1)
            assert [x["id"] for x in found["labels"]] == [x.id for x in wanted.labels]
        assert client.get("/v1/labels", params={"query": "a"}).status_code == 200
        assert client.get("/readyz").status_code == 200


def test_messages_that_are_no_refusal_are_told_apart():
    with pytest.raises(AssertionError, match="refused for a reason that is none: something else"):
        refusal("something else")
    assert refusal("x: 3 lines can't be used; fix them, or skip") == "lines"
