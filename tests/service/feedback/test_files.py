"""`longtail feedback`: entries from files and to files."""

import json
from hashlib import sha256

import pytest
from typer.testing import CliRunner

import longtail
from longtail.models.errors import DataError
from longtail.service.errors import FeedbackStoreError

SAID = [
    {"id": "a", "text": "olive oil", "accepted": ["L1"], "rejected": ["L2"]},
    {"id": "b", "document_id": "d", "added": ["L3"], "proposed": [{"name": "mill"}], "version": 1},
]


@pytest.fixture
def command(registry, tmp_path):
    """Runs `longtail feedback`; with a registry where it takes one."""

    def run(*words, store="store", **environment):
        options = ["--feedback", str(tmp_path / store)]
        if words[0] == "import":
            options += ["--registry", str(registry.folder)]
        line = ["feedback", *map(str, words), *options]
        result = CliRunner().invoke(longtail.app, line, env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def write(tmp_path):
    def write_lines(*lines, name="said.jsonl"):
        path = tmp_path / name
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return path

    return write_lines


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_entries_are_imported_once_and_exported(command, write, tmp_path, registry):
    path = write(*SAID)
    assert command("import", path, "--texts").output == "2 stored, 0 known, 0 deleted.\n"
    assert command("import", path, "--texts").output == "0 stored, 2 known, 0 deleted.\n"
    out = tmp_path / "out.jsonl"
    assert "2 entries" in command("export", out).output
    first, second = lines_of(out)
    assert first.items() > SAID[0].items()
    assert (first["version"], second["version"]) == (2, 1)
    assert second["model_digest"] == registry.open(1).manifest.digest
    with pytest.raises(Exception, match="already exists"):
        command("export", out)
    assert command("export", out, "--overwrite").exit_code == 0


def test_texts_are_left_out_unless_asked_for(command, write, tmp_path):
    command("import", write(*SAID))
    command("export", tmp_path / "out")
    assert [line["text"] for line in lines_of(tmp_path / "out")] == [None, None]


def test_an_export_imported_elsewhere_is_the_same_deletions_too(command, write, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    command("import", write(*SAID, SAID[0] | {"id": "c"}), "--texts")
    command("export", first)
    assert command("import", first, "--texts", store="other").output.startswith("3 stored")
    assert command("delete", "c").output == "Deleted: c\n"
    command("export", second)
    outcome = command("import", second, "--texts", store="other")
    assert outcome.output == "0 stored, 2 known, 1 deleted.\n"
    command("export", tmp_path / "third", store="other")
    strip = [{**line, "sequence": 0, "deleted_at": 0} for line in lines_of(second)]
    assert [
        {**line, "sequence": 0, "deleted_at": 0} for line in lines_of(tmp_path / "third")
    ] == strip


def test_a_digest_is_of_the_text_with_its_title(command, write, tmp_path):
    entry = {"title": "Olive oil", "text": "Imports.", "added": ["L1"]}
    digest = sha256(b"Olive oil\nImports.").hexdigest()
    command("import", write(entry | {"text_sha256": digest}), "--texts")
    command("export", tmp_path / "out")
    (line,) = lines_of(tmp_path / "out")
    assert (line["text"], line["text_sha256"]) == ("Olive oil\nImports.", digest)
    with pytest.raises(DataError, match="line 1: text_sha256: is not the SHA-256"):
        command("import", write(entry | {"text_sha256": sha256(b"Imports.").hexdigest()}))


def test_one_bad_line_stops_the_import_before_anything_is_stored(command, write, tmp_path):
    path = write(
        SAID[0],
        {"text": "a", "accepted": ["L99"]},
        {"text": "a"},
        {"text": "a", "added": ["L1"], "version": 7},
        {"text": "a", "text_sha256": "0" * 64, "added": ["L1"]},
    )
    with pytest.raises(DataError) as caught:
        command("import", path)
    told = str(caught.value)
    assert "4 lines can't be used, so nothing was stored" in told
    assert "line 2: accepted: version 2 has no label with the id 'L99'" in told
    assert "line 3: the body: Name a label" in told
    assert "line 4: " in told and "no version 7" in told
    assert "line 5: text_sha256: is not the SHA-256" in told
    with pytest.raises(FeedbackStoreError, match="holds no feedback"):
        command("export", tmp_path / "out")
    made = tmp_path / "store"
    assert not made.exists() or made.stat().st_size == 0
