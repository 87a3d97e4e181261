"""The house stays one that a stranger can enter: it does not grow by accident."""

import ast
import json
from collections import defaultdict
from pathlib import Path

from tests.contracts import house

ROOT = Path(__file__).parents[2]
MAX_FILES = 16
MAX_LINES = 600


def test_no_figure_of_the_house_rises_unless_the_table_says_so():
    table = json.loads(house.TABLE.read_text("utf-8"))
    found = house.figures()
    assert {name: set(some) for name, some in table.items()} == {
        name: set(some) for name, some in found.items()
    }
    assert house.risen(table, found) == [], "cut, or run python tests/contracts/house.py --write"


def test_no_table_lets_a_file_or_a_folder_of_a_package_be_too_long():
    table = json.loads(house.TABLE.read_text("utf-8"))
    packages = set(house.PACKAGES) - {"tests"}
    assert all(table["lines of the longest file"][x] <= MAX_LINES for x in packages)
    assert all(table["files of the fullest folder"][x] <= MAX_FILES for x in packages)


def test_a_figure_that_rises_is_named_and_one_that_falls_is_not():
    table = {"lines": {"models": 10, "training": 5}}
    assert house.risen(table, {"lines": {"models": 9, "training": 5}}) == []
    (said,) = house.risen(table, {"lines": {"models": 11, "training": 5}})
    assert said == "lines, models: 11, expected at most 10"


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
        for package in (*house.PACKAGES, "docs")
        for path in house.sources(package, "py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Attribute)
        and all(isinstance(each, ast.Name) and each.id == "_" for each in node.targets)
    ]
    assert found == []


def test_public_class_names_are_unique():
    found = defaultdict(list)
    for package in house.SHIPPED:
        for path in house.sources(package, "py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
