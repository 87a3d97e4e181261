"""What lives for long is not searched for garbage, except where something is to be freed."""

import gc
import weakref

import pytest

from longtail.models.errors import ConfigError
from longtail.service.process.compute_threads import available_bytes, collect_cycles
from longtail.service.process.reloading_file import ReloadingFile


class Node:
    """A circle of one."""

    def __init__(self):
        self.itself = self


def test_circles_are_freed_even_where_they_were_left_out_before():
    gc.disable()
    try:
        node = Node()
        ref = weakref.ref(node)
        gc.freeze()
        del node
        gc.collect()
        assert ref() is not None
        collect_cycles()
        assert ref() is None
        assert gc.get_freeze_count() > 0
    finally:
        gc.enable()


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


def number_in(path):
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if not text.isdecimal():
        raise ConfigError(f"{text!r} is no number")
    return int(text)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "number"
    path.write_text("1", encoding="utf-8")
    return path


def test_it_is_read_again_only_when_it_has_changed(path):
    file = ReloadingFile(path, number_in)
    assert (file.content, file.refresh()) == (1, False)
    path.write_text("23", encoding="utf-8")
    assert (file.refresh(), file.content, file.refresh()) == (True, 23, False)


@pytest.mark.parametrize("change", [lambda path: path.write_text("no"), lambda path: path.unlink()])
def test_one_that_cannot_be_read_is_told_once_and_leaves_what_it_held(path, change):
    file = ReloadingFile(path, number_in)
    change(path)
    with pytest.raises(ConfigError, match="is no number"):
        file.refresh()
    assert (file.refresh(), file.content) == (False, 1)
