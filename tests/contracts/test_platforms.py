"""What one system has and another has not stands in one module, and files are the same on all."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
