"""No pattern of the shipped code takes time with the square of a line's length."""

import ast
import importlib
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LENGTHS = {"match": 200_000, "fullmatch": 200_000, "search": 200_000}
"""Characters of a text, by method; others of 50,000."""
SECONDS = 2
"""Processor time of a call that is left, at least: a straight line takes hundredths of one, and a
square ten seconds and more."""
MOST_CHARACTERS = 4
CATEGORIES = {
    "CATEGORY_SPACE": " ", "CATEGORY_DIGIT": "1", "CATEGORY_WORD": "a",
    "CATEGORY_NOT_SPACE": "a", "CATEGORY_NOT_DIGIT": "a", "CATEGORY_NOT_WORD": "!",
}  # fmt: skip
PACKAGES = ("models", "training", "service", "longtail")
BOUNDED = {"longtail/ext/budget/extension", "service/settings"}
"""Modules whose patterns read options and settings alone."""


def _patterns():
    """Yield the name of each pattern, the pattern, and the methods that its module calls."""
    for path in (x for name in PACKAGES for x in sorted((ROOT / name).rglob("*.py"))):
        place = path.relative_to(ROOT).with_suffix("").as_posix()
        called, found = {}, []
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                called.setdefault(node.value.id, set()).add(node.attr)
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("re.compile("):
                found.append((node.targets[0].id, ast.unparse(node.value)))
        for name, call in found if place not in BOUNDED else ():
            try:
                pattern = eval(call, {"re": re})  # noqa: S307
            except NameError:  # it is made of constants of its module
                module = "longtail." + place.removeprefix("longtail/").replace("/", ".")
                pattern = getattr(importlib.import_module(module), name)
            methods = called.get(name, set()) & {*dir(pattern)} - {"pattern"}
            yield f"{place}.{name}", pattern, sorted(methods or {"findall"})


def _characters(parsed):
    """Yield a character for each literal, range and category of a parsed pattern."""
    if isinstance(parsed, tuple) and isinstance(parsed[0], re._constants._NamedIntConstant):
        kind, value = str(parsed[0]), parsed[1]
        if kind in {"LITERAL", "NOT_LITERAL"}:
            yield chr(value)
        elif kind == "RANGE":
            yield chr(value[0])
        elif kind == "CATEGORY":
            yield CATEGORIES[str(value)]
        else:
            yield from _characters(value)
    elif isinstance(parsed, re._parser.SubPattern | list | tuple):
        for each in parsed:
            yield from _characters(each)


def _texts(pattern, length):
    """Yield long texts of a pattern's own characters, with an end that few patterns take."""
    found = dict.fromkeys(_characters(re._parser.parse(pattern.pattern, pattern.flags)))
    for first, second in product([*[*found][:MOST_CHARACTERS], "x"], repeat=2):
        for text in (first + second * length + "\0", (first + second) * (length // 2) + "\0"):
            yield text.encode() if isinstance(pattern.pattern, bytes) else text


def apply_all():
    """Apply each pattern to its texts; the process ends by SIGXCPU where one takes long."""
    import resource

    for name, pattern, methods in list(_patterns()):  # before the first limit
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        for method in methods:
            for text in _texts(pattern, LENGTHS.get(method, 50_000)):
                used = resource.getrusage(resource.RUSAGE_SELF)
                limit = int(used.ru_utime + used.ru_stime) + 1 + SECONDS
                resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
                found = getattr(pattern, method)(*[text[:0]] * (method == "sub"), text)
                list(found) if method == "finditer" else None


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of processor time")
def test_no_pattern_takes_the_square_of_a_line():
    command = "from tests.contracts.test_patterns import apply_all; apply_all()"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = done.stdout.split()
    assert done.returncode == 0, f"{names[-1:]}: {done.stderr}"
    assert len(names) > 40
