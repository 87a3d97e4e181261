"""A new corpus format is one file, also of folders: where it lies and what reads it, registered."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from longtail.models.corpus.files import find_unlabelled
from longtail.models.corpus.forms import FORMATS, SPLIT_NAMES, Format, register
from longtail.models.errors import ConfigError, DataError
from longtail.models.files.rows import Row
from longtail.models.files.text_files import BadLine
from longtail.service.offline.documents import documents_of
from longtail.training.data.dataset import open_dataset


def records(paths: Sequence[Path]) -> Iterator[Row]:
    """Records of RIS, as reference managers export them: an abstract and its keywords."""
    number = 0
    for path in paths:
        for record in filter(str.strip, path.read_text("utf-8").split("ER  -")):
            fields = [line.split("  - ", 1) for line in record.strip().splitlines()]
            number += 1
            if any(len(field) < 2 for field in fields):
                yield number, BadLine(number, "a line without a tag")
                continue
            (text,) = (value for tag, value in fields if tag == "AB")
            labels = [value for tag, value in fields if tag == "KW"]
            yield number, {"text": text, "labels": labels, "id": f"{path.stem}-{number}"}


RIS = Format(
    "RIS", {name: (f"{name}.ris",) for name in SPLIT_NAMES}, suffixes=(".ris",),
    is_text=False, rows=records,
)  # fmt: skip


def articles(paths: Sequence[Path]) -> Iterator[Row]:
    """Articles, each a file of XML with its keywords."""
    for number, path in enumerate(paths, 1):
        root = ET.parse(path).getroot()  # noqa: S314
        labels = [keyword.text for keyword in root.iter("keyword")]
        yield number, {"text": root.findtext("abstract"), "labels": labels, "id": path.stem}


ARTICLES = Format(
    "Articles", folder_files=lambda folder: sorted(folder.glob("*.xml")),
    document_suffix=".xml", is_text=False, rows=articles,
)  # fmt: skip


def write_article(path: Path, text: str, *keywords: str) -> None:
    path.parent.mkdir(exist_ok=True)
    listed = "".join(f"<keyword>{keyword}</keyword>" for keyword in keywords)
    path.write_text(f"<article><abstract>{text}</abstract>{listed}</article>")


@pytest.fixture
def folders(tmp_path):
    register(ARTICLES)
    write_article(tmp_path / "train" / "a.xml", "Fishing fleets", "fish", "ship")
    write_article(tmp_path / "train" / "b.xml", "Trout farms", "fish")
    write_article(tmp_path / "validation" / "c.xml", "A harbour", "ship")
    yield tmp_path
    FORMATS.remove(ARTICLES)


@pytest.fixture
def corpus(tmp_path):
    register(RIS)
    (tmp_path / "train.ris").write_text(
        "AB  - Fishing fleets\nKW  - fish\nKW  - ship\nER  -\n"
        "AB  - Trout farms\nKW  - fish\nER  -\n"
    )
    (tmp_path / "test.ris").write_text("AB  - A harbour\nKW  - ship\nER  -\n")
    yield tmp_path
    FORMATS.remove(RIS)


def test_documents_and_labels_are_read(corpus):
    dataset = open_dataset(corpus)
    assert dataset.split_names == ("train", "test")
    assert [(x.id, x.text) for x in dataset.split("train")] == [
        ("train-1", "Fishing fleets"), ("train-2", "Trout farms")
    ]  # fmt: skip
    counts = {label.id: label.training_count for label in dataset.catalogue}
    assert counts == {"fish": 2, "ship": 1}
    assert dataset.split("test").scan().labels.toarray().tolist() == [[0, 1]]


def test_a_line_that_cannot_be_used_is_named(corpus):
    with (corpus / "train.ris").open("a") as file:
        file.write("AB\nER  -\n")
    with pytest.raises(DataError, match="a line without a tag"):
        open_dataset(corpus).split("train").scan()


def test_one_file_is_a_corpus(corpus):
    dataset = open_dataset(corpus / "train.ris")
    assert dataset.split_names == ("train",)


def test_a_name_is_taken_once(corpus):
    with pytest.raises(ConfigError, match="'RIS': expected a name that no other has"):
        register(RIS)
    with pytest.raises(ConfigError, match="and `rows`"):
        register(Format("BibTeX", {}))


def test_folders_of_a_format_are_splits(folders):
    dataset = open_dataset(folders)
    assert dataset.split_names == ("train", "dev")
    assert [(x.id, x.text) for x in dataset.split("train")] == [
        ("a", "Fishing fleets"), ("b", "Trout farms")
    ]  # fmt: skip
    assert [label.id for label in dataset.catalogue] == ["fish", "ship"]


def test_a_folder_without_splits_is_a_corpus_and_a_document_is_named_by_its_file(folders):
    write_article(folders / "train" / "blank.xml", " ", "fish")
    dataset = open_dataset(folders / "train")
    assert dataset.split_names == ("train",)
    with pytest.raises(DataError, match="blank: empty text"):
        dataset.split("train").scan()


def test_a_folder_of_a_format_is_answered(folders):
    source = find_unlabelled(folders / "train")
    (folders / "train" / "long.xml").write_text("-" * 999)
    (*_, last) = documents_of(find_unlabelled(folders / "train"), 500)
    assert list(documents_of(source, 500)) == [
        {"text": "Fishing fleets", "id": "a"}, {"text": "Trout farms", "id": "b"}
    ]  # fmt: skip
    assert isinstance(last, BadLine) and "long.xml has 999 bytes" in last.reason
