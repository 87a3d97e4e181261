"""The house stays one that a stranger can enter: small folders, short files."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("models", "training", "service", "research")
MAX_FILES = 16
MAX_LINES = 600


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folder_has_more_files_than_fit_on_a_screen(package):
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    counts = {
        str(folder.relative_to(ROOT)): len([*folder.glob("*.py")]) - 1  # without __init__.py
        for folder in folders
    }
    assert {name: count for name, count in counts.items() if count > MAX_FILES} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_is_longer_than_its_idea(package):
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / package).rglob("*.py")
    }
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}
