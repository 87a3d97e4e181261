"""Corpora as people bring them: encodings, delimiters, and labels that only look right."""

import json
from pathlib import Path

import pytest

from longtail.models.corpus import label_cells
from longtail.models.corpus.columns import CorpusOptions
from longtail.models.errors import DataError
from longtail.training.data.dataset import open_dataset

CSV = 'text,labels\nGrüße aus Köln,a;b\n"zwei\nZeilen",b\n'
JSONL = (
    '{"text": "Grüße aus Köln", "labels": ["a", "b"]}\n{"text": "zwei\\nZeilen", "labels": ["b"]}\n'
)
READ = [("Grüße aus Köln", ("a", "b")), ("zwei\nZeilen", ("b",))]


def corpus(folder: Path, **files: str | bytes) -> Path:
    for key, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (folder / key.replace("__", ".")).write_bytes(data)
    return folder


def read(folder: Path, split: str = "train", **options: bool) -> list[tuple[str, tuple[str, ...]]]:
    dataset = open_dataset(folder, CorpusOptions(**options))
    name_of = [label.name for label in dataset.labels]
    return [
        (document.text, tuple(sorted(name_of[label] for label in document.labels)))
        for document in dataset.split(split)
    ]


def refusal(folder: Path, split: str = "train", **options: bool) -> str:
    with pytest.raises(DataError) as caught:
        read(folder, split, **options)
    return str(caught.value).replace(str(folder), "corpus")


@pytest.mark.parametrize("name", ["train__csv", "train__jsonl"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf_16_is_read(encoding, name, tmp_path):
    content = CSV if "csv" in name else JSONL
    assert read(corpus(tmp_path, **{name: content.encode(encoding)})) == READ


@pytest.mark.parametrize(
    ("name", "said"),
    [("train__csv", "not UTF-8 (byte 0xfc); "), ("train__jsonl", "(byte 0xfc at position 12); ")],
)
def test_another_encoding_is_refused_with_what_to_do(name, said, tmp_path):
    content = (CSV if "csv" in name else JSONL).encode("cp1252")
    message = refusal(corpus(tmp_path, **{name: content}, labels__csv="id,name\na,a\nb,b\n"))
    assert f"{said}save the file as UTF-8 ('CSV UTF-8' in Excel), or convert it" in message


def test_semicolons_in_names_of_the_label_file_do_not_split(tmp_path):
    content = 'text,labels\nt,Garden; Outdoor\nu,Toys;Garden; Outdoor;Books\nv,"Garden;Books"\n'
    labels = 'id,name\n1,"Garden; Outdoor"\n2,Garden\n3,Toys\n4,Books\n'
    assert read(corpus(tmp_path, train__csv=content, labels__csv=labels)) == [
        ("t", ("Garden; Outdoor",)),
        ("u", ("Books", "Garden; Outdoor", "Toys")),
        ("v", ("Books", "Garden")),
    ]


def test_labels_that_look_alike_are_named(tmp_path, caplog):
    names = ["Books", "books", "BOOKS", "heat pump", "Heat  Pump", "Toys", "nan"]
    content = "".join(json.dumps({"text": "t", "labels": [name]}) + "\n" for name in names)
    open_dataset(corpus(tmp_path, train__jsonl=content)).labels  # noqa: B018
    assert (
        "2 groups of labels differ only in case, spaces or Unicode form, and are kept apart: "
        "'BOOKS', 'Books', 'books'; 'Heat  Pump', 'heat pump'" in caplog.text
    )
    assert "got 'nan' as a label; leave the labels of a document empty" in caplog.text


def test_a_concept_named_null_is_no_missing_value(tmp_path, caplog):
    labels = "id,name\nhttp://x/1,Null\nhttp://x/2,Toys\n"
    content = "text,labels\nt,http://x/1\nu,http://x/2\n"
    read(corpus(tmp_path, train__csv=content, labels__csv=labels))
    assert "as a label" not in caplog.text


@pytest.mark.parametrize(("num_pairs", "is_warned"), [(2, False), (10, True)])
def test_labels_that_are_often_side_by_side_may_be_one(num_pairs, is_warned, tmp_path, caplog):
    rows = ["t,heat; cold"] * num_pairs + ["t,a; b", "u,b; c", "v,a; c"] * 200
    read(corpus(tmp_path, train__csv="\n".join(["text,labels", *rows, ""])))
    assert ("'heat; cold' always" in caplog.text) == is_warned


def test_blanks_at_the_ends_of_labels_are_named(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(label_cells, "_warned", set())
    content = "".join(json.dumps({"text": x, "labels": [x, f" {x}"]}) + "\n" for x in "ab")
    assert read(corpus(tmp_path, train__jsonl=content))[0] == ("a", ("a",))
    assert caplog.text.count("labels holds ' a', which is read and answered as 'a'") == 1


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_cut_line_is_refused_at_its_end(end, tmp_path):
    message = refusal(
        corpus(tmp_path, train__jsonl=f'{JSONL}{{"text": "half", "labels": ["a"{end}')
    )
    assert (
        "corpus: 1 line can't be used; fix it, or skip it with --skip-bad\n  train.jsonl, line 3: "
        "not JSON (Expecting ',' delimiter at character 32, where the line ends: is it cut off?)"
        in message
    )


@pytest.mark.parametrize("skip_bad", [False, True])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps([{"text": "t", "labels": ["a"]}], indent=2), "a JSON array, expected one JSON"),
        (json.dumps([{"text": "t", "labels": ["a"]}]), "a JSON array, expected one JSON object"),
        (json.dumps({"text": "t", "labels": ["a"]}, indent=2), "a JSON object over several lines"),
    ],
)
def test_json_that_is_no_json_lines_is_refused_with_what_to_do(content, said, skip_bad, tmp_path):
    message = refusal(corpus(tmp_path, train__jsonl=content), skip_bad=skip_bad)
    assert message.startswith(f"corpus/train.jsonl, line 1: begins {said}")
    assert "json.dumps(" in message
    assert ("python3 -c" in message) == ("array" in said)


def split_corpus(folder: Path, **files: str) -> Path:
    lines = {
        "train__jsonl": '{"text": "t", "labels": ["b", "a"]}\n{"text": "u", "labels": ["b"]}\n',
        "dev__jsonl": '{"text": "v", "labels": ["z", "a"]}\n',
        "test__jsonl": '{"text": "w", "labels": ["y"]}\n{"text": "x", "labels": ["z", "b"]}\n',
    }
    return corpus(folder, **(lines | files))


@pytest.mark.parametrize("skip_bad", [False, True])
def test_labels_of_other_splits_are_labels_without_training_documents(skip_bad, tmp_path, caplog):
    dataset = open_dataset(split_corpus(tmp_path), CorpusOptions(skip_bad=skip_bad))
    dataset.check()
    found = [(label.id, label.training_count) for label in dataset.catalogue]
    assert found == [("b", 2), ("a", 1), ("y", 0), ("z", 0)]
    assert read(tmp_path, "test", skip_bad=skip_bad) == [("w", ("y",)), ("x", ("b", "z"))]
    assert (
        "only dev or test documents carry 2 of 4 labels ('y', 'z'); they are kept, as labels "
        "without training documents" in caplog.text
    )


def test_measured_documents_are_never_skipped_for_a_label_that_the_file_lacks(tmp_path):
    labels = "id,name\na,a\nb,b\ny,y\n"
    split_corpus(tmp_path, labels__csv=labels)
    dataset = open_dataset(tmp_path, CorpusOptions(skip_bad=True))
    with pytest.raises(DataError) as caught:
        dataset.check()
    message = str(caught.value)
    assert (
        "dev.jsonl: 1 line can't be skipped, for unknown labels are no reason to measure on the "
        "rest alone, which is easier; add the labels to labels.csv (they need no training "
        "documents), or take them out of the documents\n  dev.jsonl, line 1: unknown label 'z'"
        in message
    )
