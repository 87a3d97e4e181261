"""A folder with a file of SQLite: what is deleted leaves no bytes; failures are told."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from longtail.models.errors import ConfigError
from longtail.service.errors import FeedbackConflictError, FeedbackStoreError
from longtail.service.feedback.sqlite import SqliteDatabase
from longtail.service.feedback.store import FILE_NAME, FeedbackStore
from longtail.service.offline.feedback import export_feedback

INSERT = "INSERT OR IGNORE INTO records (id, content) VALUES ('a', '{}')"
HIDDEN = "the secret of the text, which nobody may find again"


@pytest.fixture
def store(tmp_path):
    with FeedbackStore(tmp_path / "store", wait_s=0.1) as store:
        yield store


def ids_in(store):
    return [record.id for record in store.page(0, 1000)]


def test_deleting_leaves_no_byte_of_the_text_and_keeps_the_id(store, make_entry, tmp_path):
    long = HIDDEN * 500  # over many pages
    store.append([[make_entry("a", HIDDEN), make_entry("b", long), make_entry("c", "stays")]])
    assert HIDDEN.encode() in b"".join(x.read_bytes() for x in (tmp_path / "store").iterdir())
    assert store.delete("a") and store.delete("b") and store.delete("a")
    left = b"".join(x.read_bytes() for x in (tmp_path / "store").iterdir())
    assert HIDDEN.encode()[:20] not in left
    (refused,) = store.append([[make_entry("a", HIDDEN)]])
    assert isinstance(refused, FeedbackConflictError) and "was deleted" in str(refused)
    assert not store.delete("nothing")


def test_only_the_owner_can_read_the_store_and_its_exports(store, make_entry, tmp_path):
    store.append([[make_entry("a", HIDDEN)]])
    export_feedback(store, tmp_path / "export.jsonl")
    files = [*(tmp_path / "store").iterdir(), tmp_path / "export.jsonl"]
    assert len(files) > 2  # with the write-ahead log
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


def test_a_reader_that_keeps_deleted_bytes_alive_is_told(store, make_entry, tmp_path):
    store.append([[make_entry("a", HIDDEN)]])
    reader = sqlite3.connect(tmp_path / "store" / FILE_NAME, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM records").fetchall()
    with pytest.raises(FeedbackStoreError, match="not erased yet"):
        store.delete("a")
    reader.execute("COMMIT")
    assert store.delete("a")
    reader.close()


def test_a_lock_of_another_process_is_told_and_passes(store, make_entry, tmp_path):
    store.append([[make_entry("a")]])
    script = (
        "import sqlite3, sys; d = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "d.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "store" / FILE_NAME)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(FeedbackStoreError, match="locked by another process"):
            store.append([[make_entry("b")]])
        assert ids_in(store) == ["a"]  # reading goes on
    store.append([[make_entry("b")]])
    assert ids_in(store) == ["a", "b"]


@pytest.mark.parametrize("where", [slice(0, 4096), slice(4096, None)], ids=["head", "pages"])
def test_a_damaged_store_is_told(store, make_entry, tmp_path, where):
    store.append([[make_entry(f"e{number}", "x" * 500) for number in range(100)]])
    store.close()  # which empties the log into the database
    path = tmp_path / "store" / FILE_NAME
    content = bytearray(path.read_bytes())
    content[where] = b"\xa5" * len(content[where])
    path.write_bytes(content)
    for use in (lambda: list(store.records()), lambda: store.append([[make_entry("new")]])):
        with pytest.raises(FeedbackStoreError, match="damaged, or no database"):
            use()


# ---- files that are moved under a store that is open ----


def test_a_store_that_was_moved_away_gets_no_further_entry(store, make_entry, tmp_path):
    store.append([[make_entry("a")]])
    (tmp_path / "store").rename(tmp_path / "moved")
    store.append([[make_entry("b")]])
    assert ids_in(store) == ["b"]
    with FeedbackStore(tmp_path / "moved", must_exist=True) as moved:
        assert ids_in(moved) == ["a"]


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_file_that_goes_before_the_commit_repeats_the_transaction(tmp_path, end):
    folders = iter(["gone"])

    def work(database):
        for name in folders:  # in the first attempt alone
            (tmp_path / name).mkdir()
            for moved in [end, "-wal"] if not end else [end]:  # a log alone would be refused
                file = tmp_path / f"{FILE_NAME}{moved}"
                file.rename(tmp_path / name / file.name)
        database.execute(INSERT)

    database = SqliteDatabase(tmp_path / FILE_NAME)
    database.read(lambda opened: opened.execute("SELECT 1 FROM records").fetchall())
    database.write(work)
    database.close()
    with FeedbackStore(tmp_path, must_exist=True) as store:
        assert ids_in(store) == ["a"]


def test_a_log_without_its_database_is_kept_and_nothing_is_acknowledged(
    store, make_entry, tmp_path
):
    """Between the moves of two files; SQLite would delete the log, and the entries in it."""
    store.append([[make_entry("a")]])
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (tmp_path / "store" / FILE_NAME).rename(damaged / FILE_NAME)
    with pytest.raises(FeedbackStoreError, match="without its database"):
        store.append([[make_entry("b")]])
    (tmp_path / "store" / f"{FILE_NAME}-wal").rename(damaged / f"{FILE_NAME}-wal")
    store.append([[make_entry("c")]])
    assert ids_in(store) == ["c"]
    with FeedbackStore(damaged, must_exist=True) as moved:
        assert ids_in(moved) == ["a"]


def test_a_full_store_is_told_and_keeps_what_it_has(tmp_path, make_entry):
    with FeedbackStore(tmp_path, max_bytes=100_000) as store:
        groups = [[make_entry(f"e{number}", "x" * 5000)] for number in range(30)]
        store.append(groups[:10])
        with pytest.raises(FeedbackStoreError, match="is full"):
            store.append(groups[10:])
        kept = ids_in(store)
        assert len(kept) == 10
        assert store.delete(kept[0])
        assert store.append([[make_entry("small", "x")]])


@pytest.mark.parametrize("kind", [str, Path])
def test_a_url_is_refused_and_not_shown(kind):
    with pytest.raises(ConfigError, match="expected a folder") as caught:
        FeedbackStore(kind("postgresql+psycopg://ada:secret@db/said"))
    assert "secret" not in str(caught.value)
