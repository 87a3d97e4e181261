"""Six documents in every form that corpora have: each gives the same corpus."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from longtail.models.corpus.columns import CorpusOptions
from longtail.models.errors import DataError
from longtail.training.data.dataset import Dataset, open_dataset

FISH, OIL, TAX = "http://v.example/fish", "http://v.example/oil", "http://v.example/tax"
URIS = (FISH, OIL, TAX)
DOCUMENTS = [
    ("d1", "Grüße an die Fische", (FISH,)), ("d2", "oil, and olives; both", (OIL, TAX)),
    ("d3", 'a "quoted" text', (TAX,)), ("d4", "fish in oil", (FISH, OIL)),
    ("d5", "nothing of this", ()), ("d6", "Καλημέρα", (FISH, OIL, TAX)),
]  # fmt: skip
EXPECTED = [(text, labels) for _, text, labels in DOCUMENTS]
LABELS = "".join(json.dumps({"id": uri, "name": uri[-3:]}) + "\n" for uri in URIS)

Write = Callable[[Path], CorpusOptions]
"""Writes the six documents as the training split, and says what has to be said of them."""


def table(
    folder: Path,
    name: str,
    *,
    header: tuple[str, ...] = ("id", "text", "labels"),
    join: Callable[[tuple[str, ...]], str] = ";".join,
    encoding: str = "utf-8",
    **dialect: str,
) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file, **dialect)  # type: ignore[arg-type]
    writer.writerow(header)
    writer.writerows((id_, text, join(labels)) for id_, text, labels in DOCUMENTS)
    content = file.getvalue().encode(encoding)
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def bracketed(uris: tuple[str, ...]) -> str:
    return " ".join(f"<{uri}>" for uri in uris)


def pandas_csv(folder: Path) -> CorpusOptions:
    table(folder, "train.csv", lineterminator="\n")
    return CorpusOptions()


def excel_csv(folder: Path) -> CorpusOptions:
    table(folder, "train.csv", delimiter=";", encoding="utf-8-sig")
    return CorpusOptions()


def excel_unicode_text(folder: Path) -> CorpusOptions:
    table(
        folder, "train.tsv.gz", delimiter="\t", encoding="utf-16", header=("ID", "Text", "Labels")
    )
    return CorpusOptions()


def bars_between_labels(folder: Path) -> CorpusOptions:
    table(folder, "train.csv", join=" | ".join)
    return CorpusOptions(label_delimiter="|")


def other_columns(folder: Path) -> CorpusOptions:
    table(folder, "train.tsv", header=("nr", "Titel", "Themen"), delimiter="\t")
    return CorpusOptions(("titel",), "themen", None, "nr")


def lists_in_cells(folder: Path) -> CorpusOptions:
    table(folder, "train.csv", join=json.dumps, header=("id", "abstract", "tags"))
    return CorpusOptions()


def annif_csv(folder: Path) -> CorpusOptions:
    table(folder, "train.csv", join=bracketed, header=("document_id", "text", "subject_uris"))
    return CorpusOptions()


def annif_csv_without_brackets(folder: Path) -> CorpusOptions:
    table(folder, "train.csv", join=" ".join, header=("document_id", "text", "subject_uris"))
    return CorpusOptions()


def annif_short_texts(folder: Path) -> CorpusOptions:
    lines = (f"{text}\t{bracketed(labels)}\n" for _, text, labels in DOCUMENTS)
    (folder / "train.tsv").write_text("".join(lines), "utf-8")
    return CorpusOptions()


def annif_short_texts_of_ids(folder: Path) -> CorpusOptions:
    lines = (f"{text}\t{' '.join(labels)}\r\n" for _, text, labels in DOCUMENTS)
    (folder / "train.tsv.gz").write_bytes(gzip.compress("".join(lines).encode()))
    return CorpusOptions()


def annif_json_lines(folder: Path) -> CorpusOptions:
    lines = (
        {"document_id": id_, "text": text, "subjects": [{"uri": uri} for uri in labels]}
        for id_, text, labels in DOCUMENTS
    )
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return CorpusOptions()


def annif_full_texts_with_uris(folder: Path) -> CorpusOptions:
    (folder / "train").mkdir()
    for id_, text, labels in DOCUMENTS:
        (folder / "train" / f"{id_}.txt").write_text(text, "utf-8")
        lines = "".join(f"<{uri}>\tname\tmore\n" for uri in labels)
        (folder / "train" / f"{id_}.tsv").write_text(lines)
    return CorpusOptions()


def annif_full_texts_with_names(folder: Path) -> CorpusOptions:
    (folder / "train").mkdir()
    for id_, text, labels in DOCUMENTS:
        (folder / "train" / f"{id_}.txt").write_text(text, "utf-16")
        if labels:
            lines = "".join(f"{uri[-3:]}\n" for uri in labels)
            (folder / "train" / f"{id_}.key").write_text(lines)
    return CorpusOptions()


def one_row_per_label(folder: Path) -> CorpusOptions:
    rows = [(id_, text, label) for id_, text, labels in DOCUMENTS for label in labels or ("",)]
    with (folder / "train.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("doc_id", "text", "label"), *rows])
    return CorpusOptions(one_row_per_label=True)


def one_row_per_label_without_ids(folder: Path) -> CorpusOptions:
    rows = [
        {"text": text, "label": label}
        for _, text, labels in DOCUMENTS
        for label in labels or (None,)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return CorpusOptions(one_row_per_label=True)


def arrow_table(labels: str = "labels") -> pa.Table:
    ids, texts, lists = zip(*DOCUMENTS, strict=True)
    return pa.table({"id": ids, "text": texts, labels: [list(each) for each in lists]})


def class_table() -> pa.Table:
    """Labels as numbers of classes, as `datasets` writes them with `Sequence(ClassLabel(...))`."""
    ids, texts, lists = zip(*DOCUMENTS, strict=True)
    numbers = [[URIS.index(uri) for uri in each] for each in lists]
    feature = {"feature": {"names": list(URIS), "_type": "ClassLabel"}, "_type": "Sequence"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"labels": feature}}})}
    plain = pa.table({"id": ids, "text": texts, "labels": pa.array(numbers, pa.list_(pa.int64()))})
    return plain.replace_schema_metadata(metadata)


def plain_parquet(folder: Path) -> CorpusOptions:
    parquet.write_table(arrow_table("keywords"), folder / "train.parquet")
    return CorpusOptions()


def parquet_of_cells(folder: Path) -> CorpusOptions:
    ids, texts, lists = zip(*DOCUMENTS, strict=True)
    cells = [";".join(each) or None for each in lists]
    written = pa.table({"id": ids, "text": texts, "labels": cells})
    parquet.write_table(written, folder / "train.parquet")
    return CorpusOptions()


def hub_shards(folder: Path) -> CorpusOptions:
    (folder / "data").mkdir()
    for number, (start, size) in enumerate([(0, 4), (4, 2)]):
        name = f"train-{number:05d}-of-00002.parquet"
        parquet.write_table(class_table().slice(start, size), folder / "data" / name)
    return CorpusOptions()


def saved_to_disk(folder: Path) -> CorpusOptions:
    (folder / "train").mkdir()
    (folder / "dataset_dict.json").write_text('{"splits": ["train"]}')
    for number, (start, size) in enumerate([(0, 1), (1, 5)]):
        part = class_table().slice(start, size)
        path = folder / "train" / f"data-{number:05d}-of-00002.arrow"
        with ipc.new_stream(str(path), part.schema) as stream:
            stream.write_table(part)
    return CorpusOptions()


FORMS: list[Write] = [
    pandas_csv, excel_csv, excel_unicode_text, bars_between_labels, other_columns, lists_in_cells,
    annif_csv, annif_csv_without_brackets, annif_short_texts, annif_short_texts_of_ids,
    annif_json_lines, annif_full_texts_with_uris, annif_full_texts_with_names, one_row_per_label,
    one_row_per_label_without_ids, plain_parquet, parquet_of_cells, hub_shards, saved_to_disk,
]  # fmt: skip


def read(dataset: Dataset) -> list[tuple[str, tuple[str, ...]]]:
    labels = dataset.labels
    return [
        (document.text, tuple(sorted(labels[row].id for row in document.labels)))
        for document in dataset.split("train")
    ]


@pytest.mark.parametrize("write", FORMS)
def test_every_form_gives_the_same_documents(write, tmp_path):
    options = write(tmp_path)
    (tmp_path / "labels.jsonl").write_text(LABELS)
    dataset = open_dataset(tmp_path, options)
    dataset.check()
    assert read(dataset) == EXPECTED
    assert dataset.split_names == ("train",)
    ids = [document.id for document in dataset.split("train")]
    assert (
        ids == [str(row) for row in range(1, 7)]
        or ids == [f"d{row}" for row in range(1, 7)]
        or (write is one_row_per_label_without_ids and ids[0] == "1")
    )


@pytest.mark.parametrize("write", [x for x in FORMS if x is not annif_full_texts_with_names])
def test_without_a_label_file_the_labels_are_those_of_the_documents(write, tmp_path):
    dataset = open_dataset(tmp_path, write(tmp_path))
    assert read(dataset) == EXPECTED
    assert [(label.id, label.training_count) for label in dataset.catalogue] == [
        (FISH, 3), (OIL, 3), (TAX, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "write", [x for x in FORMS if x not in {annif_full_texts_with_names, hub_shards}]
)
def test_one_file_or_folder_is_enough(write, tmp_path, caplog):
    options = write(tmp_path)
    (path,) = [each for each in tmp_path.iterdir() if each.name.startswith("train")]
    dataset = open_dataset(path, options)
    assert read(dataset) == EXPECTED
    assert "fewer than 200 different texts, so no dev and test documents are set apart" in (
        caplog.text
    )


def test_two_files_of_one_split_are_refused(tmp_path):
    for name in ("train.csv", "dev.csv", "validation.csv"):
        table(tmp_path, name)
    with pytest.raises(DataError, match=r"both dev\.csv and validation\.csv; keep one of them"):
        open_dataset(tmp_path)


def test_the_number_of_no_class_is_refused(tmp_path):
    metadata = {
        "huggingface": json.dumps(
            {"info": {"features": {"label": {"names": ["a"], "_type": "ClassLabel"}}}}
        )
    }
    written = pa.table({"text": ["t"], "label": [-1]}).replace_schema_metadata(metadata)
    parquet.write_table(written, tmp_path / "train.parquet")
    with pytest.raises(DataError, match=r"row 1: label is -1; expected numbers of classes, from 0"):
        open_dataset(tmp_path).check()
