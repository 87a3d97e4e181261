"""The Python interface, from signatures and docstrings; read as text, so nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from docs.generation.docstring import render as as_markdown
from docs.generation.markdown import page

_ROOT = Path(__file__).parents[2]
_INTRODUCTION = """\
Which classes and functions can Python code use?

What is not on this page may change without notice. Exceptions: [errors](errors.md#exceptions-in-python)."""
_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_PARTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Train, evaluate, load", "longtail/__init__.py", ("load", "train", "learn", "evaluate")),
    ("How a corpus is read", "training/formats/options.py", ("CorpusOptions",)),
    ("A loaded model", "models/interface/model.py", ("LoadedModel", "Predictions")),
    ("A loaded model that is measured", "longtail/model.py", ("Model",)),
    ("What was measured", "training/assessment/assess.py", ("Assessment",)),
    ("With scikit-learn", "training/estimators/classifier.py", ("LongtailClassifier",)),
    ("Scorers for scikit-learn", "training/estimators/scorers.py", (
        "precision_at_k", "ndcg_at_k", "psp_at_k", "metrics_at_k",
    )),
    ("Predict in this process", "models/predict/predictor.py", ("Predictor",)),
    ("What a prediction is", "models/results.py", ()),
    ("Registry", "models/bundle/registry.py", ("Registry",)),
    ("Ask a service", "service/client/client.py", ("Client", "AsyncClient")),
    ("Retries and errors of the clients", "service/client/calls.py", (
        "Retry", "ClientError", "ConnectionFailedError", "NoAnswerError", "ProblemError",
    )),
)  # fmt: skip
"""Headings, files, and the names to show; without names all that are public."""


def render() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for title, file, names in _PARTS:
        parts.append(f"## {title}")
        name = file.removesuffix(".py").removesuffix("/__init__").removeprefix("longtail/")
        prefix = "longtail." if name == "longtail" else f"longtail.{name.replace('/', '.')}."
        for node in _public(ast.parse((_ROOT / file).read_text(encoding="utf-8")), file, names):
            parts += _described(node, prefix)
    return page("Python", "the docstrings", *parts)


def _public(tree: ast.Module, file: str, names: tuple[str, ...]) -> Iterator[ast.stmt]:
    """Yield the definitions to show."""
    defined = {
        node.name: node for node in tree.body if isinstance(node, ast.ClassDef | _Definition)
    }
    if missing := set(names) - set(defined):
        raise LookupError(
            f"{file} defines no {sorted(missing)}; change docs/generation/python_page.py"
        )
    for name, node in defined.items():
        if name in names or (not names and not name.startswith("_")):
            yield node


def _described(node: ast.stmt, prefix: str) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield f"### `{prefix}{node.name}`"
        yield as_markdown(ast.get_docstring(node) or "")
        for member in node.body:
            if isinstance(member, _Definition) and _is_shown(member):
                yield from _function(member, "", "####")
    elif isinstance(node, _Definition):
        yield from _function(node, prefix, "###")


def _is_shown(member: _Definition) -> bool:
    is_public = not member.name.startswith("_")
    return bool(ast.get_docstring(member)) and (is_public or member.name == "__init__")


def _function(node: _Definition, prefix: str, level: str) -> Iterator[str]:
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    yield f"{level} `{prefix}{node.name}`"
    if not {"property", "cached_property"} & decorators:
        yield f"```python\n{_signature(node)}\n```"
    yield as_markdown(ast.get_docstring(node) or "")


def _signature(node: _Definition) -> str:
    """Return the signature, one parameter a line where it is long."""
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    arguments = ast.unparse(node.args)
    for name in ("self, ", "cls, ", "self", "cls"):
        if arguments.startswith(name):
            arguments = arguments.removeprefix(name)
            break
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    line = f"{keyword} {node.name}({arguments}){returns}"
    if len(line) <= 90:
        return line
    listed = "".join(f"    {part},\n" for part in _split(arguments))
    return f"{keyword} {node.name}(\n{listed}){returns}"


def _split(arguments: str) -> list[str]:
    """Split at the commas that stand in no brackets and no quotation marks."""
    parts, depth, quote = [""], 0, ""
    for character in arguments:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
