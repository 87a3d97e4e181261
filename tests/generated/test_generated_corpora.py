"""Generated corpora go the whole way: train, evaluate, describe, report, predict, serve.

A few by default, always the same. For many (`make fuzz` takes the date as its seed):

    FUZZ_CORPORA=2000 FUZZ_SEED=7 pytest tests/generated -s
"""

import csv
import gzip
import io
import json
import math
import os
import random
import re
import time
from typing import Any

import numpy as np
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from longtail.models.bundle.registry import Registry
from longtail.models.corpus.columns import CorpusOptions
from longtail.models.corpus.files import find_unlabelled
from longtail.models.errors import LongtailError
from longtail.models.interface.model import LoadedModel
from longtail.models.kinds.storage import read_parts
from longtail.models.options import RankingOptions
from longtail.models.predict.predictor import Predictor
from longtail.service.app import create_app
from longtail.service.offline.predict import Task, predict_file
from longtail.service.settings import Settings
from longtail.training.assessment.assess import assess
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.pipeline.train import Run, train
from longtail.training.reports.labels import write_reports
from longtail.training.reports.report import report_page

NUM_CORPORA = int(os.environ.get("FUZZ_CORPORA", "20"))
SEED = int(os.environ.get("FUZZ_SEED", "20261122"))
LONGEST_TEXT = 50_000
"""Characters of what is sent to the service, half of what it takes by default."""
SCRIPTS = (
    "abcdefghijklmnopqrstuvwxyz", "äöüßéèçñøåščřžłİı", "абвгдежзийклмн", "αβγδεζηθικλμ",
    "אבגדהוזחטיכ", "ابتثجحخدذرزسشصض", "कखगघचजटडतदनपबमयर\u093e\u093f\u0940\u0941\u094d\u0902",
    "அஆஇகசடதபமயரலவ\u0bbe\u0bbf\u0bc0\u0bc1", "的一是不了人我在有他这中大来上国个到说们",
    "あいうえおかきくけこアイウエオカキクケコー", "가나다라마바사아자차카타파하한국어",
    "กขคงจฉชซญดตถทธนบปผ\u0e30\u0e32\u0e34\u0e48\u0e49", "ကခဂဃငစဆဇ\u102c\u102d\u102e\u102f",
    "កខគឃងចឆជ\u17b6\u17b7\u17b8\u17d2", "ሀለሐመሠረሰሸቀበተ", "0123456789",
    "!?.,;:-\u2013\u2014/\\|'\"()[]{}<>@#$%^&*+=~`", " \t\r\n\u00a0\u2028\u3000",
    "😀🎉🇩🇪👩\u200d👧\u200b\u200d\ufeff\u202e\u0301",
    "\x00\x01\x1b\x7f\ufffe\uffff\U0010ffff\U0001d518\U0001d52b\U00020000",
)  # fmt: skip
"""Characters to write words of; the last four are hardly any script."""
REFUSALS = (
    r"no document that can be used has a label; give some, or a label file",
    r": no training document has a label$",
    r"a quote is opened here and never closed",
    r"\d+ lines? can't be used; (fix|no others are left; fix)",
    r"can't be skipped, for unknown labels are no reason to measure on the rest",
    r"\d+ of \d+ documents of (dev|test) have the text of a document of",
    r"\d+ labels? can't be used; fix them, for a label can't be skipped",
    r"\d+% of the tokens of \d+ training texts are unknown to its",
    r"tf-idf: no token occurs in at least \d+ and at most \d+% of the training",
    r"none of the \d+ training documents has a word",
)
"""What a corpus may be refused for, once, before anything is trained."""


def word(rng: random.Random, script: str) -> str:
    return "".join(rng.choices(script, k=rng.choice((1, 1, 2, 4, 8))))


def text_of(rng: random.Random, words: list[str]) -> str:
    kind = rng.random()
    if kind < 0.02:
        return rng.choice(("", " ", "\n", "\u3000"))
    if kind < 0.04:
        return word(rng, rng.choice(SCRIPTS))
    if kind < 0.05:
        return " ".join(rng.choices(words, k=rng.choice((5_000, 30_000))))
    return rng.choice((" ", " ", "")).join(rng.choices(words, k=rng.randint(1, 30)))


def label_names(rng: random.Random, words: list[str], count: int) -> list[str]:
    names: dict[str, None] = {}
    for number in range(count):
        parts = rng.choices(words, k=rng.choice((1, 1, 2, 3)))
        name = rng.choice((" ", " ", "; ", "")).join(parts).strip()
        names[f"{name} {number}".strip() if not name or name in names else name] = None
    return list(names)


def json_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def csv_lines(rng: random.Random, rows: list[dict[str, Any]], delimiter: str) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writeheader()
    for row in rows:
        is_plain = rng.random() < 0.8 and not any(x.startswith("[") for x in row["labels"])
        cell = ";".join(row["labels"]) if is_plain else json.dumps(row["labels"])
        writer.writerow(row | {"labels": cell})
    return file.getvalue()


def label_file(form: str, names: list[str]) -> dict[str, str]:
    file, key = ("lbl.json", ("uid", "title")) if form == "xc" else ("labels.jsonl", ("id", "name"))
    return {file: json_lines([{key[0]: f"i{i}", key[1]: x} for i, x in enumerate(names)])}


def packed(files: dict[str, bytes], is_zipped: bool) -> dict[str, bytes]:
    if not is_zipped:
        return files
    return {f"{name}.gz": gzip.compress(content, 1) for name, content in files.items()}


def indexed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a document as the Extreme Classification Repository writes it."""
    document = {"title": row["text"], "content": "", "target_ind": sorted(row["labels"])}
    return document | ({"uid": row["id"]} if "id" in row else {})


@st.composite
def corpora(draw: st.DrawFn) -> tuple[dict[str, bytes], list[str]]:
    """Draw files and queries: few choices by hypothesis, all texts by one random generator."""

    def one_in(count: int) -> bool:
        return draw(st.integers(1, count)) == count

    rng = random.Random(draw(st.integers(0, 2**32)))  # noqa: S311
    scripts = draw(st.lists(st.sampled_from(SCRIPTS), min_size=1, max_size=4, unique=True))
    words = [word(rng, rng.choice(scripts)) for _ in range(rng.choice((1, 5, 40, 400)))]
    names = label_names(rng, words, draw(st.sampled_from((1, 1, 2, 3, 5, 10, 42, 257))))
    form = draw(st.sampled_from(("jsonl", "csv", "xc")))
    has_file, is_unseen = form == "xc" or draw(st.booleans()), one_in(6)
    everything = list(range(len(names)))
    trained = everything[: max(1, len(names) // 2)] if is_unseen else everything
    pools = {"train": [] if one_in(10) else trained, "dev": everything, "test": everything}
    same = text_of(rng, words) if one_in(8) else None
    ids = draw(st.sampled_from(("none", "none", "numbers", "equal")))
    texts: dict[str, str] = {}
    delimiter = draw(st.sampled_from(",,;\t"))
    for split, short in (("train", "trn"), ("dev", "dev"), ("test", "tst")):
        if split != "train" and draw(st.booleans()):
            continue
        rows: list[dict[str, Any]] = []
        for number in range(draw(st.sampled_from((1, 1, 2, 3, 8, 20, 60)))):
            pool = pools[split]
            labels = rng.sample(pool, min(len(pool), rng.choice((0, 1, 1, 1, 2, 3, 3, 8, 50))))
            row = {"id": "same" if ids == "equal" else str(number)} if ids != "none" else {}
            rows.append(row | {"text": same or text_of(rng, words), "labels": labels})
        if form == "xc":
            texts[f"{short}.json"] = json_lines(list(map(indexed, rows)))
            continue
        rows = [x | {"labels": [names[label] for label in x["labels"]]} for x in rows]
        texts[f"{split}.{form}"] = (
            json_lines(rows) if form == "jsonl" else csv_lines(rng, rows, delimiter)
        )
    if one_in(8):
        broken = '"open\n' if form == "csv" else '{"text": "half\n'
        texts = {name: text + broken for name, text in texts.items()}
    if has_file:
        texts |= label_file(form, names[: max(1, len(names) - (form != "xc" and one_in(8)))])
    encoding = draw(st.sampled_from(("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16")))
    files = packed({name: text.encode(encoding) for name, text in texts.items()}, one_in(6))
    queries = ["!", "x", "好", "😀", text_of(rng, words), rng.choice(words) + "a"]
    return files, [each for each in queries if each.strip()]


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    analyzer = draw(st.sampled_from((None, None, None, "word", "char")))
    sparse: dict[str, Any] = {"analyzer": analyzer} if analyzer else {}
    if draw(st.integers(0, 3)) == 3 and analyzer != "char":
        sparse["max_ngram"] = 2
    if draw(st.integers(0, 3)) == 3:
        sparse |= {"exact_documents": 0, "sampled_negatives": 3, "hard_negatives": 2}
    config = {"sparse": sparse, "warmup_texts": draw(st.sampled_from((0, 16)))}
    return config if draw(st.integers(0, 24)) == 24 else config | {"scorers": ["sparse"]}


@seed(SEED)
@settings(
    max_examples=NUM_CORPORA, deadline=None, derandomize=False, database=None, print_blob=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(corpus=corpora(), changed=configurations(), skip_bad=st.booleans(), more=st.integers(0, 9))
def test_a_generated_corpus_goes_the_whole_way(
    corpus, changed, skip_bad, more, tiny_content, tmp_path_factory
):
    """A corpus is trained on, measured, reported and served, or refused for a known reason."""
    files, queries = corpus
    folder = tmp_path_factory.mktemp("generated")
    data = folder / "data"
    data.mkdir()
    for name, content in files.items():
        (data / name).write_bytes(content)
    content = {name: value for name, value in tiny_content.items() if name != "linear"}
    config = TrainingConfig.model_validate(content | changed)
    registry = Registry(folder / "registry")
    refusal = ""
    try:
        dataset = open_dataset(data, CorpusOptions(skip_bad=skip_bad))
        version = train(Run(config, dataset, folder / "work"), registry)
    except LongtailError as error:
        refusal = str(error)
    if refusal:
        assert re.search("|".join(REFUSALS), refusal, re.M)
        return
    bundle = registry.open(version)
    check_evaluations(bundle, dataset, folder if more == 0 else None)
    write_reports(bundle, folder / "labels.jsonl", 5)
    assert len((folder / "labels.jsonl").read_text().split("\n")) - 1 == len(bundle.catalogue)
    predictor = Predictor.of_bundle(bundle, device="cpu")
    texts = [*queries, *(document.text for document in dataset.split("train"))]
    texts = [text for text in texts if text.strip()][:12]
    for scorer in predictor.scorers.names:
        check_answers(predictor, texts, scorer)
    sent = [text for text in texts if len(text) <= LONGEST_TEXT and "\0" not in text]
    check_file(bundle, version, predictor, sent, folder)
    if more > 7:
        check_service(registry, predictor, sent)


def check_evaluations(bundle, dataset, folder):
    """Every split can be measured, with baselines, and every number is one."""
    parts, manifest = read_parts(bundle), bundle.manifest
    predictor = Predictor(parts, default_scorer=manifest.default_scorer, device="cpu")
    for name in dataset.split_names:
        found = assess(
            predictor, dataset, name, reliability=True, tfidf=parts.sparse.tfidf,
            num_training_documents=manifest.training_document_count,
        )  # fmt: skip
        for subsets in found.evaluation.scorers.values():
            for metrics in subsets.values():
                assert all(0 <= value <= 1 + 1e-9 for value in metrics.values.values())
        json.dumps(found.reliability.to_json(), allow_nan=False)
        json.dumps(found.evaluation.to_json(), allow_nan=False)
        assert all(table.to_markdown() for table in found.evaluation.tables())
        if folder is not None:
            found.write(folder / "evaluation")
            page = report_page(bundle, 1, name, found)
            assert "nan" not in re.sub(r"[^\W\d_]{4,}", "", page).split()


def check_answers(predictor, texts, scorer):
    """Answers are the best of all labels, ties by the smaller index."""
    num_labels = len(predictor.catalogue)
    every = np.tile(np.arange(num_labels), (len(texts), 1))
    scores = predictor.score(predictor.read(texts), every, RankingOptions(scorer=scorer))
    assert not np.isnan(scores).any()
    for k in {1, min(5, num_labels), min(100, num_labels)}:
        predictions = predictor.predict(texts, k=k, scorer=scorer, explain=k <= 5)
        for row, prediction in enumerate(predictions):
            order = np.lexsort((every[row], -scores[row]))[:k]
            wanted = [int(label) for label in order if scores[row, label] > -np.inf]
            assert [label.index for label in prediction.labels] == wanted
            found = [label.probability for label in prediction.labels]
            if None in found:
                assert set(found) == {None}
            else:
                assert all(0 <= each <= 1 for each in found)
            for label in prediction.labels:
                assert (label.explanation is not None) == (k <= 5)
                if k <= 5 and label.explanation.tokens:
                    check_spans(texts[row], label.explanation.tokens.tokens)


def check_spans(text, tokens):
    for token in tokens:
        assert math.isfinite(token.contribution) and token.spans
        for start, stop in token.spans:
            words = re.findall(r"\b\w\w+\b", text[start:stop].lower())
            assert 0 <= start < stop <= len(text)
            assert token.token in text[start:stop].lower() or " ".join(words) == token.token


def check_file(bundle, version, predictor, texts, folder):
    """`longtail predict` answers every line, as the predictor does."""
    source, target = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    k = min(3, len(bundle.catalogue))
    model = LoadedModel(bundle, device="cpu")
    summary = predict_file(Task(find_unlabelled(source), target, version, {"k": k}), model)
    assert (summary.num_lines, summary.num_errors) == (len(texts), 0), target.read_text("utf-8")
    answers = [json.loads(line) for line in target.read_text("utf-8").split("\n")[:-1]]
    found = [[label["id"] for label in answer["labels"]] for answer in answers]
    assert found == [[x.id for x in each.labels] for each in predictor.predict(texts, k=k)]


def check_service(registry, predictor, texts):
    """The service is ready, answers as the predictor does, and stays so."""
    app = create_app(Settings(registry=registry.folder, watch_interval_s=0))
    with TestClient(app, raise_server_exceptions=False) as client:
        deadline = time.monotonic() + 60
        while "still loading" in client.get("/readyz").text:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        # The first of a service has words: what happens otherwise is another test's.
        for text in sorted(texts, key=len, reverse=True):
            answer = client.post("/v1/predict", json={"text": text, "k": 1, "explain": True})
            assert answer.status_code == 200, answer.text
            (wanted,) = predictor.predict([text], k=1)
            found = answer.json()["results"][0]["labels"]
            assert [x["id"] for x in found] == [x.id for x in wanted.labels]
        assert client.get("/readyz").status_code == 200
