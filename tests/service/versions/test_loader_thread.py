"""The thread that loads models: tasks in order, looks in between, an end that waits for none."""

import threading
from concurrent.futures import CancelledError

import pytest

from longtail.service.versions.changes import LoaderThread


@pytest.fixture
def open_thread():
    threads = []

    def start(look=int, interval_s=0.0):
        threads.append(LoaderThread(look, interval_s))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.stop()


def test_a_look_that_fails_is_logged_and_not_the_last(open_thread, caplog):
    looks = iter([1, 2])
    again = threading.Event()

    def look():
        again.set() if next(looks, None) is None else 1 / 0

    open_thread(look, 0.001)
    assert again.wait(60)
    assert caplog.text.count("ZeroDivisionError: ") == 2


def test_stopping_cancels_what_waits_and_does_not_wait_for_what_has_begun(open_thread):
    thread, gate, busy, ended = open_thread(), *(threading.Event() for _ in range(3))

    def hang():
        busy.set()
        assert gate.wait(60)
        ended.set()

    begun, waiting = thread.submit(hang), thread.submit(int)
    assert busy.wait(60)
    thread.stop()
    for each in (begun, waiting):
        with pytest.raises(CancelledError):
            each.result(60)
    assert thread.submit(int).cancelled()
    assert thread.is_stopped
    gate.set()
    assert ended.wait(60)
