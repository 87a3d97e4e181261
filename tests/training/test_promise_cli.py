"""`longtail threshold`: a version that makes promises, and what becomes of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import longtail
from longtail.models.bundle.registry import Registry
from longtail.models.edit.add_labels import add_labels
from longtail.models.errors import ConfigError, DataError
from longtail.models.fitted.promises import PROMISES
from longtail.models.labels.catalogue import Label


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def registry(trained, tmp_path):
    return Path(shutil.copytree(trained.registry.folder, tmp_path / "registry"))


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(
        longtail.app, list(map(str, arguments)), catch_exceptions=False
    )


def test_a_new_version_accepts_labels_by_its_promises(call, registry, tiny_corpus, tmp_path):
    asked = (
        "--precision", 0.999, "--precision", 0.1, "--recall", 0.05, "--confidence", 0.2, "--json",
        "-",
    )  # fmt: skip
    result = call("threshold", tiny_corpus, "--registry", registry, *asked)
    found = json.loads(result.stdout)["figures"]["promises"]
    assert [each["measure"] for each in found] == ["precision", "precision", "recall"]
    before, after = (longtail.load(registry, version=number) for number in (1, 2))
    made = [each.name for each in PROMISES.of(after.predictor.parts)]
    assert made == ["precision 0.1", "recall 0.05"]  # no band supports 0.999
    texts = [json.loads(line)["text"] for line in read_lines(tiny_corpus / "test.jsonl")]
    plain, marked = before.predict(texts), after.predict(texts, accept=True)
    assert [[x.id for x in each.labels] for each in plain] == [
        [x.id for x in each.labels] for each in marked
    ]
    assert {x.accepted for each in marked for x in each.labels} == {True, False}
    batch = pa.RecordBatch.from_pydict({"text": texts})
    (answers,) = longtail.arrow_predictor(registry, accept=True)([batch])
    accepted = [[label.accepted for label in each.labels] for each in marked]
    assert answers.column("accepted").to_pylist() == accepted

    target = tmp_path / "out.csv"
    call(
        "predict", "--registry", registry, "--input", tiny_corpus / "test.jsonl", "--output",
        target, "--accept", "0.1",
    )  # fmt: skip
    rows = target.read_text(encoding="utf-8-sig").splitlines()
    assert rows[0].endswith("remarks,accepted")
    assert rows[1].split(",")[-1].split("; ") == [
        "yes" if label.accepted else "no" for label in marked[0].labels
    ]


def test_a_promise_of_all_bands_together_says_so_wherever_it_is_named(
    call, registry, tiny_corpus, tmp_path, caplog
):
    places = (tiny_corpus, "--registry", registry)
    with pytest.raises(ConfigError, match="the highest that can be promised is 0"):
        call("threshold", *places, "--precision", 0.5)
    assert "all bands together support precision 0.5: see --bands all" in caplog.text
    result = call("threshold", *places, "--precision", 0.5, "--bands", "all")
    assert "of all bands together, but not in each" in result.stdout
    assert "promises precision 0.5 overall." in result.stdout
    model = longtail.load(registry)
    texts = [json.loads(line)["text"] for line in read_lines(tiny_corpus / "test.jsonl")]
    answers = [model.predict(texts, accept=x) for x in (0.5, True, "precision 0.5 overall")]
    assert answers[0] == answers[1] == answers[2]
    assert any(x.accepted for each in answers[0] for x in each.labels)
    evaluated = call("evaluate", *places, "--no-baselines", "--json", "-")
    (kept,) = json.loads(evaluated.stdout)["figures"]["promises"]
    assert kept["promise"] == "precision 0.5 overall"
    assert list(kept["bands"]) == ["all"]


def test_an_evaluation_says_what_goes_through_and_writes_a_row_for_each_label(
    call, registry, tiny_corpus, tmp_path
):
    places = (tiny_corpus, "--registry", registry)
    options = ("--precision", 0.1, "--precision", 0.2, "--precision", 0.1, "--confidence", 0.2)
    call("threshold", *places, *options)
    result = call("evaluate", *places, "--no-baselines", "--per-label", "labels.csv")
    assert "| ensemble " in result.stdout
    tables = (tmp_path / "runs/evaluation/evaluation.md").read_text()
    assert "| precision 0.1 " in tables and "(found on these documents)" not in tables
    written = json.loads((tmp_path / "runs/evaluation/evaluation.json").read_text())
    assert [each["promise"] for each in written["promises"]] == ["precision 0.1", "precision 0.2"]
    assert (tmp_path / "runs/evaluation/promises.png").stat().st_size
    num_labels = longtail.load(registry).bundle.manifest.label_count
    assert len(read_lines(tmp_path / "labels.csv")) == 1 + num_labels
    again = call("evaluate", *places, "--split", "dev", "--no-baselines", "--overwrite")
    assert again.exit_code == 0
    tables = (tmp_path / "runs/evaluation/evaluation.md").read_text()
    assert "| precision 0.1 (found on these documents) " in tables
    call("report", *places, "--no-baselines", "--output", "report.html")
    assert "Promises" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_thresholds_that_people_have_set_win_and_are_not_lost_in_silence(
    call, registry, tiny_corpus, tmp_path
):
    labels = list(Registry(registry).open(1).catalogue)
    file = tmp_path / "own.csv"
    file.write_text(f"id,threshold\n{labels[0].id},0\n{labels[1].id},1\n")
    places = (tiny_corpus, "--registry", registry)
    result = call("threshold", *places, "--precision", 0.99, "--labels", file)
    assert "2 labels have a threshold that people have set" in result.stdout
    texts = [json.loads(line)["text"] for line in read_lines(tiny_corpus / "test.jsonl")]
    found = longtail.load(registry).predict(texts, accept=True, k=len(labels))
    assert {x.id for each in found for x in each.labels if x.accepted} == {labels[0].id}
    asked = (*places, "--precision", 0.1, "--confidence", 0.2)
    call("threshold", *asked)  # they stay until another file says something else
    file.write_text("id,threshold\n")
    call("threshold", *asked, "--labels", file)
    kept = [PROMISES.read(Registry(registry).open(each))[0].label_thresholds for each in (3, 4)]
    assert kept == [{0: 0.0, 1: 1.0}, {}]
    broken = ["nobody,0.5", f"{labels[0].id},nan", f"{labels[1].id},0.5", f"{labels[1].id},0.5"]
    file.write_text("\n".join(["id,threshold", *broken, "one cell"]))
    with pytest.raises(DataError, match="4 lines") as raised:
        call("threshold", *places, "--labels", file)
    for words in ("line 2: the model has no label", "line 3: threshold is 'nan'", "line 5: label"):
        assert words in str(raised.value)


def test_a_promise_is_not_kept_by_a_version_with_other_labels(registry, call, tiny_corpus, caplog):
    call("threshold", tiny_corpus, "--registry", registry, "--precision", 0.1)
    store = Registry(registry)
    assert PROMISES.read(store.open(2))
    number = store.publish(add_labels(store.open(2), [Label("new", "A new label")]))
    assert PROMISES.read(store.open(number)) == ()
    assert "longtail threshold" in caplog.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--precision", 1.5), "between 0 and 1"),
        (("--precision", 0.99), "no promise can be made for any band"),
        (("--scorer", "magic"), "expected one of"),
    ],
)
def test_what_can_not_be_promised_publishes_nothing(call, registry, tiny_corpus, options, words):
    with pytest.raises(ConfigError, match=words):
        call("threshold", tiny_corpus, "--registry", registry, *options)
    assert Registry(registry).versions() == [1]
