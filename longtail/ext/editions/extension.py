"""`longtail vocabulary diff` and `apply`: list changes of a vocabulary; apply them to a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.commands.changed_version import (
    ActivateOption,
    ForceOption,
    MeasureOption,
    MeasureSplitOption,
    publish_changed,
)
from longtail.extensions import Command, Extension
from longtail.training.commands.options import OverwriteOption, RegistryOption, configure_logging

if TYPE_CHECKING:  # imported inside the commands, so that --help stays fast
    from longtail.ext.editions.applying import Applied, SplitLabel
    from longtail.ext.editions.changes import VocabularyChanges
    from longtail.models.bundle.bundle import Bundle

DEFAULT_REGISTRY = Path("registry")
_MAX_IDS = 5
_MOST_GONE, _FEW_GONE = 0.1, 5
"""Share of the labels that may be gone without being forced; so few may, whatever the share."""
_STATE = "A vocabulary or label file, the folder of a version, or a registry (its current version)."
LanguageOption = Annotated[
    str | None,
    typer.Option(help="Of the names of labels; by default that of most concepts."),
]
MergesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="CSV with the columns id and replaced_by, for what the vocabulary does not say.",
    ),
]


def diff(
    old: Annotated[Path, typer.Argument(help=_STATE)],
    new: Annotated[Path, typer.Argument(help="Likewise: the state after OLD.")],
    merges: MergesOption = None,
    language: LanguageOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write all changes, for 'vocabulary apply'."),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Compare two states of a vocabulary: new, renamed, merged, split, deprecated, re-parented."""
    configure_logging()
    from longtail.ext.editions.report import report_lines
    from longtail.ext.editions.states import compare_states, read_state
    from longtail.models.files.durable import write_lines_durably
    from longtail.models.files.failures import doing
    from longtail.models.files.outputs import check_output_file

    if output is not None:
        inputs = [path for path in (old, new, merges) if path is not None]
        check_output_file(output, inputs=inputs, overwrite=overwrite, option="--json")
    before, after = read_state(old, language, "OLD"), read_state(new, language, "NEW")
    changes = compare_states(before, after, _merges(merges))
    for line in report_lines(changes):
        print(line)
    if output is not None:
        with doing("writing", output):
            write_lines_durably(output, [changes.to_json().rstrip("\n")])
        print(f"Written: {output}")


def apply(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="CHANGES",
            help="What 'vocabulary diff --json' wrote (.json), or the new vocabulary itself.",
        ),
    ],
    registry: RegistryOption = DEFAULT_REGISTRY,
    version: Annotated[str, typer.Option(help="A version's number, or 'current'.")] = "current",
    merges: MergesOption = None,
    language: LanguageOption = None,
    activate: ActivateOption = False,
    data: MeasureOption = None,
    split: MeasureSplitOption = "dev",
    force: ForceOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a new version of a model that follows its vocabulary, without training it again."""
    configure_logging()
    from tqdm import tqdm

    from longtail.ext.editions.applying import apply_changes
    from longtail.ext.editions.refit import fitting_as
    from longtail.models.bundle.registry import Registry

    store = Registry(registry)
    number = store.resolve(version)
    store.check_writable()
    bundle = store.open(number)
    changes = _changes(source, bundle, merges, language)
    if not changes:
        print(f"Version {number} has all changes; nothing is written.", file=sys.stderr)
        if as_json:
            print(json.dumps({"version": number, "from_version": number}, indent=2))
        return
    if not force:
        _check_gone(changes, bundle)
    with tqdm(desc="labels", unit="label", disable=bundle.manifest.encoder is None) as bar:
        write, applied = apply_changes(bundle, changes, fitting_as(bundle.manifest), bar.update)
    made = publish_changed(
        store, bundle, write, data, split, activate=activate, force=force, action="vocabulary"
    )
    if as_json:
        told = {"version": made, "from_version": number, "current": store.current()}
        print(json.dumps(told | applied.to_json(), indent=2, ensure_ascii=False))
        return
    _print_applied(applied, made, number)
    print(f"Current is version {store.current()}.")


def _changes(
    source: Path, bundle: Bundle, merges: Path | None, language: str | None
) -> VocabularyChanges:
    """Return the changes of a file, or the changes of a vocabulary that the bundle lacks."""
    from longtail.ext.editions.changes import VocabularyChanges
    from longtail.ext.editions.states import compare_states, read_state, state_of
    from longtail.models.errors import ConfigError
    from longtail.models.files.outputs import check_readable_file
    from longtail.models.files.text_files import raw_blocks

    if source.suffix != ".json":
        return compare_states(
            state_of(bundle), read_state(source, language, "CHANGES"), _merges(merges)
        )
    if merges is not None or language is not None:
        raise ConfigError(
            f"CHANGES {str(source)!r}: is a file of changes, in which merges and names stand "
            "already; leave out --merges and --language, or give them to 'vocabulary diff'"
        )
    check_readable_file(source, "CHANGES")
    return VocabularyChanges.from_json(b"".join(raw_blocks(source)), str(source))


def _check_gone(changes: VocabularyChanges, bundle: Bundle) -> None:
    """Refuse changes by which many labels are gone: a file that was cut off looks like that."""
    from longtail.models.errors import DataError

    num_gone = sum(each.is_gone for each in changes.deprecated)
    num_labels = int(bundle.catalogue.in_use.sum())
    if num_gone > max(_FEW_GONE, _MOST_GONE * num_labels):
        raise DataError(
            f"CHANGES: {num_gone:,} of {num_labels:,} labels are gone; expected at most "
            f"{_MOST_GONE:.0%}; was the vocabulary read whole? If so, retire them with --force"
        )


def _merges(path: Path | None) -> dict[str, tuple[str, ...]]:
    """Return what replaces labels, of a file; nothing without one."""
    from longtail.ext.editions.difference import read_merges
    from longtail.models.files.outputs import check_readable_file

    if path is None:
        return {}
    check_readable_file(path, "--merges")
    return read_merges(path)


def _print_applied(applied: Applied, made: int, number: int) -> None:
    print(
        f"Version {made} has {applied.label_count:,} labels, {applied.num_new:,} more than "
        f"{number}; {applied.num_retired:,} of them are retired and never answered."
    )
    if applied.num_encoded:
        print(f"The encoder has read the texts of {applied.num_encoded:,} labels.")
    if applied.num_new and not applied.can_find_new:
        print("No scorer finds the new labels: the model has no encoder and no scorer 'names'.")
    for one in applied.merged[:_MAX_IDS]:
        print(
            f"Merged into {one.id}: {_listed(one.merged)}; {one.training_count:,} training "
            f"documents, sparse weights: {one.weights}."
        )
    _print_more(len(applied.merged))
    for split in applied.split[:_MAX_IDS]:
        print(f"SplitLabel: {split.id} into {_listed(split.by)}. {_documents_of(split)}")
    _print_more(len(applied.split))
    if applied.unknown:
        print(f"Not in this version: {_listed(applied.unknown)}.")
    if applied.present:
        print(f"New, and there already: {_listed(applied.present)}.")


def _documents_of(split: SplitLabel) -> str:
    """Return the rule for the documents of a split label."""
    if not split.training_count:
        return "No training document carried it."
    todo = (
        f"It was on {split.training_count:,} training documents; say of each which of the parts it "
        "is about."
    )
    if not split.document_ids:
        return f"{todo} Which they are is not known: the model remembers none ('neighbours')."
    return (
        f"{todo} By id (by number of the line where the training file gives no ids): "
        f"{_listed(split.document_ids)}. All of them: --json."
    )


def _print_more(number: int) -> None:
    if number > _MAX_IDS:
        print(f"And {number - _MAX_IDS:,} more; all of them with --json.")


def _listed(ids: tuple[str, ...]) -> str:
    more = f" and {len(ids) - _MAX_IDS:,} more" if len(ids) > _MAX_IDS else ""
    return ", ".join(ids[:_MAX_IDS]) + more


EXTENSION = Extension(
    "editions",
    commands=lambda: [
        Command("diff", diff, group="vocabulary"),
        Command("apply", apply, group="vocabulary"),
    ],
)
