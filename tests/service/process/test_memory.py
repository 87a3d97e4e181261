"""How much memory may still be taken: by the machine, and by what a container is allowed."""

import pytest

from longtail.service.process.compute_threads import available_bytes

GIB = 2**30


@pytest.fixture
def meminfo(tmp_path):
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:       9000000 kB\nMemAvailable:   4194304 kB\n")
    return path


def test_a_container_allows_what_it_has_not_used_but_for_its_cache(tmp_path, meminfo):
    (tmp_path / "memory.max").write_text(f"{2 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{GIB}\n")
    assert available_bytes(tmp_path, meminfo) == GIB
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {GIB // 2}\n")
    assert available_bytes(tmp_path, meminfo) == GIB + GIB // 2
