"""The shipped packages keep their budget, and the tests compare numbers safely."""

import ast
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
SHIPPED = ("models", "training", "service", "longtail")
MAX_SHIPPED_LINES = 62_170


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


SOURCES = [
    path
    for folder in ("models", "training", "service", "longtail")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
ONLY = frozenset({"fcntl", "grp", "msvcrt", "pwd", "resource", "termios", "uvloop", "winreg"})
"""Modules that not every system has."""


def nodes(path, kind):
    return [x for x in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(x, kind)]


def imported(path):
    yield from (alias.name for node in nodes(path, ast.Import) for alias in node.names)
    yield from (node.module or "" for node in nodes(path, ast.ImportFrom))


def test_one_module_imports_what_one_system_has():
    users = {path.relative_to(ROOT) for path in SOURCES if ONLY & set(imported(path))}
    assert users == {Path("models/platform.py")}


def test_text_files_have_the_same_line_ends_on_all_systems():
    bad = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in SOURCES
        for call in nodes(path, ast.Call)
        if is_write(call) and "newline" not in {keyword.arg for keyword in call.keywords}
    ]
    assert bad == []


def is_write(call):
    """Whether a call writes a text file: `write_text`, or `open` for it."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    modes = {x.value for x in call.args if isinstance(x, ast.Constant) and isinstance(x.value, str)}
    return name == "write_text" or (name == "open" and bool(modes & {"w", "a", "x", "w+", "a+"}))


def test_actions_are_named_by_commit_and_jobs_say_what_they_may_do():
    for path in sorted(Path(".github/workflows").glob("*.yml")):
        text = path.read_text("utf-8")
        used = re.findall(r"uses: (.*)", text)
        assert used and all(re.fullmatch(r"\S+@[0-9a-f]{40} # v\S+", each) for each in used)
        content = yaml.safe_load(text)
        assert content["permissions"] == {}
        assert all({"permissions", "timeout-minutes"} <= set(x) for x in content["jobs"].values())
