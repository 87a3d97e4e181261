"""Corpora in every format: what is read, what is refused, and what it costs."""

import csv
import gzip
import hashlib
import io
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longtail.models.corpus.columns import CorpusOptions
from longtail.models.errors import DataError
from longtail.training.data.dataset import Dataset, open_dataset

LABELS = [
    {"id": "a", "name": "apples", "description": "A fruit."},
    {"id": "b", "name": "bread"},
    {"id": "c", "name": "cheese; hard"},
]
DOCUMENTS = [
    {"id": "d1", "text": "Bread and cheese", "labels": ["bread", "c"]},
    {"id": "d2", "text": "Nothing at all", "labels": []},
    {"id": "d3", "text": 'A "quoted"\napple, sliced', "labels": ["a", "apples", "b"]},
]
EXPECTED = [
    ("d1", "Bread and cheese", (1, 2)),
    ("d2", "Nothing at all", ()),
    ("d3", 'A "quoted"\napple, sliced', (0, 1)),
]


def json_lines(records: list) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def csv_lines(records: list[dict]) -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(records[0]))
    writer.writeheader()
    for record in records:
        writer.writerow({k: ";".join(v) if isinstance(v, list) else v for k, v in record.items()})
    return file.getvalue().encode()


def indexed(records: list[dict]) -> list[dict]:
    """The documents as the Extreme Classification Repository writes them."""
    return [
        {"uid": uid, "title": "", "content": text, "target_ind": list(labels), "target_rel": [1.0]}
        for uid, text, labels in records
    ]


def write(folder: Path, **files: bytes) -> Path:
    """Write files named with `__` for a dot, compressed where the name ends in gz."""
    folder.mkdir(exist_ok=True)
    for key, content in files.items():
        name = key.replace("__", ".")
        (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    return folder


def documents(dataset: Dataset, split: str = "train") -> list[tuple]:
    return [(document.id, document.text, document.labels) for document in dataset.split(split)]


def problems_of(folder: Path, split: str = "train") -> str:
    """The message that the split is refused with, without the folder's name."""
    with pytest.raises(DataError) as caught:
        open_dataset(folder).split(split).scan()
    return str(caught.value).replace(str(folder), "corpus")


XC_LABELS = json_lines(
    [{"uid": x["id"], "title": x["name"], "content": x.get("description")} for x in LABELS]
)
BOM = b"\xef\xbb\xbf"
SAME_CORPUS = {
    "repository, compressed": {
        "trn__json__gz": json_lines(indexed(EXPECTED)), "lbl__json__gz": XC_LABELS,
    },
    "repository, plain": {"trn__json": json_lines(indexed(EXPECTED)), "lbl__json": XC_LABELS},
    "json lines": {"train__jsonl": json_lines(DOCUMENTS), "labels__jsonl": json_lines(LABELS)},
    "json lines, labels in csv": {
        "train__jsonl__gz": json_lines(DOCUMENTS), "labels__csv__gz": csv_lines(LABELS),
    },
    "csv": {"train__csv": csv_lines(DOCUMENTS), "labels__csv": csv_lines(LABELS)},
    "csv, labels in json lines": {
        "train__csv__gz": csv_lines(DOCUMENTS), "labels__jsonl__gz": json_lines(LABELS),
    },
    "byte order marks": {
        "train__csv": BOM + csv_lines(DOCUMENTS), "labels__jsonl": BOM + json_lines(LABELS),
    },
    "carriage returns and blank lines": {
        "train__jsonl": json_lines(DOCUMENTS).replace(b"\n", b"\r\n\r\n"),
        "labels__jsonl": json_lines(LABELS),
    },
}  # fmt: skip


@pytest.mark.parametrize("files", SAME_CORPUS.values(), ids=SAME_CORPUS)
def test_every_format_gives_the_same_corpus(files, tmp_path):
    dataset = open_dataset(write(tmp_path, **files))
    assert documents(dataset) == EXPECTED
    assert [(x.id, x.name, x.description, x.training_count) for x in dataset.catalogue] == [
        ("a", "apples", "A fruit.", 1),
        ("b", "bread", "", 2),
        ("c", "cheese; hard", "", 1),
    ]


def test_text_is_the_title_a_line_feed_and_the_content(tmp_path):
    titled = [
        {"title": "T", "content": "C", "labels": ["x"]},
        {"title": "T", "content": " ", "labels": []},
        {"content": "C", "labels": []},
    ]
    split = open_dataset(write(tmp_path, train__jsonl=json_lines(titled))).split("train")
    assert list(split.texts()) == ["T\nC", "T", "C"]


def test_without_label_file_labels_go_by_training_documents_then_text(tmp_path):
    labels = [["z", "m", "m"], ["z", "b"], [7]]
    lines = json_lines([{"text": "t", "labels": x} for x in labels])
    dataset = open_dataset(write(tmp_path, train__jsonl=lines))
    assert [(x.id, x.name, x.training_count) for x in dataset.catalogue] == [
        ("z", "z", 2),
        ("7", "7", 1),
        ("b", "b", 1),
        ("m", "m", 1),
    ]


label_lists = st.lists(st.lists(st.integers(0, 5), max_size=8), min_size=1, max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(label_lists)
def test_label_matrix_is_that_of_a_naive_loop(tmp_path, label_lists):
    rows = [{"title": "t", "target_ind": labels} for labels in label_lists]
    names = json_lines([{"uid": str(index), "title": "name"} for index in range(6)])
    write(tmp_path, trn__json=json_lines(rows), lbl__json=names)
    matrix = np.zeros((len(rows), 6))
    for row, labels in enumerate(label_lists):
        for label in labels:
            matrix[row, label] = 1
    dataset = open_dataset(tmp_path)
    assert (dataset.split("train").scan().labels.toarray() == matrix).all()
    assert (dataset.catalogue.training_counts == matrix.sum(axis=0)).all()


def test_fingerprint_is_the_hash_of_names_and_hashes(tmp_path):
    files = {"train.jsonl": json_lines(DOCUMENTS), "labels.jsonl": json_lines(LABELS)}
    write(tmp_path, README__md=b"not data", **{k.replace(".", "__"): v for k, v in files.items()})
    lines = [f"{name}\n{hashlib.sha256(files[name]).hexdigest()}\n" for name in sorted(files)]
    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert open_dataset(tmp_path).fingerprint == expected


DEEP = b"[" * 100_000
BAD_LINES = {
    b"{nonsense": "not JSON (Expecting property name enclosed in double quotes at character 2)",
    DEEP: "not JSON that can be read (maximum recursion depth exceeded",
    b"9" * 5000: "not JSON that can be read (Exceeds the limit (4300 digits)",
    b"[1, 2]": "[1, 2] (list); expected one JSON object a line",
    b'{"text": "\xff"}': "not UTF-8 (byte 0xff at position 10)",
    b'{"labels": []}': "no 'text'; the line has 'labels'",
    b'{"text": "t"}': "no 'labels'; the line has 'text'",
    b'{"text": " \\n", "labels": []}': "empty text; expected words in 'text'",
    b'{"text": 5, "labels": []}': "text is 5 (int); expected a string",
    b'{"text": "\\ud800", "labels": []}': "text holds '\\ud800', half of a surrogate pair",
    b'{"text": "t", "labels": "a"}': "labels is 'a' (str); expected a list",
    b'{"text": "t", "labels": [true]}': "labels holds True (bool); expected ids or names of labels",
    b'{"text": "t", "labels": [" "]}': "labels holds ' ' (str); expected ids or names of labels",
    b'{"text": "t", "labels": [], "id": [1]}': "id is [1] (list); expected a string",
    b'{"text": "t", "labels": ["x"]}': "unknown label 'x'",
}


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.items(), ids=BAD_LINES.values())
def test_bad_json_line_is_refused_with_file_line_and_reason(line, reason, tmp_path):
    lines = json_lines(DOCUMENTS) + line + b"\n"
    message = problems_of(write(tmp_path, train__jsonl=lines, labels__jsonl=json_lines(LABELS)))
    assert message.startswith("corpus: 1 line can't be used; fix it, or skip it with --skip")
    assert f"\n  train.jsonl, line 4: {reason}" in message


def test_all_unknown_labels_of_a_line_are_named_with_what_to_do(tmp_path):
    train = json_lines([{"text": "t", "labels": ["a"]}])
    dev = json_lines([{"text": "t", "labels": ["p", "a", "q"]}])
    files = {"train__jsonl": train, "dev__jsonl": dev, "labels__jsonl": json_lines(LABELS)}
    message = problems_of(write(tmp_path, **files), "dev")
    assert "unknown label 'p'" in message
    assert "unknown label 'q'" in message
    assert "the labels are those of labels.jsonl" in message


@pytest.fixture
def half_bad(tmp_path):
    """Good and bad lines in turn."""
    bad = [1, {"text": "", "labels": []}, {"text": "t", "labels": ["unknown"]}]
    lines = [line for pair in zip(bad, DOCUMENTS, strict=True) for line in pair]
    return write(tmp_path, train__jsonl=json_lines(lines), labels__jsonl=json_lines(LABELS))


def test_skipped_lines_are_counted_and_the_rest_keeps_its_order(half_bad):
    dataset = open_dataset(half_bad, CorpusOptions(skip_bad=True), max_problems=2)
    scan = dataset.split("train").scan()
    assert documents(dataset) == EXPECTED
    assert (scan.num_skipped, len(scan.problems), scan.labels.shape) == (3, 2, (3, 3))
    assert scan.problems[0] == "train.jsonl, line 1: 1 (int); expected one JSON object a line"


def test_blank_line_among_indexed_labels_is_refused_as_it_would_shift_them(tmp_path):
    labels = XC_LABELS.replace(b"\n", b"\n\n", 1)
    write(tmp_path, trn__json=json_lines(indexed(EXPECTED)), lbl__json=labels)
    with pytest.raises(DataError, match=r"lbl\.json, line 2: not JSON"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("cut", [30, 0.5])
@pytest.mark.parametrize("skip_bad", [False, True])
def test_truncated_file_is_refused_by_name(cut, skip_bad, tmp_path):
    write(tmp_path, **SAME_CORPUS["json lines, labels in csv"])
    path = tmp_path / "train.jsonl.gz"
    content = path.read_bytes()
    path.write_bytes(content[: int(cut * len(content)) if cut < 1 else cut])
    with pytest.raises(DataError, match=r"train\.jsonl\.gz: can't be read to its end"):
        open_dataset(tmp_path, CorpusOptions(skip_bad=skip_bad)).split("train").scan()


def test_file_without_line_ends_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("longtail.models.files.text_files.MAX_LINE_BYTES", 1000)
    write(tmp_path, train__jsonl=json.dumps(DOCUMENTS * 20).encode(), labels__csv=b"id,name\na,b\n")
    with pytest.raises(DataError, match=r"line 1: longer than 1000 bytes; expected one document a"):
        open_dataset(tmp_path).split("train").scan()


@pytest.mark.parametrize("form", ["csv", "jsonl", "folder"])
@pytest.mark.parametrize("is_text", [True, False])
def test_a_document_of_very_long_text_or_very_many_labels_is_a_bad_line(
    form, is_text, tmp_path, monkeypatch
):
    for name in ("documents.MAX_TEXT_CHARACTERS", "label_cells._MOST_CHARACTERS"):
        monkeypatch.setattr(f"longtail.models.corpus.{name}", 900)
    for name in ("documents.MAX_LABELS", "label_cells.MAX_LABELS"):
        monkeypatch.setattr(f"longtail.models.corpus.{name}", 100)
    text, labels = ("x " * 500, ["a"]) if is_text else ("olive oil", ["a"] * 101)
    if form == "csv":
        lines = ["text,labels", f"{text},{';'.join(labels)}", "olive oil,a"]
        (tmp_path / "train.csv").write_text("\n".join(lines))
    elif form == "jsonl":
        rows = [{"text": text, "labels": labels}, {"text": "olive oil", "labels": ["a"]}]
        (tmp_path / "train.jsonl").write_bytes(json_lines(rows))
    else:
        (tmp_path / "train").mkdir()
        for name, content, keys in (("1", text, labels), ("2", "olive oil", ["a"])):
            (tmp_path / "train" / f"{name}.txt").write_text(content)
            (tmp_path / "train" / f"{name}.key").write_text("\n".join(keys))
    with pytest.raises(DataError, match=r"expected at most (900|100)"):
        open_dataset(tmp_path).split("train").scan()
    found = open_dataset(tmp_path, CorpusOptions(skip_bad=True)).split("train").scan()
    assert found.labels.shape == (1, 1)


def test_a_full_text_that_memory_could_not_hold_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("longtail.models.corpus.annif.MAX_LINE_BYTES", 10)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "1.txt").write_text("olive oil and fish")
    (tmp_path / "train" / "1.key").write_text("a")
    with pytest.raises(DataError, match=r"1\.txt has 18 bytes; expected at most 10"):
        open_dataset(tmp_path).split("train").scan()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_memory_is_bounded_by_the_label_matrix_not_by_the_text(form, tmp_path):
    num_documents, text = 1000, "ten bytes " * 1000  # 10 MB
    with (tmp_path / f"train.{form}").open("w") as file:
        file.write("text,labels\n" if form == "csv" else "")
        for row in range(num_documents):
            line = (
                f"{text},{row % 9}"
                if form == "csv"
                else json.dumps({"text": text, "labels": [row % 9]})
            )
            file.write(line + "\n")
    names = json_lines([{"id": number, "name": "name"} for number in range(9)])
    write(tmp_path, labels__jsonl=names)
    tracemalloc.start()
    split = open_dataset(tmp_path).split("train")
    num_characters = sum(map(len, split.texts()))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert num_characters == num_documents * len(text)
    assert peak_bytes < 2_000_000
