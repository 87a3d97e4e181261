"""The page about a model: what stands in it, and that it stands alone."""

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

import longtail

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
