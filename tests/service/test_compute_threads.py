"""One number of threads for all compute libraries, set where they compute."""

from __future__ import annotations

import logging
import os
import sys

import faiss
import pytest
import torch

from service.compute_threads import ComputeSetup, limit_threads, prepare_process


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    for name in CACHES:  # so that what is set is unset again
        monkeypatch.setenv(name, "16")
    before = torch.get_num_threads(), faiss.omp_get_max_threads(), sys.getswitchinterval()
    yield
    torch.set_num_threads(before[0])
    faiss.omp_set_num_threads(before[1])
    sys.setswitchinterval(before[2])


@pytest.mark.parametrize("asked", [None, 1, 2])
def test_pytorch_and_faiss_have_the_same_number_and_it_is_logged(asked, caplog):
    with caplog.at_level(logging.INFO, "service.compute_threads"):
        limit_threads(asked)
    count = asked or torch.get_num_threads()
    assert torch.get_num_threads() == faiss.omp_get_max_threads() == count
    assert f"torch={count} faiss={count} tokenisers=" in caplog.text


@pytest.mark.parametrize(("said", "count"), [("3", 3), ("0", None), ("many", None), ("", None)])
def test_what_was_set_is_remembered(monkeypatch, said, count):
    monkeypatch.setenv("RAYON_NUM_THREADS", said)
    setup = ComputeSetup(2)
    assert setup.libraries is None
    setup.prepare_thread()
    found = setup.libraries
    assert (found.torch_threads, found.faiss_threads) == (2, 2)
    assert found.tokeniser_threads == (count or os.cpu_count())
    assert (found.torch_version, found.faiss_version) == (torch.__version__, faiss.__version__)


CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def test_caches_of_shapes_are_small_unless_the_environment_says_otherwise(monkeypatch):
    monkeypatch.setenv(CACHES[0], "99")
    monkeypatch.setenv(CACHES[1], "99")
    monkeypatch.delenv(CACHES[1])
    prepare_process(None)
    assert [os.environ[name] for name in CACHES] == ["99", "16"]


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
