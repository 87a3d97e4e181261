"""`longtail predict` over Parquet parts: here and elsewhere, cut off and resumed."""

import json
import re
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import longtail
from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.models.errors import BundleError, ConfigError, DataError
from longtail.service.offline import parts as module
from longtail.service.offline.parts import (
    MANIFEST,
    RECORDS,
    Parts,
    columns_in,
)

NAMES = ("a.parquet", "day=1/a.parquet", "day=2/b.parquet")
ROWS = 7


@pytest.fixture(params=["local", "memory"])
def place(request, tmp_path):
    """A folder with three parts, by its address."""
    uri = str(tmp_path) if request.param == "local" else "memory://work"
    files, root = fsspec.core.url_to_fs(uri)
    for number, name in enumerate(NAMES):
        files.makedirs(f"{root}/in/{name}".rpartition("/")[0], exist_ok=True)
        texts = [f"imports of olive oil {number} {row}" for row in range(ROWS)]
        with files.open(f"{root}/in/{name}", "wb") as file:
            ids = [f"{name}-{row}" for row in range(ROWS)]
            parquet.write_table(pa.table({"id": ids, "text": [*texts[1:], ""]}), file)
    yield SimpleNamespace(uri=uri, files=files, root=root)
    if request.param == "memory":
        files.rm(root, recursive=True)


@pytest.fixture
def parts(trained_sparse, place, monkeypatch):
    monkeypatch.setattr(module, "BATCH_ROWS", 3)

    def make(**options):
        predictor = longtail.arrow_predictor(trained_sparse.registry.folder, id="id", **options)
        asked = {"digest": predictor.digest, "defaults": options}
        return Parts(f"{place.uri}/in/**/*.parquet", f"{place.uri}/out", predictor, asked)

    return make


def contents(place):
    """All files of the answers, by name."""
    return {
        path.removeprefix(f"{place.root}/out/"): place.files.cat_file(path)
        for path in place.files.find(f"{place.root}/out")
    }


def test_every_part_is_answered_and_noted(parts, place):
    asked = parts()
    tally = asked.predict()
    assert (tally.num_lines, tally.num_errors, tally.num_results) == (21, 3, 18)
    assert "part 'a.parquet', the one with index 6" in tally.first_error
    found = contents(place)
    assert found.keys() == {*NAMES, MANIFEST}
    for line in found[MANIFEST].splitlines():
        record = json.loads(line)
        name, digest = record["part"], asked.predictor.digest
        source = place.files.cat_file(f"{place.root}/in/{name}")
        assert record["input"]["sha256"] == sha256(source).hexdigest()
        assert record["output"]["sha256"] == sha256(found[name]).hexdigest()
        assert (record["rows"], record["errors"], record["digest"]) == (ROWS, 1, digest)
        table = parquet.read_table(pa.BufferReader(source))
        assert parquet.read_table(pa.BufferReader(found[name])) == asked.predictor.table(table)


@pytest.mark.parametrize("step", ["put_file", "mv"])
def test_a_killed_part_costs_that_part(parts, place, monkeypatch, step):
    asked, real = parts(), getattr(type(place.files), step)

    def killed(files, source, target, **options):
        if step == "put_file":  # in the middle of the second part
            files.pipe_file(target, b"PAR1")
        if "day=1" in target:
            raise KeyboardInterrupt
        return real(files, source, target, **options)

    with monkeypatch.context() as broken:
        broken.setattr(type(place.files), step, killed)
        with pytest.raises(KeyboardInterrupt):
            asked.predict()
    answered = []

    def answer(parts, names):
        answered.extend(names)
        return map(parts.answer, names)

    assert asked.predict(answer).num_lines == 21
    assert answered == [*NAMES[1:]]
    assert contents(place).keys() == {*NAMES, MANIFEST}  # nothing of the killed one is left
    before = contents(place)
    assert asked.predict(answer).num_lines == 21
    assert (contents(place), answered) == (before, [*NAMES[1:]])


def test_answers_to_something_else_are_refused_or_replaced(parts, place):
    parts(k=2).predict()
    with pytest.raises(ConfigError, match="-k was 2 and is now 3"):
        parts(k=3).predict()
    parts(k=3).predict(overwrite=True)
    table = parquet.read_table(pa.BufferReader(contents(place)[NAMES[1]]))
    assert {len(x) for x in table.column("label_ids").to_pylist() if x} == {3}
    with place.files.open(f"{place.root}/in/{NAMES[1]}", "wb") as file:
        parquet.write_table(pa.table({"id": ["1"], "text": ["milk"]}), file)
    with pytest.raises(ConfigError, match="its input has changed"):
        parts(k=3).predict()
    assert parts(k=3).predict(overwrite=True).num_lines == 15


def test_files_of_others_are_never_touched(parts, place):
    place.files.makedirs(f"{place.root}/out", exist_ok=True)
    place.files.pipe_file(f"{place.root}/out/{NAMES[0]}", b"mine")
    place.files.pipe_file(f"{place.root}/out/{MANIFEST}", b'{"part": "a.parquet"}\n[]\n{"pa')
    with pytest.raises(ConfigError, match="already exists"):
        parts().predict()
    place.files.pipe_file(f"{place.root}/out/c.parquet", b"mine")
    with pytest.raises(ConfigError, match=r"'c\.parquet' is not the answer to a part"):
        parts().predict(overwrite=True)
    asked = parts()
    within = Parts(asked.source, f"{place.uri}/in", asked.predictor, asked.asked)
    with pytest.raises(DataError, match="of --input"):
        within.predict(overwrite=True)
    nothing = Parts(f"{place.uri}/none/*.parquet", asked.target, asked.predictor, asked.asked)
    with pytest.raises(DataError, match="no such file"):
        nothing.predict()


def test_a_part_that_is_not_as_it_should_be_is_named(parts, place):
    with place.files.open(f"{place.root}/in/{NAMES[1]}", "wb") as file:
        parquet.write_table(pa.table({"id": ["1"], "body": ["milk"]}), file)
    with pytest.raises(DataError, match=rf"part '{NAMES[1]}'.*'text'"):
        parts().predict()
    place.files.pipe_file(f"{place.root}/in/{NAMES[1]}", b"no Parquet")
    with pytest.raises(BundleError, match=f"part '{NAMES[1]}'"):
        parts().predict()
    assert place.files.exists(f"{place.root}/out/{RECORDS}/{NAMES[0]}.json")


@pytest.mark.parametrize("name", [f"{RECORDS}/p.parquet", f"{MANIFEST}.parquet"])
def test_a_part_with_a_name_of_our_records_is_refused(parts, place, name):
    place.files.makedirs(f"{place.root}/in/{RECORDS}", exist_ok=True)
    with place.files.open(f"{place.root}/in/{name}", "wb") as file:
        parquet.write_table(pa.table({"id": ["1"], "text": ["milk"]}), file)
    with pytest.raises(DataError, match=re.escape(f"{name!r} has a name of our records")):
        parts().predict()


def test_a_damaged_answer_of_the_same_size_is_made_again(parts, place):
    parts().predict()
    before, name = contents(place), f"{place.root}/out/{NAMES[1]}"
    content = bytearray(before[NAMES[1]])
    content[100:130] = bytes(30)
    place.files.pipe_file(name, bytes(content))
    parts().predict()
    assert contents(place) == before


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": "x"}, {"rows": -5}, {"rows": 10**400}, {"errors": None}, {"truncated": []},
        {"part": ["x"]}, {"defaults": None}, {"defaults": [1]}, {"output": "x"},
        {"input": {"sha256": "x"}}, {"first_error": 3},
    ],
)  # fmt: skip
def test_a_record_that_is_none_counts_as_no_record(parts, place, changed):
    parts().predict()
    path = f"{place.root}/out/{MANIFEST}"
    first, *others = place.files.cat_file(path).splitlines()
    line = json.dumps(json.loads(first) | changed).encode()
    place.files.pipe_file(path, b"\n".join([line, *others, b"[" * 100_000, b"1" * 5000]))
    with pytest.raises(ConfigError, match=rf"'{NAMES[0]}' already exists"):
        parts().predict()
    assert parts().predict(overwrite=True).num_lines == 21


def test_equal_texts_are_in_memory_once_and_batches_are_bounded(parts, place, monkeypatch):
    monkeypatch.setattr(module, "BATCH_ROWS", 8192)
    monkeypatch.setattr(module, "MAX_BATCH_BYTES", 2**20)
    texts = ["milk", None, "olive oil " * 10_000, *["olive oil " * 10_000] * 60, "", "milk"]
    table = pa.table({"text": texts, "id": pa.array([*map(str, range(65))], pa.large_string())})
    with place.files.open(f"{place.root}/in/{NAMES[1]}", "wb") as file:
        parquet.write_table(table, file, compression="zstd", row_group_size=40)
    seen, asked = [], parts()
    real = type(asked.predictor)._rows_of

    def noted(predictor, batch):
        seen.append(batch.nbytes)
        return real(predictor, batch)

    monkeypatch.setattr(type(asked.predictor), "_rows_of", noted)
    asked.predict()
    assert max(seen) < 2 * 2**20
    found = parquet.read_table(pa.BufferReader(contents(place)[NAMES[1]]))
    assert found.drop_columns(["version"]) == asked.predictor.table(table).drop_columns(["version"])


def test_a_text_without_bound_is_refused_alone(parts, place, monkeypatch):
    monkeypatch.setattr("longtail.models.interface.arrow.MAX_TEXT_BYTES", 100)
    with place.files.open(f"{place.root}/in/{NAMES[1]}", "wb") as file:
        parquet.write_table(pa.table({"id": ["1", "2"], "text": ["milk " * 21, "milk"]}), file)
    parts().predict()
    found = parquet.read_table(pa.BufferReader(contents(place)[NAMES[1]])).column("error")
    assert found.to_pylist() == ["text has 105 bytes, expected at most 100; divide it", None]


def test_a_part_that_memory_does_not_hold_says_so(parts, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(Parts, "_write", full)
    with pytest.raises(BundleError, match="out of memory"):
        parts().predict()


@pytest.mark.parametrize(
    ("trained", "expected"),
    [
        ((), ("title", "text")),
        (("title", "text"), ("title", "text")),
        (("text",), ("text",)),
        (("title", "abstract"), ("title", "text")),
    ],
)
def test_a_title_is_joined_unless_the_training_read_texts_alone(place, trained, expected):
    with place.files.open(f"{place.root}/in/{NAMES[0]}", "wb") as file:
        parquet.write_table(pa.table({"title": ["a"], "text": ["b"], "content": ["c"]}), file)
    source = f"{place.uri}/in/**/*.parquet"
    assert columns_in(source, RECOGNISED, trained) == expected
    assert columns_in(source, CorpusOptions(text_columns=("content",)), trained) == ("content",)
    with pytest.raises(DataError, match=r"--text-columns: no column 'body'; it has 'title'"):
        columns_in(source, CorpusOptions(text_columns=("body",)), trained)


def run(*given):
    return CliRunner().invoke(longtail.app, ["predict", *map(str, given)])


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_the_command_answers_parts(place, trained_sparse, tmp_path):
    ids = [label.id for label in trained_sparse.bundle.catalogue]
    given = ["--input", tmp_path / "in" / "day=*" / "*.parquet", "--output", tmp_path / "out"]
    given += ["--registry", trained_sparse.registry.folder, "-k", 2, "--id-column", "id"]
    ran = run(*given, "--exclude", ids[0], "--threshold", 0.0)
    assert ran.exit_code == 1  # a text of each part is blank
    assert "14 documents: 12 answered, 2 with errors" in ran.output
    table = parquet.read_table(tmp_path / "out" / NAMES[1])
    assert table.column_names[0] == "id"
    assert not any(ids[0] in x for x in table.column("label_ids").to_pylist() if x)
    assert "--exclude was" in str(run(*given).exception)


def test_one_file_is_answered_as_one_file(place, trained_sparse, tmp_path):
    target, registry = f"{place.uri}/one.parquet", trained_sparse.registry.folder
    given = ["--input", f"{place.uri}/in/a.parquet", "--registry", registry, "--output", target]
    ran = run(*given)
    assert f"7 documents: 6 answered, 1 with errors, 0 texts cut. Written: {target}" in ran.output
    with place.files.open(f"{place.root}/one.parquet") as file:
        answered = parquet.read_table(pa.BufferReader(file.read()))
    assert answered.num_rows == ROWS
    assert not place.files.exists(f"{target}.parts")
    assert "already exists" in str(run(*given).exception)
    assert "6 answered" in run(*given, "--overwrite").output


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--output", "out", "--explain"], "--explain"),
        (["--output", "out.jsonl"], "expected a folder"),
        (["--output", "out.parquet"], "for one file without wildcards"),
        (["--input", "in/a.parquet", "--output", "in/a.parquet"], "is the input"),
        (["--input", "in/a.parquet", "--output", "in/day=1/a.parquet"], "already exists"),
        (["--output", "out", "--engine", "spark"], r"--engine: got 'spark'"),
        (["--output", "out", "--scorer", "magic"], "scorer is 'magic'"),
        (["--output", "{registry}/1"], "lies in the registry"),
    ],
)
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_the_command_refuses_before_it_computes(
    place, trained_sparse, tmp_path, monkeypatch, given, words
):
    monkeypatch.chdir(tmp_path)
    registry = trained_sparse.registry.folder
    given = [x.format(registry=registry) for x in given]
    ran = run("--input", "in/*.parquet", "--registry", registry, *given)
    assert re.search(words, str(ran.exception)), ran.exception
    assert not Path("out").exists() or not list(Path("out").glob("*.parquet"))
