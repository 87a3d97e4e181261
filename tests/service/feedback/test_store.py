"""What is acknowledged stays, once and in order, whatever database keeps it."""

import json
import random
import re
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longtail.models.errors import ConfigError
from longtail.service.errors import FeedbackConflictError, FeedbackStoreError, QueueFullError
from longtail.service.feedback.sqlite import SqliteDatabase
from longtail.service.feedback.store import FILE_NAME, FeedbackStore, Receipt
from longtail.service.feedback.writer import FeedbackWriter
from longtail.service.offline.feedback import export_feedback

KILLS = Path(__file__).parents[2] / "bench" / "feedback_kills.py"


def ids_in(store):
    return [record.id for record in store.page(0, 1000)]


def test_an_entry_comes_back_as_it_was(store, make_entry):
    entry = make_entry("a", "Öl \N{OLIVE}", rejected=("L2",), who="key", document_id="d 1")
    assert store.append([[entry]]) == [[Receipt("a", is_new=True)]]
    (record,) = store.page(0, 10)
    assert record.content == json.loads(entry.to_json())
    assert json.loads(record.to_line()) == {"sequence": 1, "id": "a", **record.content}


def test_the_same_again_is_acknowledged_and_stored_once(store, make_entry):
    store.append([[make_entry("a", accepted=("L1", "L2"))]])
    again = make_entry("a", accepted=("L2", "L1"), version=2, who="other")
    assert store.append([[again, again]]) == [[Receipt("a", is_new=False)] * 2]
    assert ids_in(store) == ["a"]


@pytest.mark.parametrize(
    "changes", [{"accepted": ("L2",)}, {"rejected": ("L2",)}, {"text_sha256": "0"}]
)
def test_other_content_under_an_id_is_refused_with_all_its_group(store, make_entry, changes):
    store.append([[make_entry("a")]])
    groups = [[make_entry("b"), make_entry("a", **changes)], [make_entry("c")]]
    refused, taken = store.append(groups)
    assert isinstance(refused, FeedbackConflictError)
    assert taken == [Receipt("c", is_new=True)]
    assert ids_in(store) == ["a", "c"]


def test_pages_follow_each_other_and_show_deletions_last(store, make_entry):
    store.append([[make_entry(f"e{number}") for number in range(5)]])
    assert [record.id for record in store.page(2, 2)] == ["e2", "e3"]
    assert store.delete("e1")
    (deleted,) = store.page(5, 10)
    assert (deleted.id, set(deleted.content)) == ("e1", {"deleted_at"})


def test_who_writes_at_once_takes_each_id_once_and_readers_miss_nothing(place, make_entry):
    num_writers, num_ids = 4, 60

    def write(seed):
        chance, num_new = random.Random(seed), 0  # noqa: S311
        with FeedbackStore(place, wait_s=60) as store:
            for _ in range(15):
                ids = [f"e{chance.randrange(num_ids)}" for _ in range(4)]
                for result in store.append([[make_entry(name)] for name in ids]):
                    num_new += result[0].is_new
        return num_new

    def read(writers):
        seen = []
        with FeedbackStore(place, wait_s=60) as store:
            is_last = False
            while True:
                records = store.page(seen[-1][0] if seen else 0, 3)
                seen += [(record.sequence, record.id) for record in records]
                if is_last and not records:
                    return seen
                is_last = all(writer.done() for writer in writers)

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, seed) for seed in range(num_writers)]
        seen = read(writers)
    ids = [name for _, name in seen]
    assert len(set(ids)) == len(ids) == sum(writer.result() for writer in writers)
    assert [sequence for sequence, _ in seen] == list(range(1, len(ids) + 1))


@pytest.mark.slow
def test_killed_processes_lose_and_double_nothing(place):
    command = [sys.executable, str(KILLS), "--kills", "3", "--store", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    kills, acknowledged, stored, *wrong = map(int, re.findall(r"\d+", done.stdout.split("|\n")[-2]))
    assert (kills, wrong) == (3, [0, 0, 0]) and 6 <= acknowledged <= stored


INSERT = "INSERT OR IGNORE INTO records (id, content) VALUES ('a', '{}')"
HIDDEN = "the secret of the text, which nobody may find again"


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


def test_many_threads_share_transactions(tmp_path, make_entry):
    class Counting(FeedbackStore):
        num_transactions = 0

        def append(self, groups):
            self.num_transactions += 1
            return super().append(groups)

    store = Counting(tmp_path)
    writer = FeedbackWriter(store, max_waiting=1000)
    futures = [writer.add([make_entry(f"e{number}")]) for number in range(300)]
    writer.start()
    assert all(future.result(60)[0].is_new for future in futures)
    assert store.num_transactions == 1
    deleted = writer.delete("e7")
    writer.close()
    assert deleted.result(0)
    with FeedbackStore(tmp_path) as other:
        assert sum("deleted_at" not in each.content for each in other.records()) == 299


def test_what_waits_is_bounded_and_a_large_request_is_taken_alone(tmp_path, make_entry):
    writer = FeedbackWriter(FeedbackStore(tmp_path), max_waiting=2)
    first = writer.add([make_entry(f"e{number}") for number in range(5)])
    with pytest.raises(QueueFullError, match="5 entries of feedback wait"):
        writer.add([make_entry("x")])
    writer.start()
    writer.close()
    assert len(first.result(0)) == 5


def test_a_failure_reaches_all_who_wait_and_the_thread_goes_on(tmp_path, make_entry, caplog):
    (tmp_path / "folder").write_text("a file")
    writer = FeedbackWriter(FeedbackStore(tmp_path / "folder"), max_waiting=10)
    writer.start()
    for _ in range(3):
        with pytest.raises(FeedbackStoreError):
            writer.add([make_entry("a")]).result(60)
    (tmp_path / "folder").unlink()
    assert writer.add([make_entry("a")]).result(60)[0].is_new
    writer.close()
    assert (
        len([each for each in caplog.records if each.name == "longtail.service.feedback.writer"])
        == 1
    )
    assert not [thread for thread in threading.enumerate() if thread.name == "feedback"]


def test_a_store_that_hangs_does_not_hold_up_the_end(tmp_path, make_entry, monkeypatch, caplog):
    gate = threading.Event()

    class Hanging(FeedbackStore):
        def append(self, groups):
            assert gate.wait(60)
            return super().append(groups)

    monkeypatch.setattr("longtail.service.feedback.writer._MAX_STOP_S", 0.1)
    writer = FeedbackWriter(Hanging(tmp_path), max_waiting=10)
    writer.start()
    late = writer.add([make_entry("a")])
    writer.close()
    assert not late.done() and "the feedback store hangs" in caplog.text
    gate.set()
    assert late.result(60)[0].is_new
    writer._thread.join(60)
