"""A file that is read again when it has changed."""

import pytest

from longtail.models.errors import ConfigError
from longtail.service.process.reloading_file import ReloadingFile


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
