"""A new corpus format is one file: its names and what reads its rows, registered."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from longtail.models.corpus.forms import FORMATS, SPLIT_NAMES, Format, register
from longtail.models.errors import ConfigError, DataError
from longtail.models.files.rows import Row
from longtail.models.files.text_files import BadLine
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
    has_columns=False, is_text=False, rows=records,
)  # fmt: skip


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
