"""The house stays one that a stranger can enter: small folders, short files."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("models", "training", "service", "longtail/ext", "research")
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


def _has_no_absolute_part(call):
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = {each.arg for each in call.keywords}
    is_relative = name == "assert_allclose" or "rtol" in given
    comparisons = {"assert_allclose", "assert_close", "allclose", "isclose"}
    return name in comparisons and is_relative and "atol" not in given


def test_no_numbers_are_compared_by_a_relative_tolerance_alone():
    """Use `tests.closeness.assert_all_close`: a sum near 0 has the errors of its terms."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _has_no_absolute_part(node)
    ]
    assert found == []


def test_no_read_is_a_command():
    """What a read prepares has a method of its own, such as `batch.prepare_features()`."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in (*PACKAGES, "tests", "docs")
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Attribute)
        and all(isinstance(each, ast.Name) and each.id == "_" for each in node.targets)
    ]
    assert found == []


def test_public_class_names_are_unique():
    found = defaultdict(list)
    for package in ("models", "training", "service"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    both_read_feedback = {"Entry", "ProposedLabel"}
    several = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert {name: several[name] for name in several.keys() - both_read_feedback} == {}
