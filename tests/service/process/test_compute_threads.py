"""One number of threads for all compute libraries, set where they compute."""

from __future__ import annotations

import gc
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import faiss
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from longtail.service.process.compute_threads import ComputeSetup, limit_threads, prepare_process


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


@pytest.mark.parametrize(("said", "count"), [("3", 3), ("0", None), ("many", None), ("", None)])
def test_what_was_set_is_remembered(monkeypatch, said, count):
    monkeypatch.setenv("RAYON_NUM_THREADS", said)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    setup = ComputeSetup(2, num_workers=1, device="cpu")
    assert setup.libraries is None
    assert not prepare(setup)
    found = setup.libraries
    assert (found.torch_threads, found.faiss_threads) == (2, 2)
    assert found.tokeniser_threads == (count or os.cpu_count())
    assert (found.torch_version, found.faiss_version) == (torch.__version__, faiss.__version__)


@pytest.mark.parametrize(
    ("threads", "workers", "count", "each"),
    [
        (2, None, 2, 1),
        (3, None, 3, 1),
        (8, None, 4, 2),
        (8, 2, 2, 4),
        (1, None, 1, 1),
        (1, 2, 2, 1),
    ],
)
def test_compute_threads_share_the_threads_of_the_libraries(
    monkeypatch, threads, workers, count, each
):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    setup = ComputeSetup(threads, workers, "cpu")
    assert setup.num_workers == count
    assert prepare(setup) is (count > 1)
    assert setup.libraries.torch_threads == setup.libraries.faiss_threads == each


def test_there_are_as_many_as_openmp_is_told_or_as_there_are_processors(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert ComputeSetup(None).num_workers == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "0")
    assert ComputeSetup(None).num_workers == min(len(os.sched_getaffinity(0)), 4)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert ComputeSetup(None).num_workers == 1


def test_on_a_gpu_one_thread_computes(monkeypatch):
    assert ComputeSetup(8, 4, "cuda").num_workers == 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for device in (None, "cuda"):
        setup = ComputeSetup(2, device=device)
        assert not prepare(setup)
        assert (setup.num_workers, setup.libraries.torch_threads) == (1, 2)


def test_idle_threads_of_numpy_and_the_tokeniser_take_no_processor(monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "to be unset")
    monkeypatch.delenv("TOKENIZERS_PARALLELISM")
    setup = ComputeSetup(2, device="cpu")
    with threadpool_limits(user_api="blas"):  # as before at the end
        prepare(setup)
        blas = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
    assert set(blas) == {1}
    assert setup.libraries.tokeniser_threads == 1


CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def test_caches_of_shapes_are_small_unless_the_environment_says_otherwise(monkeypatch):
    monkeypatch.setenv(CACHES[0], "99")
    monkeypatch.setenv(CACHES[1], "99")
    monkeypatch.delenv(CACHES[1])
    prepare_process(None)
    assert [os.environ[name] for name in CACHES] == ["99", "128"]


def test_full_searches_for_garbage_are_rare():
    before = gc.get_threshold()
    prepare_process(None)
    assert gc.get_threshold() == (*before[:2], 200)


def test_the_environment_wins_over_the_setting(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("RAYON_NUM_THREADS", "0")
    monkeypatch.delenv("RAYON_NUM_THREADS")
    prepare_process(3)
    assert (os.environ["OMP_NUM_THREADS"], os.environ["RAYON_NUM_THREADS"]) == ("7", "3")
    assert sys.getswitchinterval() == pytest.approx(0.0005)


def test_without_a_number_the_libraries_choose(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OMP_NUM_THREADS")
    prepare_process(None)
    assert "OMP_NUM_THREADS" not in os.environ
