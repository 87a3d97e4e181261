"""One number of threads for all compute libraries, set where they compute."""

import gc
import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import faiss
import pytest
import torch

from longtail.service.process.compute_threads import ComputeSetup, limit_threads


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    for name in CACHES:  # so that what is set is unset again
        monkeypatch.setenv(name, "16")
    before = torch.get_num_threads(), faiss.omp_get_max_threads(), sys.getswitchinterval()
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    torch.set_num_threads(before[0])
    faiss.omp_set_num_threads(before[1])
    sys.setswitchinterval(before[2])


@pytest.mark.parametrize("asked", [None, 1, 2])
def test_pytorch_and_faiss_have_the_same_number_and_it_is_logged(asked, caplog):
    with caplog.at_level(logging.INFO, "longtail.service.process.compute_threads"):
        limit_threads(asked)
    count = asked or torch.get_num_threads()
    assert torch.get_num_threads() == faiss.omp_get_max_threads() == count
    assert f"torch={count} faiss={count} tokenisers=" in caplog.text


def on_a_thread_of_its_own(function):
    """Return what a function returns there, whose priority may be lowered for good."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(60)


def prepare(setup):
    """Prepare a thread of its own, and work of a model with an encoder."""
    setup.use_libraries()

    def work():
        may_help = setup.prepare_thread()
        setup.prepare_work()
        return may_help

    return on_a_thread_of_its_own(work)


def test_the_libraries_wait_until_a_model_needs_them_and_are_set_up_once_a_thread(monkeypatch):
    taken = []
    monkeypatch.setattr(
        "longtail.service.process.compute_threads.limit_threads", lambda *x: taken.append(x)
    )
    setup = ComputeSetup(4, 2, "cpu")

    def work():
        for is_used in (False, True, True):
            if is_used:
                setup.use_libraries()
            setup.prepare_work()
            setup.prepare_work()
            counts.append(len(taken))

    counts = []
    on_a_thread_of_its_own(work)
    on_a_thread_of_its_own(work)
    assert counts == [0, 1, 1, 2, 2, 2]
    assert taken == [(4, 2)] * 2


@pytest.mark.parametrize(
    ("threads", "workers", "count", "each"),
    [
        (2, None, 2, 1), (3, None, 3, 1), (8, None, 4, 2), (8, 2, 2, 4), (1, None, 1, 1),
        (1, 2, 2, 1),
    ],
)  # fmt: skip
def test_compute_threads_share_the_threads_of_the_libraries(
    monkeypatch, threads, workers, count, each
):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    setup = ComputeSetup(threads, workers, "cpu")
    assert setup.num_workers == count
    assert prepare(setup) is (count > 1)
    assert setup.libraries.torch_threads == setup.libraries.faiss_threads == each


CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


@pytest.mark.skipif(sys.platform != "linux", reason="a property of the whole process")
@pytest.mark.parametrize(("niceness", "of_trial"), [(0, 5), (2, 5), (9, 9)])
def test_compute_threads_have_the_niceness_that_is_set_and_trials_that_of_loads(niceness, of_trial):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    setup = ComputeSetup(2, 1, "cpu", niceness)

    def niceness_after(prepare):
        prepare()
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) - own

    found = [
        on_a_thread_of_its_own(lambda prepare=prepare: niceness_after(prepare))
        for prepare in (setup.prepare_thread, setup.prepare_trial)
    ]
    assert found == [min(each, 19 - own) for each in (niceness, of_trial)]
