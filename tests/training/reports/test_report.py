"""The page about a model: what stands in it, and that it stands alone."""

import base64
import hashlib
import json
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import longtail
from longtail.models.corpus.columns import CorpusOptions
from longtail.training.configuration.run import TrainingConfig
from longtail.training.data.dataset import open_dataset
from longtail.training.reports import training_cost
from longtail.training.reports.inspection import Inspection, inspect_dataset
from longtail.training.reports.inspection_text import write_inspection

VOID = {"meta", "img", "source"}


class Outline(HTMLParser):
    """Reads a page: its tags, which must be closed in order, its links and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.sources: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.sources += [v for k, v in attributes if k in {"src", "srcset", "href"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def spiked_corpus(tiny_corpus, tmp_path_factory):
    """The tiny corpus, with what looks like tags in the texts of its dev split."""
    folder = Path(shutil.copytree(tiny_corpus, tmp_path_factory.mktemp("spiked") / "corpus"))
    lines = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    texts = (line | {"text": f"<script>alert('&amp;')</script> {line['text']}"} for line in lines)
    (folder / "dev.jsonl").write_text("".join(json.dumps(line) + "\n" for line in texts))
    return folder


def report(output: Path, *words: object) -> str:
    call = ["report", *map(str, words), "--output", str(output)]
    CliRunner().invoke(longtail.app, call, catch_exceptions=False)
    return output.read_text("utf-8")


@pytest.fixture(scope="module")
def page(trained, spiked_corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("report") / "new" / "report.html"
    options = ("--registry", trained.registry.folder, "--work", trained.work, "--no-baselines")
    return report(output, spiked_corpus, *options)


@pytest.fixture(scope="module")
def outline(page):
    return Outline(page)


def test_the_page_is_whole_and_needs_nothing_from_outside(page, outline):
    assert outline.open == []
    assert not outline.tags & {"link", "iframe", "a"}
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\"" in page  # no other one runs
    assert outline.sources and all(x.startswith("data:image/png") for x in outline.sources)
    assert "default-src 'none'" in page
    assert "url(" not in page and "@import" not in page


def test_the_page_tells_the_model_its_metrics_and_its_configuration(outline, trained):
    manifest = trained.bundle.manifest
    assert "never seen" in outline.text.split("In short")[1]
    assert manifest.digest in outline.text
    assert "Chosen and calibrated onthe dev split" in outline.text
    best = manifest.metrics["dev"]["sparse"]["all"]["P@1"]
    assert f"{100 * best:.2f}" in outline.text
    for words in ("frequent", "zero-shot", "calibrated", "label_subset_size: 40", "peak memory"):
        assert words in outline.text.replace("\u2011", "-")


def test_a_row_for_each_label_of_the_split_says_how_good_it_is(page):
    table = page.split('<table class="sortable">')[1].split("</table>")[0]
    assert "confused with" in table
    rows = [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row) for row in table.split("<tr>")[2:]]
    carried_or_given = [int(row[2]) + int(row[3]) - int(row[4]) for row in rows]
    assert carried_or_given == sorted(carried_or_given, reverse=True) and carried_or_given[-1] > 0
    measured = [row[5] for row in rows if row[3] != "0"]
    assert all(re.fullmatch(r"[\d.]+ \(\d+ to \d+\)", cell) for cell in measured)


def test_no_text_of_a_document_is_shown(outline, spiked_corpus):
    lines = (spiked_corpus / "dev.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert texts and not any(text in outline.text for text in texts)
    assert "alert(" not in outline.text


ODD = {
    "train": [
        ("first text here", ["Books", "a|b"]), ("second", ["books", "c"]),
        ("first text here", ["c"]), ("nothing", []), (" ", ["c"]),
    ],
    "test": [("second", ["c"]), ("new words", ["unseen"]), ("", ["c"])],
}  # fmt: skip


def write(folder: Path, splits: dict[str, list[tuple[str, list[str]]]]) -> Path:
    for name, documents in splits.items():
        lines = (
            json.dumps({"id": f"{name} {row}", "text": text, "labels": labels}) + "\n"
            for row, (text, labels) in enumerate(documents)
        )
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


def inspected(folder: Path) -> Inspection:
    return inspect_dataset(open_dataset(folder, CorpusOptions(skip_bad=True)))


def test_the_forecast_is_of_what_the_installed_packages_can_train(tiny_corpus, monkeypatch):
    without, tried = "Trains without an encoder: ", ". Then it tries one on a sample"
    for is_there, encoder, start, is_tried in (
        (True, "auto", without, True), (False, "auto", without, False),
        (True, "packaged", "Trains with the encoder as it comes: ", False),
    ):  # fmt: skip
        monkeypatch.setattr(training_cost, "is_packaged_installed", lambda found=is_there: found)
        config = TrainingConfig(encoder=encoder)
        said = training_cost.forecast(config, open_dataset(tiny_corpus))
        assert said.startswith(start) and (tried in said) == is_tried


def test_only_the_owner_can_read_what_quotes_documents(tiny_corpus, tmp_path):
    paths = write_inspection(inspected(tiny_corpus), tmp_path / "found")
    assert [path.stat().st_mode & 0o777 for path in paths[:2]] == [0o600, 0o600]
    assert (tmp_path / "found").stat().st_mode & 0o777 == 0o700


def test_counts_are_those_of_the_documents(tiny_corpus, tiny_texts):
    found = inspected(tiny_corpus)
    for name, documents in tiny_texts.items():
        split = found.splits[name]
        lengths = sorted(len(x["text"]) for x in documents)
        assert split.num_documents == len(documents)
        assert split.labels_a_document == np.mean([len(x["labels"]) for x in documents])
        assert (split.lengths["shortest"], split.lengths["longest"]) == (lengths[0], lengths[-1])
        assert split.lengths["median"] == int(np.median(lengths))
    trained = Counter(label for x in tiny_texts["train"] for label in x["labels"])
    counts = sorted(trained.values(), reverse=True)
    assert found.training_counts[: len(counts)].tolist() == counts
    assert not found.training_counts[len(counts) :].any()
    assert found.bands == {
        "0": found.num_labels - len(counts),
        "1": counts.count(1),
        "2-9": sum(2 <= count <= 9 for count in counts),
        "10-99": sum(10 <= count <= 99 for count in counts),
        "100+": 0,
    }


def test_what_is_suspicious_is_told(tmp_path):
    told = "\n".join(inspected(write(tmp_path, ODD)).oddities)
    for said in (
        "train: 1 of 4 documents have no label",
        "train: 1 of 4 documents have the text of an earlier one",
        "train: 1 line with an empty text: train.jsonl, line 5: empty text",
        "test: 1 line with an empty text: test.jsonl, line 3",
        "1 text of test is in train too, which makes measuring too easy",
        "1 group of labels differs only in case, spaces or Unicode form: Books = books",
        "1 label contains a vertical bar: 'a|b'; are they several each?",
        "test: 1 label of its documents has no training document",
    ):
        assert said in told
