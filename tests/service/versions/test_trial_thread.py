"""The thread that tries a model before it answers."""

import threading

import pytest

from longtail.service.errors import ChangeError
from longtail.service.versions.loading import TrialThread


def test_work_is_done_in_order_on_one_prepared_thread():
    prepared = []
    with TrialThread(lambda: prepared.append(threading.current_thread().name), 60) as try_out:
        found = [try_out(lambda: threading.current_thread().name) for _ in range(2)]
    assert found == ["warm-up"] * 2 and prepared == ["warm-up"]


def test_work_that_does_not_end_fails_and_so_does_what_comes_after_it():
    gate = threading.Event()
    with TrialThread(int, 0.01) as try_out:
        for work in (gate.wait, int):
            with pytest.raises(ChangeError, match=r"more than 0\.01 s"):
                try_out(work)
    gate.set()
