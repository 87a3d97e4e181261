"""How much memory may still be taken: by the machine, and by what a container is allowed."""

from __future__ import annotations

import pytest

from longtail.service.process import memory
from longtail.service.process.memory import available_bytes, return_free_memory

GIB = 2**30


@pytest.fixture
def meminfo(tmp_path):
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:       9000000 kB\nMemAvailable:   4194304 kB\n")
    return path


def test_without_a_container_the_machine_decides(tmp_path, meminfo):
    assert available_bytes(tmp_path, meminfo) == 4 * GIB


def test_a_container_allows_what_it_has_not_used_but_for_its_cache(tmp_path, meminfo):
    (tmp_path / "memory.max").write_text(f"{2 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{GIB}\n")
    assert available_bytes(tmp_path, meminfo) == GIB
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {GIB // 2}\n")
    assert available_bytes(tmp_path, meminfo) == GIB + GIB // 2


def test_containers_of_the_first_kind_count_too(tmp_path, meminfo):
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(f"{3 * GIB}")
    (folder / "memory.usage_in_bytes").write_text(f"{GIB}")
    (folder / "memory.stat").write_text(f"total_inactive_file {GIB // 4}")
    assert available_bytes(tmp_path, meminfo) == 2 * GIB + GIB // 4


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_where_memory_cannot_be_given_back_it_is_kept(monkeypatch, platform):
    monkeypatch.setattr(memory.sys, "platform", platform)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    return_free_memory()


def test_this_machine_has_some_and_takes_it_back():
    return_free_memory()
    assert (available_bytes() or 1) > 0
