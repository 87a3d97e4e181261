"""Options that several commands share, declared once; logs and bars of offline commands.

Those that say how a corpus is read are options of `inspect` and `train`. A version remembers those
of its training; commands that measure it or learn read other documents in the same way, but for
what `--read` says.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from longtail.models.corpus.columns import CorpusOptions
from longtail.models.errors import ConfigError, DataError
from longtail.training.runtime.run_log import show_progress

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
_READ = (
    Annotated[
        list[str] | None,
        typer.Option(
            "--read",
            metavar="OPTION=VALUE",
            help="How the documents are read, where it differs from the training: an option of "
            "'longtail train' without its dashes, such as label-column=tags, or skip-bad; give it "
            "several times.",
        ),
    ],
    None,
)
_NAMES = tuple(each.name for each in fields(CorpusOptions))
_READ_OPTIONS = [f"--{name.replace('_', '-')}" for name in _NAMES]
_FLAGS = {"one_row_per_label", "skip_bad"}
_SPELLED = re.compile("|".join(_READ_OPTIONS))


def with_corpus_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with an option for each of `CorpusOptions`, but for `skip_bad`.

    Args:
        command: Has a parameter `corpus`, a `CorpusOptions`, with a default.
    """

    def with_options(*args: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs}
        command(*args, corpus=_corpus_options(given), **kwargs)

    return _with_signature(with_options, command, "corpus", _OPTIONS)


def with_read_option(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the option `--read`, which stands for all of `CorpusOptions`."""

    def with_read(*args: Any, **kwargs: Any) -> None:
        corpus = _read_options(kwargs.pop("read", None) or ())
        try:
            command(*args, corpus=corpus, **kwargs)
        except (ConfigError, DataError) as error:
            if named := _SPELLED.search(str(error)):
                error.add_note(f"here {named[0]} is given as --read {named[0][2:]}=...")
            raise

    return _with_signature(with_read, command, "corpus", {"read": _READ})


def advise(error: Any) -> None:
    """Add what to do to Typer's "No such option", where the command has `--read` in its place."""
    option = getattr(error, "option_name", "")
    if option in _READ_OPTIONS and any(x.name == "read" for x in error.ctx.command.params):
        error.message += f"; the model knows it; to read otherwise: --read {option[2:]}=VALUE"


def _with_signature(
    wrapper: Callable[..., None],
    command: Callable[..., None],
    replaced: str,
    options: Mapping[str, tuple[Any, Any]],
) -> Callable[..., None]:
    """Give a wrapper the signature of its command, with options in place of one parameter."""
    signature = inspect.signature(command, eval_str=True)
    parameters = []
    for each in signature.parameters.values():
        those = options if each.name == replaced else {each.name: (each.annotation, each.default)}
        parameters += [
            each.replace(name=name, annotation=annotation, default=default)
            for name, (annotation, default) in those.items()
        ]
    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__module__ = command.__module__
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
    wrapper.__dict__.pop("__wrapped__", None)  # a checker of types may have left one
    return wrapper


def _read_options(typed: Sequence[str]) -> CorpusOptions:
    given: dict[str, Any] = {}
    for each in typed:
        option, equals, value = each.partition("=")
        name = option.strip().lstrip("-").replace("-", "_")
        if name not in _NAMES:
            known = ", ".join(_NAMES).replace("_", "-")
            raise ConfigError(f"--read {each!r}: expected OPTION=VALUE with an option of {known}")
        if (name in _FLAGS) == bool(equals):
            expected = "no value" if equals else "a value behind '='"
            raise ConfigError(f"--read {each!r}: expected {expected}")
        given[name] = name in _FLAGS or (Path(value) if name == "vocabulary" else value)
    return _corpus_options(given)


def _corpus_options(given: Mapping[str, Any]) -> CorpusOptions:
    values = dict(given)
    if (columns := values.get("text_columns")) is not None:
        values["text_columns"] = tuple(name.strip() for name in columns.split(","))
    else:
        values.pop("text_columns", None)
    if values.get("label_delimiter") == "\\t":  # as shells pass it
        values["label_delimiter"] = "\t"
    return CorpusOptions(**values)


def configure_logging() -> None:
    """Show warnings and progress bars; `longtail --verbose` lets our own packages log more."""
    show_progress()
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )


DEFAULT_REGISTRY = Path("registry")

DataArgument = Annotated[
    Path,
    typer.Argument(help="Folder of the corpus, or one file: JSON lines, CSV, TSV, Parquet, ..."),
]
RegistryOption = Annotated[
    Path, typer.Option("--registry", envvar="LONGTAIL_REGISTRY", help="Folder of the registry.")
]
VersionOption = Annotated[str, typer.Option(help="A version's number, or 'current'.")]
SplitOption = Annotated[str, typer.Option(help="train, dev or test.")]
BaselinesOption = Annotated[
    bool, typer.Option(help="Measure 30-nearest-neighbour and label-name matching too.")
]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out documents that can't be used, and count them.")
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace results that are there already.")
]
ConfidentialOption = Annotated[
    bool, typer.Option("--confidential", help="Quote no document, id or line.")
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the figures as JSON, with command, commit, date, processor and seeds; "
        "- prints them, and nothing else.",
    ),
]
EngineOption = Annotated[
    str, typer.Option(help="local, or ray: workers on a cluster (RAY_ADDRESS), or here.")
]
WorkersOption = Annotated[int, typer.Option(min=1, help="With ray: processes of one thread.")]
