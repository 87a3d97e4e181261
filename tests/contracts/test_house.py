"""The shipped packages keep their budget, and the tests compare numbers safely."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHIPPED = ("models", "training", "service", "longtail")
MAX_SHIPPED_LINES = 62_200


def test_the_shipped_packages_keep_their_budget():
    paths = [path for package in SHIPPED for path in (ROOT / package).rglob("*.py")]
    own = [path for path in paths if not any(x.is_symlink() for x in path.parents)]
    assert sum(path.read_text("utf-8").count("\n") for path in own) <= MAX_SHIPPED_LINES


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
