"""The house stays one that a stranger can enter: it does not grow by accident."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("models", "training", "service", "longtail", "research", "tests")
SHIPPED = PACKAGES[:4]
MAX_SHIPPED_LINES = 62_020
MAX_FILES_IN_A_FOLDER = 16
MAX_LINES_OF_A_FILE = 600


def _sources(package):
    """Return the Python files of a package that have content, without those of linked packages."""
    return [
        path
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.stat().st_size and not any(x.is_symlink() for x in path.parents)
    ]


def _num_lines(path):
    return path.read_text("utf-8").count("\n")


def test_the_shipped_packages_keep_their_budget():
    assert sum(_num_lines(x) for name in SHIPPED for x in _sources(name)) <= MAX_SHIPPED_LINES


def test_no_file_and_no_folder_is_too_long():
    files = [path for name in PACKAGES[:5] for path in _sources(name)]
    folders = [path.parent for path in files]
    assert [x for x in files if _num_lines(x) > MAX_LINES_OF_A_FILE] == []
    assert {x for x in folders if folders.count(x) > MAX_FILES_IN_A_FOLDER} == set()


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
        for package in (*PACKAGES, "docs")
        for path in _sources(package)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Attribute)
        and all(isinstance(each, ast.Name) and each.id == "_" for each in node.targets)
    ]
    assert found == []


def test_public_class_names_are_unique():
    found = defaultdict(list)
    for package in SHIPPED:
        for path in _sources(package):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
