"""The words of docstrings, comments and Markdown are those of the field."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("models", "training", "service", "longtail", "research", "docs")
WORDS = re.compile(
    r"\bof before\b|\bso (?:many|much)\b|\bwhoever\b|\btold\b(?!:)|\banew\b"
    r"|\b(?:what|that) there (?:is|are) not\b|\bthere (?:isn't|aren't)\b",
    re.IGNORECASE,
)
OF = re.compile(r"\s*\*{0,2}\w+: Of\b")
"""An argument or attribute without its noun: `folder: Of the run.` is `The run's folder.`"""


def _sentences(path):
    """Yield the number and the text of each line of Markdown, of a docstring and of a comment."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        yield from enumerate(text.splitlines(), 1)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines = str(node.value.value).splitlines()
            yield from ((node.lineno + i, x if i else f"0: {x}") for i, x in enumerate(lines))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _wrong(path):
    """Return places with words that are not ours; line 0 of a docstring may not begin with Of."""
    return [
        f"{path}:{number}: {text.strip()}"
        for number, text in _sentences(path)
        if WORDS.search(text) or (path.suffix == ".py" and OF.match(text))
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_words_of(package):
    paths = [x for x in (ROOT / package).rglob("*") if x.suffix in {".py", ".md"}]
    own = [x for x in sorted(paths) if not any(y.is_symlink() for y in x.parents)]
    assert [place for path in own for place in _wrong(path)] == []


def test_words_of_pages_at_the_top():
    paths = [*ROOT.glob("*.md"), ROOT / "docker" / "README.md"]
    assert [place for path in paths for place in _wrong(path)] == []
