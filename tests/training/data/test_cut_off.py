"""A file that was cut off is refused at each of its bytes, or its form can't tell."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from longtail.ext.editions.changes import VocabularyChanges
from longtail.ext.editions.difference import read_merges
from longtail.models.errors import DataError
from longtail.models.labels.files import OWN_FORM, REPOSITORY_FORM, read_label_file
from longtail.training.data.dataset import open_dataset
from longtail.training.data.feedback import read_feedback

SKOS = "http://www.w3.org/2004/02/skos/core#"
DOCUMENTS = [
    {"id": "1", "text": "a cat", "labels": ["x", "y"]}, {"id": "2", "text": "é", "labels": ["x"]}
]  # fmt: skip
TABLE = "id,text,labels\n1,a cat,x;y\n2,é,x\n"
LABELS = [{"id": "u:a", "name": "A"}, {"id": "u:b", "name": "B"}]
LABEL_TABLE = "id,name\nu:a,A\nu:b,B\n"
CONCEPTS = {
    "ttl": f"@prefix s: <{SKOS}> .\n<u:a> a s:Concept ; s:prefLabel 'A' .\n"
    "<u:b> a s:Concept ; s:prefLabel 'B' .\n",
    "nt": f'<u:a> <{SKOS}prefLabel> "A" .\n<u:b> <{SKOS}prefLabel> "B" .\n',
    "rdf": '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
    f'xmlns:s="{SKOS}"><s:Concept rdf:about="u:a"><s:prefLabel>A</s:prefLabel></s:Concept>'
    '<s:Concept rdf:about="u:b"><s:prefLabel>B</s:prefLabel></s:Concept></rdf:RDF>',
    "jsonld": json.dumps([{"@id": x["id"], f"{SKOS}prefLabel": x["name"]} for x in LABELS]),
    "tsv": "<u:a>\tA\n<u:b>\tB\n",
    "csv": "uri,label_en\nu:a,A\nu:b,B\n",
}  # fmt: skip


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def arrow_bytes(write):
    sink = pa.BufferOutputStream()
    write(pa.Table.from_pylist(DOCUMENTS), sink)
    return sink.getvalue().to_pybytes()


def write_stream(table, sink):
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def documents(path: Path):
    folder = path.parent
    dataset = open_dataset(path if len([*folder.iterdir()]) == 1 else folder)
    return [
        (x.id, x.text, [dataset.labels[y].id for y in x.labels]) for x in dataset.split("train")
    ]


def labels(path: Path):
    form = REPOSITORY_FORM if path.stem == "lbl" else OWN_FORM
    return [(label.id, label.name) for label in read_label_file(path, form)]


def feedback(path: Path):
    return read_feedback(path).entries


REPOSITORY = [{"uid": x["id"], "title": x["text"], "target_ind": [0]} for x in DOCUMENTS]
GONE = {"id": "u:a", "name": "A", "is_gone": True}
FORMS = {
    "documents.jsonl": (documents, json_lines(DOCUMENTS)),
    "documents.csv": (documents, TABLE),
    "documents.tsv": (documents, TABLE.replace(",", "\t")),
    "short texts.tsv": (documents, "a cat\t<u:a> <u:b>\na dog\t<u:b>\n"),
    "trn.json": (documents, json_lines(REPOSITORY)),
    "documents.csv.gz": (documents, gzip.compress(TABLE.encode(), mtime=0)),
    "documents.parquet": (documents, arrow_bytes(parquet.write_table)),
    "documents.arrow": (documents, arrow_bytes(write_stream)),
    "labels.jsonl": (labels, json_lines(LABELS)),
    "labels.csv": (labels, LABEL_TABLE),
    "labels.tsv": (labels, LABEL_TABLE.replace(",", "\t")),
    "lbl.json": (labels, json_lines({"uid": x["id"], "title": x["name"]} for x in LABELS)),
    **{f"vocabulary.{form}": (labels, content) for form, content in CONCEPTS.items()},
    "vocabulary.rdf.gz": (labels, gzip.compress(CONCEPTS["rdf"].encode(), mtime=0)),
    "changes.json": (
        lambda path: VocabularyChanges.from_json(path.read_bytes(), "changes"),
        json.dumps({"deprecated": [GONE], "restored": ["u:b"]}),
    ),
    "merges.csv": (read_merges, "id,replaced_by\nu:a,u:b\nu:c,u:d\n"),
    "feedback.jsonl": (
        feedback,
        json_lines(
            {"id": str(x), "text": "a cat", "accepted": ["x"]} for x in range(2)
        ),
    ),
}  # fmt: skip
CAN_NOT_TELL = {
    "documents.jsonl", "documents.csv", "documents.tsv", "short texts.tsv", "trn.json",
    "labels.jsonl", "labels.csv", "labels.tsv", "lbl.json", "merges.csv", "feedback.jsonl",
    "vocabulary.ttl", "vocabulary.nt", "vocabulary.tsv", "vocabulary.csv",
}  # fmt: skip
"""A line, or a statement, fewer is a file of the same form."""


@pytest.mark.parametrize("name", FORMS)
def test_a_file_that_was_cut_off_is_refused_or_of_a_form_that_can_not_tell(tmp_path, name):
    read, content = FORMS[name]
    content = content.encode() if isinstance(content, str) else content
    path = tmp_path / name
    if name == "trn.json":
        (tmp_path / "lbl.json").write_text('{"uid": "0", "title": "x"}\n')
    path.write_bytes(content)
    whole, num_read_otherwise = read(path), 0
    for size in range(len(content)):
        path.write_bytes(content[:size])
        try:
            num_read_otherwise += read(path) != whole
        except DataError:
            continue
    assert bool(num_read_otherwise) == (name in CAN_NOT_TELL)
