"""`longtail predict`: the answers of a batch, from file to file."""

import csv
import gzip
import io
import json
import os
from threading import Thread
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import longtail
from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.models.corpus.files import find_unlabelled
from longtail.models.errors import DataError
from longtail.models.files.text_files import BadLine
from longtail.models.labels.cells import labels_of_cell
from longtail.models.parts.sparse_storage import read_sparse
from longtail.service.offline.documents import (
    as_question,
    check_source,
    documents_of,
    read_as_trained,
)
from longtail.service.offline.predict import CHUNK_LINES, Task, predict_file
from longtail.service.offline.tables import ADDED, _cells, _harmless


@pytest.fixture
def predictor(fake_predictor, registry):
    return fake_predictor(registry.open(1))


def model_of(predictor):
    """Return what `predict_file` reads of a model."""
    return SimpleNamespace(
        labels=predictor.catalogue,
        default_scorer=predictor.scorers.default,
        answering=lambda scorer, explains: predictor,
    )


@pytest.fixture
def task(tmp_path):
    def make(lines, name="in.jsonl", **defaults):
        source = tmp_path / name
        body = b"".join(line + b"\n" for line in lines)
        source.write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
        return Task(find_unlabelled(source), tmp_path / "out" / "out.jsonl", 1, defaults)

    return make


def line(**content):
    return json.dumps(content).encode()


def answers(task):
    return [json.loads(text) for text in task.target.read_text().splitlines()]


@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz"])
def test_each_line_is_answered_in_order(task, predictor, name):
    lines = (line(id=i, text="a" * (1 + i % 5), k=1 + i % 2) for i in range(1200))
    asked = task(lines, name, tail_dial=0.5)
    seen = []
    summary = predict_file(asked, model_of(predictor), seen.append)
    found = answers(asked)
    assert [x["id"] for x in found] == [x["index"] for x in found] == list(range(1200))
    assert [x["labels"][0]["score"] for x in found] == [float(1 + i % 5) for i in range(1200)]
    assert {x["tail_dial"] for x in found} == {0.5}
    assert (summary.num_results, summary.versions) == (1200, {1: 1200})
    assert sum(seen) == asked.documents.paths[0].stat().st_size
    assert [path.name for path in asked.target.parent.iterdir()] == ["out.jsonl"]


def test_bad_lines_are_answered_with_errors(task, predictor, monkeypatch):
    monkeypatch.setattr("longtail.service.offline.predict.MAX_LINE_BYTES", 100)
    asked = task(
        [
            b"nonsense", b"", line(id=1, text="a", scorer="magic"), line(text="x" * 200),
            line(id=2, text="b", version=7), line(id=3, text="long " * 8, version="current"),
            line(id=4, text="a", scorer=""),
        ],
    )  # fmt: skip
    summary = predict_file(asked, model_of(predictor))
    kinds = [x["error"]["type"].rsplit(":")[-1] if "error" in x else "" for x in answers(asked)]
    assert kinds == ["malformed-body", "request", "line-too-long", "model-not-found", "", "request"]
    assert (summary.num_lines, summary.num_results, summary.num_errors) == (6, 1, 5)


def test_a_run_that_was_cut_off_leaves_the_output_as_it_was(task, fake_predictor, registry):
    class Breaking(fake_predictor):
        def predict(self, texts, **options):
            if self.calls:
                raise KeyboardInterrupt
            return super().predict(texts, **options)

    asked = task(line(id=i, text="a") for i in range(2 * CHUNK_LINES))
    asked.target.parent.mkdir()
    asked.target.write_text("before")
    with pytest.raises(KeyboardInterrupt):
        predict_file(asked, model_of(Breaking(registry.open(1))))
    assert [(x.name, x.read_text()) for x in asked.target.parent.iterdir()] == [
        ("out.jsonl", "before")
    ]


def test_the_command_takes_filters_and_explains(tmp_path, trained_sparse):
    source, target = tmp_path / "docs.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(line(text="imports of fish") + b"\n")
    ids = [label.id for label in trained_sparse.bundle.catalogue]
    (tmp_path / "some.json").write_text(json.dumps(ids[:3]))
    command = [
        "predict", "--input", str(source), "--output", str(target), "-k", "9", "--explain",
        "--registry", str(trained_sparse.registry.folder), "--label-sets", str(tmp_path),
        "--include-set", "some", "--include", ids[4], "--include", ids[5], "--exclude", ids[0],
    ]  # fmt: skip
    run = CliRunner().invoke(longtail.app, command)
    assert run.exit_code == 0, run.output
    (found,) = [json.loads(text) for text in target.read_text().splitlines()]
    known = read_sparse(trained_sparse.bundle).labels
    wanted = {ids[index] for index in (1, 2, 4, 5) if index in known}
    assert {label["id"] for label in found["labels"]} == wanted
    assert all(label["explanation"]["keywords"] for label in found["labels"])
    command[-1:] = [ids[0], "--exclude-set", "none", "--overwrite"]
    run = CliRunner().invoke(longtail.app, command)
    assert run.exit_code == 1
    assert "label set 'none' is not stored; the sets are some" in str(run.exception or run.output)


@pytest.mark.parametrize(("ids", "num_guarded"), [(["=1+1", "@b", "c"], 2), (["a", "b", "-1"], 0)])
def test_the_last_line_says_which_cells_got_an_apostrophe(
    ids, num_guarded, tmp_path, trained_sparse
):
    source, target = tmp_path / "docs.csv", tmp_path / "out.csv"
    source.write_text("id,text\n" + "".join(f"{each},imports of fish\n" for each in ids))
    command = ["predict", "--input", str(source), "--output", str(target), "-k", "1"]
    run = CliRunner().invoke(
        longtail.app, [*command, "--registry", str(trained_sparse.registry.folder)]
    )
    last = run.stdout.splitlines()[-1]
    assert ("apostrophe" in last) == (num_guarded > 0), run.output
    assert not num_guarded or f"; {num_guarded} cells that begin as formulas" in last


def texts_in(source):
    """The texts of documents that can be read."""
    found = documents_of(source, 10**6)
    questions = (x if isinstance(x, dict) else json.loads(x) for x in found)
    return [as_question(source.options, x)["text"] for x in questions]


@pytest.mark.parametrize("row", ["1,olive oil, refined", "1"])
def test_a_row_with_other_cells_than_the_header_is_an_error_and_not_cut(row, tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text(f"id,text\n{row}\n\n2,whales\n", encoding="utf-8")
    torn, good = documents_of(find_unlabelled(path), 10**6)
    expected = f"{len(row.split(','))} cells; expected 2, as in the header; put a text"
    assert isinstance(torn, BadLine) and torn.reason.startswith(expected)
    assert good == {"id": "2", "text": "whales"}


TITLED_FILES = {
    "docs.csv": "Titel,Text,content\nT,olive oil,c\n,whales,c\n",
    "docs.jsonl": '{"title": "T", "text": "olive oil", "content": "c"}\n'
    '{"title": null, "text": "whales"}\n',
}


@pytest.mark.parametrize("name", TITLED_FILES)
@pytest.mark.parametrize(
    ("trained", "expected"),
    [
        ((), ["T\nolive oil", "whales"]),
        (("title", "text"), ["T\nolive oil", "whales"]),
        (("text",), ["olive oil", "whales"]),
    ],
)
def test_a_title_beside_the_text_is_joined_unless_the_training_read_texts_alone(
    name, trained, expected, tmp_path
):
    path = tmp_path / name
    path.write_text(TITLED_FILES[name], encoding="utf-8")
    assert texts_in(read_as_trained(find_unlabelled(path), trained)) == expected


@pytest.mark.parametrize("name", ["docs.csv", "docs.jsonl"])
def test_columns_that_only_the_training_had_change_nothing(name, tmp_path):
    path = tmp_path / name
    content = "id,text\n1,whales\n" if name == "docs.csv" else '{"id": 1, "text": "whales"}\n'
    path.write_text(content, encoding="utf-8")
    for trained in [("text",), ("title", "text"), ("abstract",)]:
        assert read_as_trained(find_unlabelled(path), trained).options == RECOGNISED


@pytest.mark.parametrize("header", ["Nr\tFrage", "nr\tbody_text", "Doc Nr\tid", "Labels\tx y"])
def test_a_header_without_a_text_is_not_taken_for_a_text_and_its_labels(header, tmp_path):
    path = tmp_path / "docs.tsv"
    path.write_text(f"{header}\n1\twhales\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"expected 'text' .* name others with --text-columns"):
        check_source(find_unlabelled(path))


def test_a_folder_with_several_splits_is_refused_with_their_names(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "whales"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"give one: '.*train.jsonl', '.*test.jsonl'"):
        find_unlabelled(tmp_path)


def test_a_file_of_a_folder_that_can_t_be_read_is_named(tmp_path):
    for name, content in {"a": b"whales", "b": b"caf\xe9", "c": b"a " * 20}.items():
        (tmp_path / f"{name}.txt").write_bytes(content)
    source, seen = find_unlabelled(tmp_path), []
    good, other, long = documents_of(source, 30, seen.append)
    assert good == {"id": "a", "text": "whales"}
    assert other.reason.startswith("b: not UTF-8 (byte 0xe9 at position 3)")
    assert long.reason == "c.txt has 40 bytes, expected at most 30; divide it"
    assert sum(seen) == 50


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["pipe.csv", "pipe.tsv"])
def test_a_pipe_is_read_once(name, tmp_path):
    path = tmp_path / name
    os.mkfifo(path)
    delimiter = "\t" if name == "pipe.tsv" else ";"
    content = f"sep={delimiter}\nNr{delimiter}Text\n1{delimiter}whales\n"
    writer = Thread(target=path.write_text, args=(content,))
    writer.start()
    source = find_unlabelled(path, CorpusOptions(id_column="nr"))
    assert check_source(source) == [] and read_as_trained(source, ("text",)) == source
    assert list(documents_of(source, 10**6)) == [{"id": "1", "text": "whales"}]
    writer.join()


def test_a_line_too_long_for_memory_is_refused_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("longtail.models.files.text_files.MAX_LINE_BYTES", 100)
    path = tmp_path / "docs.jsonl"
    path.write_text(json.dumps({"text": "a" * 200}) + '\n{"text": "whales"}\n', encoding="utf-8")
    source = find_unlabelled(path)
    assert check_source(source) == [] and read_as_trained(source, ("abstract",)) == source
    assert list(documents_of(source, 50)) == [None, b'{"text": "whales"}']


@pytest.fixture
def table_task(tmp_path):
    def make(content, name="in.csv", output="out.csv", **defaults):
        source = tmp_path / name
        source.write_bytes(content if isinstance(content, bytes) else content.encode())
        return Task(find_unlabelled(source), tmp_path / output, 1, {"k": 2} | defaults)

    return make


def rows_of(path, delimiter=","):
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    assert text.startswith("\ufeff")
    return list(csv.reader(io.StringIO(text[1:], newline=""), delimiter=delimiter))


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_rows_keep_their_columns_delimiter_and_line_ends(table_task, predictor, mark):
    asked = table_task(f'{mark}Nr;text;Preis\r\n1;"a;b";=2\r\n\r\n2;"x\ny";-3,50 %\r\n')
    tally = predict_file(asked, model_of(predictor))
    content = asked.target.read_bytes()
    assert content.startswith(b"\xef\xbb\xbfNr;text;Preis;labels;") and content.count(b"\r\n") == 3
    assert tally.num_guarded == 1
    _, first, second = rows_of(asked.target, ";")
    assert (first[:3], second[:3]) == (["1", "a;b", "'=2"], ["2", "x\ny", "-3,50 %"])
    assert first[3:] == ["Label 0; Label 1", "L0; L1", "1.0000; 0.5000", ""]
    assert [path.name for path in asked.target.parent.glob("*out*")] == ["out.csv"]


def test_a_row_without_an_answer_says_why_and_loses_no_cell(table_task, predictor):
    asked = table_task("text,labels\na,b\n ,\none,two,three\nfour\n")
    tally = predict_file(asked, model_of(predictor))
    header, good, blank, wide, narrow = rows_of(asked.target)
    assert header == ["text", "labels", *(f"predicted_{name}" for name in ADDED)]
    assert good[2] and not good[5]
    assert blank[5] and not blank[2]
    assert (wide[:2], wide[6:], "3 cells" in wide[5]) == (["one", "two"], ["three"], True)
    assert (narrow[:2], "1 cells" in narrow[5]) == (["four", ""], True)
    assert tally.num_errors == 3


@pytest.mark.parametrize("name", ["=a", "+a", "-a", "@a", "\ta", "\ra", "a;b", "a, b"])
def test_cells_are_no_formulas_and_are_read_by_training(name):
    labels = [{"id": name, "name": name, "probability": 0.5}, {"id": "y", "name": "y"}]
    labels[1]["probability"] = None
    names, ids, numbers, _ = map(_harmless, _cells({"labels": labels, "truncated": False}))
    assert names == ids and names[0] not in "=+-@\t\r"
    assert [x.strip() for x in labels_of_cell(names.removeprefix("'"))] == [name.strip(), "y"]
    assert numbers == "0.5000"


def test_rows_that_change_while_they_are_read_are_an_error(table_task, fake_predictor, registry):
    class Changing(fake_predictor):
        def predict(self, texts, **options):
            with asked.documents.paths[0].open("a") as file:
                file.write("b\n" * 10_000)
            return super().predict(texts, **options)

    asked = table_task("text\n" + "a\n" * 5)
    with pytest.raises(DataError, match="has changed while it was read"):
        predict_file(asked, model_of(Changing(registry.open(1))))
    assert not list(asked.target.parent.glob("*out*"))
