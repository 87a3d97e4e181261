"""`longtail predict`: the answers of a batch, from file to file."""

import gzip
import json

import pytest
from typer.testing import CliRunner

import longtail
from longtail.models.corpus.files import find_unlabelled
from longtail.models.parts.sparse_storage import read_sparse
from longtail.service.offline.predict import CHUNK_LINES, Task, predict_file


@pytest.fixture
def predictor(fake_predictor, registry):
    return fake_predictor(registry.open(1))


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
    summary = predict_file(asked, predictor, seen.append)
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
            b"nonsense",
            b"",
            line(id=1, text="a", scorer="magic"),
            line(text="x" * 200),
            line(id=2, text="b", version=7),
            line(id=3, text="long " * 8, version="current"),
            line(id=4, text="a", scorer=""),
        ]
    )
    summary = predict_file(asked, predictor)
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
        predict_file(asked, Breaking(registry.open(1)))
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
