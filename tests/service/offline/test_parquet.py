"""`longtail predict`: a Parquet file in, a Parquet file out."""

import re

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import longtail
from longtail.models.errors import DataError
from longtail.service.offline import parquet as module
from longtail.service.offline.parquet import predict_parquet

ROWS = 7


@pytest.fixture
def source(tmp_path):
    texts = [*(f"imports of olive oil {row}" for row in range(ROWS - 1)), ""]
    table = pa.table({"id": [f"a-{row}" for row in range(ROWS)], "text": texts})
    parquet.write_table(table, tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


@pytest.fixture
def predictor(trained_sparse):
    return longtail.arrow_predictor(trained_sparse.registry.folder, id="id")


def test_rows_are_those_of_the_arrow_predictor(source, predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BATCH_ROWS", 3)
    tally = predict_parquet(source, tmp_path / "new" / "out.parquet", predictor)
    assert (tally.num_lines, tally.num_errors, tally.num_results) == (ROWS, 1, ROWS - 1)
    assert "the one with index 6" in tally.first_error
    expected = predictor.table(parquet.read_table(source))
    assert parquet.read_table(tmp_path / "new" / "out.parquet") == expected
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.parquet"]


def test_equal_texts_are_in_memory_once_and_batches_are_bounded(
    source, predictor, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "MAX_BATCH_BYTES", 2**20)
    texts = ["milk", None, "olive oil " * 10_000, *["olive oil " * 10_000] * 60, "", "milk"]
    table = pa.table({"text": texts, "id": pa.array([*map(str, range(65))], pa.large_string())})
    parquet.write_table(table, source, compression="zstd", row_group_size=40)
    seen, real = [], type(predictor)._rows_of

    def noted(predictor, batch):
        seen.append(batch.nbytes)
        return real(predictor, batch)

    monkeypatch.setattr(type(predictor), "_rows_of", noted)
    predict_parquet(source, tmp_path / "out.parquet", predictor)
    assert max(seen) < 2 * 2**20
    assert parquet.read_table(tmp_path / "out.parquet") == predictor.table(table)


def test_a_text_without_bound_is_refused_alone(source, predictor, tmp_path, monkeypatch):
    monkeypatch.setattr("longtail.models.interface.arrow.MAX_TEXT_BYTES", 100)
    parquet.write_table(pa.table({"id": ["1", "2"], "text": ["milk " * 21, "milk"]}), source)
    predict_parquet(source, tmp_path / "out.parquet", predictor)
    found = parquet.read_table(tmp_path / "out.parquet").column("error")
    assert found.to_pylist() == ["text has 105 bytes, expected at most 100; divide it", None]


def test_a_broken_file_is_named_and_leaves_nothing(source, predictor, tmp_path):
    content = bytearray(source.read_bytes())
    content[4:40] = bytes(36)  # the first page
    source.write_bytes(bytes(content))
    with pytest.raises(DataError, match=re.escape(str(source))):
        predict_parquet(source, tmp_path / "out.parquet", predictor)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def run(registry, *given):
    given = ["predict", *map(str, given), "--registry", str(registry.folder)]
    return CliRunner().invoke(longtail.app, given)


def test_the_command_answers_a_file(source, trained_sparse, tmp_path):
    ids = [label.id for label in trained_sparse.bundle.catalogue]
    target = tmp_path / "out.parquet"
    given = [trained_sparse.registry, "--input", source, "--output", target, "-k", 2]
    ran = run(*given, "--id-column", "id", "--exclude", ids[0])
    assert f"7 documents: 6 answered, 1 with errors, 0 texts cut. Written: {target}" in ran.output
    assert ran.exit_code == 1  # a text is blank
    table = parquet.read_table(target)
    assert table.column_names[0] == "id"
    assert not any(ids[0] in x for x in table.column("label_ids").to_pylist() if x)
    assert "already exists" in str(run(*given).exception)
    assert "6 answered" in run(*given, "--overwrite").output


def test_the_text_is_that_of_the_named_columns(source, trained_sparse, tmp_path):
    parquet.write_table(pa.table({"title": ["a"], "text": ["b"], "body": ["milk"]}), source)
    given = [trained_sparse.registry, "--input", source, "--output", tmp_path / "out.parquet"]
    assert run(*given, "--text-columns", "body").exit_code == 0
    ran = run(*given, "--overwrite", "--text-columns", "content")
    assert "no column 'content'; it has 'title'" in str(ran.exception)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--explain"], "--explain"),
        (["--input", "in.jsonl"], "is not one"),
        (["--output", "in.parquet", "--overwrite"], "is the input"),
        (["--scorer", "magic"], "scorer is 'magic'"),
        (["--output", "{registry}/1.parquet"], "lies in the registry"),
    ],
)
def test_the_command_refuses_before_it_computes(
    source, trained_sparse, tmp_path, monkeypatch, given, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text('{"text": "milk"}\n')
    given = [x.format(registry=trained_sparse.registry.folder) for x in given]
    ran = run(trained_sparse.registry, "--input", source, "--output", "out.parquet", *given)
    assert words in str(ran.exception), ran.exception
    assert not (tmp_path / "out.parquet").exists()
