"""Which columns are taken, what is said of it, and what is refused."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from longtail.models.corpus.columns import RECOGNISED, ColumnNames, CorpusOptions, find_columns
from longtail.models.errors import DataError
from longtail.training.data.dataset import open_dataset
from longtail.training.reports.inspection import inspect_dataset


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ("text labels", (("text",), "labels", None)),
        ("id title content labels", (("title", "content"), "labels", "id")),
        ("title labels", (("title",), "labels", None)),
        ("doc_id title abstract tags", (("title", "abstract"), "tags", "doc_id")),
        (
            "document_id text subject_uris subject_labels",
            (("text",), "subject_uris", "document_id"),
        ),
        ("body keywords", (("body",), "keywords", None)),
        ("text title labels tags", (("title", "text"), "labels", None)),
        ("content abstract text label", (("text",), "label", None)),
        ("id subject body label", (("subject", "body"), "label", "id")),
        ("summary description labels", (("summary", "description"), "labels", None)),
        ("headline text topic", (("headline", "text"), "topic", None)),
        ("betreff nachricht kategorie", (("betreff", "nachricht"), "kategorie", None)),
        ("subject title text tags category", (("title", "text"), "tags", None)),
        ("message body tags topic", (("body",), "tags", None)),
    ],
)
def test_common_names_are_taken(present, expected):
    assert find_columns(present.split(), RECOGNISED) == ColumnNames(*expected)


@pytest.mark.parametrize(
    ("present", "options", "expected"),
    [
        ("a b c", {"text_columns": ("b", "a"), "label_column": "c"}, (("b", "a"), "c", None)),
        (
            "Text Tags",
            {"text_columns": ("text",), "label_column": "TAGS"},
            (("Text",), "Tags", None),
        ),
        ("text tags keywords", {"label_column": "tags"}, (("text",), "tags", None)),
        (
            "title description labels",
            {"label_column": "description"},
            (("title",), "description", None),
        ),
        ("id text labels nr", {"id_column": "nr"}, (("text",), "labels", "nr")),
        ("title text labels", {"text_columns": ("text",)}, (("text",), "labels", None)),
        ("title text labels", {"id_column": "title"}, (("text",), "labels", "title")),
    ],
)
def test_named_columns_are_taken(present, options, expected):
    assert find_columns(present.split(), CorpusOptions(**options)) == ColumnNames(*expected)


@pytest.mark.parametrize(
    ("present", "options", "said"),
    [
        ("text tags keywords", {}, "'tags', 'keywords' may each hold the labels; choose wi"),
        ("title abstract body labels", {}, "choose with '--text-columns title,abstract'"),
        ("a labels", {}, "no 'text'; it has 'a', 'labels'; name the columns of the text with"),
        ("text a", {}, "no 'labels'; it has 'text', 'a'; name the column of the labels with"),
        ("text labels", {"text_columns": ("titel",)}, "--text-columns: no column 'titel'; it has"),
        ("text labels", {"id_column": "nr"}, "--id-column: no column 'nr'"),
        ("text subject", {}, "or call it 'labels' or 'subjects' or "),
        ("category topic text", {}, "'category', 'topic' may each hold the labels"),
    ],
)  # fmt: skip
def test_what_is_not_plain_is_refused_with_what_to_type(present, options, said):
    with pytest.raises(DataError) as caught:
        find_columns(present.split(), CorpusOptions(**options))
    assert said in str(caught.value)


def tickets(folder: Path, header: str) -> Path:
    rows = [f"T-{i},broken printer {i},we see it on {i},2026-01-0{i % 9},tag" for i in range(20)]
    (folder / "tickets.csv").write_text("\n".join([header, *rows]))
    return folder / "tickets.csv"


@pytest.mark.parametrize("names", ["Subject,Description", "Summary,Body", "Betreff,Nachricht"])
def test_a_ticket_is_read_with_its_subject(tmp_path, names):
    dataset = open_dataset(tickets(tmp_path, f"Key,{names},created,Tags"))
    assert next(iter(dataset.split("train").texts())) == "broken printer 0\nwe see it on 0"


def test_columns_that_are_not_read_are_named_with_what_they_look_like(tmp_path, caplog):
    dataset = open_dataset(tickets(tmp_path, "Ticket ID,Problem,Description,created,Tags"))
    dataset.split("train").scan()
    (remark,) = (x for x in inspect_dataset(dataset).recognised if "not read" in x)
    assert "'Ticket ID', 'Problem', 'created'" in remark
    assert "not read: 'Ticket ID'" in caplog.text
    assert "'Problem' looks like text: --text-columns description,Problem joins it" in remark
    assert "'Ticket ID' looks like an id: --id-column 'Ticket ID'" in remark


def test_a_header_of_unknown_names_is_shown_as_it_is_written_with_the_known_ones(tmp_path):
    (tmp_path / "train.csv").write_text("Nr,TITEL,Sache\n1,a,b\n")
    with pytest.raises(DataError) as caught:
        open_dataset(tmp_path).split("train").scan()
    assert "'Nr', 'TITEL', 'Sache'" in str(caught.value)
    assert "'tags'" in str(caught.value) and "'kategorie'" in str(caught.value)


def write(folder: Path, *documents: dict[str, object]) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return folder


def test_fields_are_joined_where_a_line_has_them(tmp_path):
    write(
        tmp_path,
        {"title": "T", "abstract": "A", "tags": ["x"]},
        {"abstract": "B", "tags": ["x"]},
        {"title": "C", "tags": ["x"]},
    )
    options = CorpusOptions(("title", "abstract"))
    texts = list(open_dataset(tmp_path, options).split("train").texts())
    assert texts == ["T\nA", "B", "C"]


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "arrow"])
def test_a_title_beside_the_text_is_joined_and_told_in_every_form(tmp_path, form):
    rows = [{"text": "a", "title": "T", "labels": "x"}, {"text": "b", "title": "", "labels": "x"}]
    path = tmp_path / f"train.{form}"
    if form == "jsonl":
        write(tmp_path, *({**row, "labels": ["x"]} for row in rows))
    elif form in {"csv", "tsv"}:
        cells = [["Text", "Titel", "labels"], *(row.values() for row in rows)]
        path.write_text("".join(",\t"[form == "tsv"].join(each) + "\n" for each in cells))
    else:
        table = pa.Table.from_pylist(rows)
        if form == "parquet":
            pq.write_table(table, path)
        else:
            path = tmp_path / "train" / "data-00000-of-00001.arrow"
            path.parent.mkdir()
            with pa.ipc.new_stream(path, table.schema) as file:
                file.write_table(table)
    dataset = open_dataset(tmp_path)
    assert dataset.text_columns == ("title", "text")
    assert list(dataset.split("train").texts()) == ["T\na", "b"]
    assert "the text is taken from 'title', 'text'" in " ".join(inspect_dataset(dataset).recognised)


def test_a_string_is_divided_only_at_a_delimiter_that_is_given(tmp_path):
    write(tmp_path, {"text": "t", "labels": "x|y"})
    assert len(open_dataset(tmp_path, CorpusOptions(label_delimiter="|")).labels) == 2
    with pytest.raises(DataError, match=r"labels is 'x\|y' .*; expected a list"):
        open_dataset(tmp_path).check()
