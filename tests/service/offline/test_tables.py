"""`longtail predict --output x.csv`: the rows of the input, with columns for the labels."""

import csv
import gzip
import io

import pytest

from longtail.models.corpus.files import find_unlabelled
from longtail.models.errors import DataError
from longtail.models.labels.cells import labels_of_cell
from longtail.service.offline.predict import Task, predict_file
from longtail.service.offline.tables import ADDED, _cells, _harmless


@pytest.fixture
def predictor(fake_predictor, registry):
    return fake_predictor(registry.open(1))


@pytest.fixture
def task(tmp_path):
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
def test_the_rows_keep_their_columns_delimiter_and_line_ends(task, predictor, mark):
    asked = task(f'{mark}Nr;text;Preis\r\n1;"a;b";=2\r\n\r\n2;"x\ny";-3,50 %\r\n')
    tally = predict_file(asked, predictor)
    content = asked.target.read_bytes()
    assert content.startswith(b"\xef\xbb\xbfNr;text;Preis;labels;") and content.count(b"\r\n") == 3
    assert tally.num_guarded == 1
    _, first, second = rows_of(asked.target, ";")
    assert (first[:3], second[:3]) == (["1", "a;b", "'=2"], ["2", "x\ny", "-3,50 %"])
    assert first[3:] == ["Label 0; Label 1", "L0; L1", "1.0000; 0.5000", ""]
    assert [path.name for path in asked.target.parent.glob("*out*")] == ["out.csv"]


def test_a_row_without_an_answer_says_why_and_loses_no_cell(task, predictor):
    asked = task("text,labels\na,b\n ,\none,two,three\nfour\n")
    tally = predict_file(asked, predictor)
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


def test_rows_that_change_while_they_are_read_are_an_error(task, fake_predictor, registry):
    class Changing(fake_predictor):
        def predict(self, texts, **options):
            with asked.documents.paths[0].open("a") as file:
                file.write("b\n" * 10_000)
            return super().predict(texts, **options)

    asked = task("text\n" + "a\n" * 5)
    with pytest.raises(DataError, match="has changed while it was read"):
        predict_file(asked, Changing(registry.open(1)))
    assert not list(asked.target.parent.glob("*out*"))
