"""What is acknowledged stays, once; what is deleted leaves no bytes; failures are told."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from service.errors import FeedbackConflictError, FeedbackStoreError, QueueFullError
from service.feedback.entries import Counts, Receipt
from service.feedback.store import FILE_NAME, FeedbackStore
from service.feedback.writer import FeedbackWriter

KILLS = Path(__file__).parents[2] / "bench" / "feedback_kills.py"
HIDDEN = "the secret of the text, which nobody may find again"


@pytest.fixture
def store(tmp_path):
    with FeedbackStore(tmp_path / "store", wait_s=0.1) as store:
        yield store


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


def test_one_id_twice_in_a_group_is_one_entry_or_a_conflict(store, make_entry):
    same, other = store.append(
        [[make_entry("a"), make_entry("a")], [make_entry("b"), make_entry("b", "another text")]]
    )
    assert [each.is_new for each in same] == [True, False]
    assert isinstance(other, FeedbackConflictError)
    assert ids_in(store) == ["a"]


def test_pages_follow_each_other_and_show_deletions_last(store, make_entry):
    store.append([[make_entry(f"e{number}") for number in range(5)]])
    assert [record.id for record in store.page(2, 2)] == ["e2", "e3"]
    assert store.delete("e1")
    (deleted,) = store.page(5, 10)
    assert (deleted.id, set(deleted.content)) == ("e1", {"deleted_at"})
    assert store.counts() == Counts(4, 1, 4, accepted=4, rejected=0, added=0, proposed=0)


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
    for use in (store.counts, lambda: store.append([[make_entry("new")]])):
        with pytest.raises(FeedbackStoreError, match="damaged, or no database"):
            use()


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


def test_the_database_of_another_program_is_left_alone(tmp_path, make_entry):
    other = sqlite3.connect(tmp_path / FILE_NAME)
    other.execute("CREATE TABLE mine (x)")
    other.close()
    before = (tmp_path / FILE_NAME).read_bytes()
    with FeedbackStore(tmp_path) as store, pytest.raises(FeedbackStoreError, match="of another"):
        store.append([[make_entry("a")]])
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_folder_that_is_a_file_is_told(tmp_path, make_entry):
    (tmp_path / "file").write_text("")
    with (
        FeedbackStore(tmp_path / "file") as store,
        pytest.raises(FeedbackStoreError, match="can't be used"),
    ):
        store.append([[make_entry("a")]])


def test_killed_processes_lose_and_double_nothing(tmp_path):
    command = [sys.executable, str(KILLS), "--kills", "3", "--store", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    kills, acknowledged, stored, *wrong = map(int, re.findall(r"\d+", done.stdout.split("|\n")[-2]))
    assert (kills, wrong) == (3, [0, 0, 0]) and 6 <= acknowledged <= stored


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
        assert other.counts().entries == 299


def test_what_waits_is_bounded_and_a_large_request_is_taken_alone(tmp_path, make_entry):
    writer = FeedbackWriter(FeedbackStore(tmp_path), max_waiting=2)
    first = writer.add([make_entry(f"e{number}") for number in range(5)])
    with pytest.raises(QueueFullError, match="5 entries of feedback wait"):
        writer.add([make_entry("x")])
    writer.start()
    writer.close()
    assert len(first.result(0)) == 5


def test_who_no_longer_waits_is_passed_over(tmp_path, make_entry):
    writer = FeedbackWriter(FeedbackStore(tmp_path), max_waiting=10)
    gone, stays = writer.add([make_entry("a")]), writer.add([make_entry("b")])
    assert gone.cancel()
    writer.start()
    writer.close()
    assert stays.result(0)[0].id == "b"
    with FeedbackStore(tmp_path) as store:
        assert ids_in(store) == ["b"]


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
    assert len([each for each in caplog.records if each.name == "service.feedback.writer"]) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "feedback"]
