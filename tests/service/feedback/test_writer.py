"""The thread that writes: many requests share a transaction, and failures reach who waits."""

import threading

import pytest

from longtail.service.errors import FeedbackStoreError, QueueFullError
from longtail.service.feedback.store import FeedbackStore
from longtail.service.feedback.writer import FeedbackWriter


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
