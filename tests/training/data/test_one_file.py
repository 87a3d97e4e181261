"""A corpus in one file: its documents are divided by a hash of their text."""

import hashlib
import json
import shlex
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from longtail.models.corpus.columns import CorpusOptions
from longtail.models.corpus.raw import (
    LEAST_DIVIDED,
    LEAST_GROUPS,
    RawDocument,
    division_of,
    part_of_document,
)
from longtail.models.errors import DataError
from longtail.training.data.dataset import open_dataset
from longtail.training.reports.inspection import inspect_dataset

TEXTS = [f"document {row}" for row in range(1_000)]


def write(path: Path, texts: Iterable[str]) -> Path:
    lines = (json.dumps({"text": text, "labels": [f"l{len(text)}"]}) + "\n" for text in texts)
    path.write_text("".join(lines))
    return path


def texts_of(path: Path) -> dict[str, list[str]]:
    dataset = open_dataset(path)
    return {name: list(dataset.split(name).texts()) for name in dataset.split_names}


def slow_part_of(text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"longtail parts").digest()
    tenth = int.from_bytes(digest, "big") % 10
    return "train" if tenth < 8 else "dev" if tenth == 8 else "test"


def test_each_document_is_in_the_split_of_its_hash(tmp_path):
    found = texts_of(write(tmp_path / "all.jsonl", [*TEXTS, *TEXTS[:50]]))
    assert list(found) == ["train", "dev", "test"]
    for name, texts in found.items():
        assert texts == [x for x in [*TEXTS, *TEXTS[:50]] if slow_part_of(x) == name]
    assert 750 < len(found["train"]) < 900
    assert min(len(found["dev"]), len(found["test"])) > 60


@pytest.mark.parametrize(
    ("texts", "expected"),
    [(TEXTS[: LEAST_DIVIDED - 1], False), (TEXTS[:LEAST_DIVIDED], True), (["same"] * 900, False)],
)
def test_few_different_texts_are_not_divided(texts, expected, tmp_path):
    documents = (RawDocument(row, None, text, ()) for row, text in enumerate(texts))
    assert division_of(documents) == ("text" if expected else None)
    dataset = open_dataset(write(tmp_path / "all.jsonl", texts))
    assert dataset.split_names == (("train", "dev", "test") if expected else ("train",))


@pytest.mark.parametrize(("num_groups", "expected"), [(LEAST_GROUPS, "id"), (10, None)])
def test_documents_of_named_groups_are_divided_by_them_or_not_at_all(num_groups, expected):
    groups = [str(row % num_groups) for row in range(len(TEXTS))]
    documents = [
        RawDocument(row, str(row), text, (), group=group)
        for row, (text, group) in enumerate(zip(TEXTS, groups, strict=True))
    ]
    assert division_of(documents) == expected
    assert expected is None or len({part_of_document(x, expected) for x in documents}) == 3


def write_with_ids(path: Path, documents: Iterable[tuple[object, str]]) -> Path:
    lines = (json.dumps({"id": x, "text": text, "labels": ["l"]}) + "\n" for x, text in documents)
    path.write_text("".join(lines))
    return path


def test_with_ids_an_edited_text_stays_in_its_split(tmp_path, caplog):
    documents = [(f"d{row}", text) for row, text in enumerate(TEXTS)]
    edited = [(name, f"{text} edited") for name, text in documents]
    before = open_dataset(write_with_ids(tmp_path / "a.jsonl", documents))
    after = open_dataset(write_with_ids(tmp_path / "b.jsonl", edited))
    for name in ("train", "dev", "test"):
        ids = [document.id for document in before.split(name)]
        assert ids == [document.id for document in after.split(name)]
        assert all(slow_part_of(each) == name for each in ids)
    assert "divided by a hash of their id into" in caplog.text
    assert open_dataset(tmp_path / "a.jsonl", division="text").fingerprint != before.fingerprint


def test_documents_without_ids_are_not_said_to_be_divided_by_them(tmp_path, caplog):
    path = write(tmp_path / "a.jsonl", TEXTS)
    dataset = open_dataset(path, division="id")  # as those of the training were
    assert "divided by a hash of their text into" in caplog.text
    assert "of their id" not in caplog.text
    assert all(slow_part_of(x) == "test" for x in dataset.split("test").texts())


def test_the_fingerprint_knows_options_and_division(tmp_path):
    path = write(tmp_path / "train.jsonl", TEXTS)
    plain = open_dataset(tmp_path).fingerprint
    assert open_dataset(tmp_path).fingerprint == plain
    divided = open_dataset(path).fingerprint
    named = open_dataset(path, CorpusOptions(text_columns=("text",))).fingerprint
    assert len({plain, divided, named}) == 3


def csv_of(folder: Path, cells: list[str]) -> Path:
    rows = (f'text {row},"{cell}"\n' for row, cell in enumerate(cells))
    path = folder / "train.csv"
    path.write_text("text,labels\n" + "".join(rows))
    return path


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["a|b", "a", "b|c", "b|a"], "'|' is in 3 of 4 labels: if it stands between labels, "),
        (["a,b", "b,c", "x"], "',' is in 2 of 3 labels"),
        (["a", "b", "c|d"], None),
        (["Garden, Outdoor", "b", "c", "d", "e", "f"], None),
        (["a|b", "a|b;c"], None),
    ],
)  # fmt: skip
def test_another_delimiter_is_told(cells, said, tmp_path, caplog):
    open_dataset(csv_of(tmp_path, cells)).labels  # noqa: B018
    told = [x for x in caplog.messages if "no semicolon is in the labels column" in x]
    assert (said is None) == (not told)
    assert said is None or said in told[0]


TAGS = [f"tag-{number}" for number in range(30)]
WRITTEN = {
    "a b": ("{}", " ", " "), "a/b": ("{}", "/", "/"), "a / b": ("{}", " / ", "/"),
    "a#b": ("{}", "#", "#"), "#a #b": ("#{}", " ", "#"), "#a#b": ("#{}", "", "#"),
}  # fmt: skip
"""How a tag is written, what stands between tags, and the delimiter."""


def cells_of(way: str, num_documents: int = 200, seed: int = 0) -> list[str]:
    """Return one to four tags a document."""
    rng = np.random.default_rng(seed)
    tag, between, _ = WRITTEN[way]
    return [
        between.join(map(tag.format, rng.choice(TAGS, rng.integers(1, 5), replace=False)))
        for _ in range(num_documents)
    ]


@pytest.mark.parametrize("way", WRITTEN)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_mark_that_names_have_is_told_by_what_it_does(way, seed, form, tmp_path, caplog):
    cells = cells_of(way, seed=seed)
    path = csv_of(tmp_path, cells)
    if form == "parquet":
        path.unlink()
        path = tmp_path / "train.parquet"
        texts = [f"text {row}" for row in range(len(cells))]
        pyarrow.parquet.write_table(pyarrow.table({"text": texts, "labels": cells}), path)
    inspected = inspect_dataset(open_dataset(path))
    (told,) = [x for x in caplog.messages if "no semicolon is in the labels column" in x]
    option = f"--label-delimiter {shlex.quote(WRITTEN[way][2])}"
    assert told.endswith(f"give {option}")
    assert any(x.endswith(f"several each? Then give {option}") for x in inspected.oddities)
    caplog.clear()
    options = CorpusOptions(label_delimiter=shlex.split(option)[1])
    dataset = open_dataset(path, options)
    assert {label.name for label in dataset.labels} == set(TAGS)
    oddities = inspect_dataset(dataset).oddities
    assert not any("--label-delimiter" in x for x in (*caplog.messages, *oddities))


NAMES = {
    "two words": ["fruit vegetables", "New York", "New Zealand", "root vegetables", "York"],
    "marks": ["and/or", "either/or", "and", "or", "C#", "F#", "C", "TCP/IP", "N53.77", "TCP", "IP"],
    "grid": [f"{a} {b}" for a in ("red", "white", "green") for b in ("wine", "sauce", "paper")],
    "paths": [f"Sport/{a}/{b}" for a in ("Ball", "Water") for b in ("Clubs", "Rules", a)],
    "glossary": [f"{a} {b}" for a in TAGS[:15] for b in TAGS[:15]][::11],
    "sentences": [f"the {a} of {b} and {b}" for a in TAGS[:9] for b in TAGS[:9]][::7],
}


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("num_documents", [20, 300])
def test_names_of_several_words_are_no_tags(names, num_documents, tmp_path, caplog):
    rng = np.random.default_rng(num_documents)
    kind = NAMES[names]
    cells = [kind[row] if row < len(kind) else rng.choice(kind) for row in range(num_documents)]
    inspected = inspect_dataset(open_dataset(csv_of(tmp_path, cells)))
    assert not any("--label-delimiter" in x for x in (*caplog.messages, *inspected.oddities))


def test_names_in_lists_are_no_tags(tmp_path, caplog):
    rng = np.random.default_rng(0)
    lists = [
        json.dumps(rng.choice(cells_of("a b"), 3).tolist()).replace('"', '""') for _ in range(100)
    ]
    inspected = inspect_dataset(open_dataset(csv_of(tmp_path, lists)))
    assert not any("--label-delimiter" in x for x in (*caplog.messages, *inspected.oddities))


@pytest.mark.parametrize("cell", ["|a|b|", "|a|b", "a|b|", " |a|b "])
def test_a_delimiter_may_begin_and_end_a_cell(cell, tmp_path):
    path = csv_of(tmp_path, [cell])
    labels = open_dataset(path, CorpusOptions(label_delimiter="|")).labels
    assert [label.name for label in labels] == ["a", "b"]


def test_a_uri_is_named_as_one():
    with pytest.raises(DataError, match="got a URI; expected a path"):
        open_dataset(Path("file:///data/train.parquet"))


@pytest.fixture
def pairs(tmp_path):
    """One text in two rows, each with an id of its own and one of its labels."""
    rows = [f"{row}-{label},document {row},l{label}" for row in range(300) for label in range(2)]
    path = tmp_path / "view.csv"
    path.write_text("\n".join(["id,text,labels", *rows]))
    return path


def test_texts_with_several_ids_are_in_one_split_and_asked_about(pairs, caplog):
    dataset = open_dataset(pairs)
    texts = [set(dataset.split(name).texts()) for name in dataset.split_names]
    assert sum(map(len, texts)) == len(set.union(*texts)) == 300
    assert "--one-row-per-label" in caplog.text
    assert any("--one-row-per-label" in x for x in inspect_dataset(dataset).oddities)


def test_rows_with_ids_of_their_own_are_joined_by_their_text(pairs, caplog):
    dataset = open_dataset(pairs, CorpusOptions(one_row_per_label=True))
    documents = [each for name in dataset.split_names for each in dataset.split(name)]
    assert len(documents) == 300 and {len(each.labels) for each in documents} == {2}
    assert "--one-row-per-label" not in caplog.text
