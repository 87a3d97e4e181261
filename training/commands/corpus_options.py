"""The options of every command that opens a corpus, declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from longtail.training.formats.options import CorpusOptions

_OPTIONS: Mapping[str, tuple[Any, Any]] = {
    "text_columns": (
        Annotated[
            str | None,
            typer.Option(
                "--text-columns", help="Columns of the text, between commas; they are joined."
            ),
        ],
        None,
    ),
    "label_column": (
        Annotated[str | None, typer.Option("--label-column", help="Column of the labels.")],
        None,
    ),
    "label_delimiter": (
        Annotated[
            str | None,
            typer.Option("--label-delimiter", help="What stands between labels; else ; does."),
        ],
        None,
    ),
    "id_column": (
        Annotated[str | None, typer.Option("--id-column", help="Column of the document's id.")],
        None,
    ),
    "group_column": (
        Annotated[
            str | None,
            typer.Option(
                "--group-column",
                help="Column of what documents share, as a patient; see 'confidential'.",
            ),
        ],
        None,
    ),
    "one_row_per_label": (
        Annotated[
            bool,
            typer.Option(
                "--one-row-per-label",
                help="Rows with the same id, or the same text, are one document.",
            ),
        ],
        False,
    ),
    "vocabulary": (
        Annotated[
            Path | None, typer.Option("--vocabulary", metavar="FILE", help="The label file.")
        ],
        None,
    ),
    "language": (
        Annotated[
            str | None,
            typer.Option("--language", help="Of the names in the label file, as 'en'."),
        ],
        None,
    ),
}
"""Type and default of each, by its name in `CorpusOptions`."""


def with_corpus_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with these options beside its own; it gets them as `corpus`.

    Args:
        command: Has a parameter `corpus`, a `CorpusOptions`, with a default.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "corpus"]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
        )
        for name, (annotation, default) in _OPTIONS.items()
    ]

    def with_options(*args: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs}
        command(*args, corpus=_corpus_options(given), **kwargs)

    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    with_options.__module__ = command.__module__
    with_options.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in [*own, *added]}
    with_options.__dict__.pop("__wrapped__", None)  # a checker of types may have left one
    return with_options


def _corpus_options(given: Mapping[str, Any]) -> CorpusOptions:
    """Return what was typed as options of a corpus.

    Raises:
        ConfigError: It can't be meant.
    """
    values = dict(given)
    if (columns := values.get("text_columns")) is not None:
        values["text_columns"] = tuple(name.strip() for name in columns.split(","))
    else:
        values.pop("text_columns", None)
    if values.get("label_delimiter") == "\\t":  # as shells pass it
        values["label_delimiter"] = "\t"
    return CorpusOptions(**values)
