"""`longtail vocabulary`: look at a vocabulary, write it in another form, follow its changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.models.corpus.columns import RECOGNISED, CorpusOptions
from longtail.training.commands.options import (
    DataArgument,
    JsonOption,
    OverwriteOption,
    configure_logging,
    with_corpus_options,
)

if TYPE_CHECKING:
    from longtail.models.vocabulary.concept import ConceptVocabulary
    from longtail.models.vocabulary.inspection import VocabularyInspection


@with_corpus_options
def gaps(
    data: DataArgument,
    top: Annotated[int, typer.Option(min=1, help="Terms, at most.")] = 50,
    min_documents: Annotated[
        int, typer.Option(min=1, help="Documents that have a term among their keyphrases.")
    ] = 5,
    json_file: JsonOption = None,
    corpus: CorpusOptions = RECOGNISED,
) -> None:
    """Rank keyphrases of many documents that no label's name covers, with the nearest labels."""
    configure_logging()
    from longtail.training.data.dataset import open_dataset
    from longtail.training.data.languages import LanguageCount
    from longtail.training.evaluation.record import check_record_file, deliver
    from longtail.training.lexical.gaps import GapFinder

    dataset = open_dataset(data, corpus)
    check_record_file(json_file, inputs=dataset.paths, overwrite=False)
    splits = [dataset.split(name) for name in dataset.split_names]
    languages = LanguageCount.of(text for split in splits for text in split.texts()).languages
    finder = GapFinder(dataset.labels, languages)
    found = finder.find(lambda: ((x.id, x.text) for y in splits for x in y), min_documents)[:top]
    names = {label.id: label.name for label in dataset.labels}
    lines = ["documents  term  (examples; nearest labels)"] + [
        f"{gap.num_documents:>9,}  {gap.phrase}  ({', '.join(gap.examples)}; "
        f"{', '.join(f'{names[x]} <{x}>' for x in gap.nearest) or 'none'})"
        for gap in found
    ]
    figures = {"data": dataset.fingerprint, "gaps": [asdict(gap) for gap in found]}
    print(deliver(json_file, figures, "\n".join(lines)))


vocabulary_app = typer.Typer(
    no_args_is_help=True,
    help="Look at a vocabulary (SKOS, Annif's tables), convert it, follow it, find its gaps.",
)
vocabulary_app.command("gaps")(gaps)
SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="SKOS (.ttl, .nt, .rdf, .xml, .jsonld) or a table of Annif (.tsv, .csv), also .gz.",
    ),
]
_FORMS = (".jsonl", ".csv", ".tsv", ".nt", ".ttl")


@vocabulary_app.command("show")
def show(
    source: SourceArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write it as labels (.jsonl, .csv), Annif's TSV (.tsv) or SKOS (.nt, .ttl), "
            "by the file's name.",
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(help="Of the names of labels that are written; by default the commonest."),
    ] = None,
    keep_deprecated: Annotated[
        bool, typer.Option("--keep-deprecated", help="Write deprecated concepts as labels, too.")
    ] = False,
    overwrite: OverwriteOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the content and possible errors of a vocabulary; write it in another form."""
    configure_logging()
    from longtail.models.files.durable import write_lines_durably
    from longtail.models.files.failures import doing
    from longtail.models.files.outputs import check_output_file, check_readable_file
    from longtail.models.vocabulary.inspection import inspect_vocabulary
    from longtail.models.vocabulary.reading import read_vocabulary

    check_readable_file(source, "FILE")
    _check_form(output, language, keep_deprecated)
    if output is not None:
        check_output_file(output, inputs=[source], overwrite=overwrite)
    vocabulary = read_vocabulary(source)
    lines = _lines(vocabulary, source, output, language, keep_deprecated)
    found = inspect_vocabulary(vocabulary)
    if output is not None:
        with doing("writing", output):
            write_lines_durably(output, lines)
    if as_json:
        print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
        return
    _print_inspection(found)
    if output is not None:
        print(f"Written: {output}")


def _check_form(output: Path | None, language: str | None, keep_deprecated: bool) -> None:
    from longtail.models.errors import ConfigError

    if output is None:
        if language is not None or keep_deprecated:
            raise ConfigError("--language and --keep-deprecated: expected with --output alone")
        return
    if output.suffix not in _FORMS:
        raise ConfigError(
            f"--output {str(output)!r}: no form by its name; expected the end {', '.join(_FORMS)}"
        )
    if output.suffix in {".nt", ".ttl"} and (language is not None or keep_deprecated):
        raise ConfigError(
            f"--output {str(output)!r}: SKOS has all languages and deprecated concepts; leave out "
            "--language and --keep-deprecated"
        )


def _lines(
    vocabulary: ConceptVocabulary,
    source: Path,
    output: Path | None,
    language: str | None,
    keep_deprecated: bool,
) -> Iterable[str]:
    """Return the lines of a vocabulary in a form, by the end of the file's name; none without."""
    from longtail.models.labels.concepts import labels_of, without_deprecated
    from longtail.models.labels.writing import csv_lines, jsonl_lines, tsv_lines
    from longtail.models.vocabulary.concept import ntriples_lines, turtle_lines

    if output is None:
        return ()
    form = output.suffix
    if form in {".nt", ".ttl"}:
        return {".nt": ntriples_lines, ".ttl": turtle_lines}[form](vocabulary)
    labels = labels_of(vocabulary, str(source), language)
    if not keep_deprecated:
        labels = without_deprecated(labels, str(source))
    return {".jsonl": jsonl_lines, ".csv": csv_lines, ".tsv": tsv_lines}[form](labels)


def _print_inspection(found: VocabularyInspection) -> None:
    shape = found.hierarchy
    rows = {
        "concepts": f"{found.num_concepts:,}, {found.num_deprecated:,} of them deprecated",
        "with a notation": f"{found.num_notations:,}",
        "levels": f"{shape.num_levels:,}",
        "at the top": f"{shape.num_top:,} with narrower concepts and no broader one",
        "alone": f"{shape.num_alone:,} with neither",
    }
    for name, value in rows.items():
        print(f"{name + ':':<17}{value}")
    print(f"\n{'language':<12}{'names':>10}{'other names':>13}{'hidden':>10}{'definitions':>13}")
    for language, counts in found.languages.items():
        print(
            f"{language or '(no tag)':<12}{counts.names:>10,}{counts.other_names:>13,}"
            f"{counts.hidden_names:>10,}{counts.definitions:>13,}"
        )
    suspicions = found.suspicions()
    if suspicions:
        print("\nMay be wrong:")
    for suspicion in suspicions:
        print(f"  {suspicion}")
