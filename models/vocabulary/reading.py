"""The reader of vocabularies: SKOS in four syntaxes and Annif's tables, by the file's name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from longtail.models.errors import DataError
from longtail.models.files.rows import garbage_collection_off
from longtail.models.vocabulary.assembling import assemble
from longtail.models.vocabulary.concept import ConceptVocabulary, Facts
from longtail.models.vocabulary.syntaxes.annif import is_annif_csv, read_annif_csv, read_annif_tsv
from longtail.models.vocabulary.syntaxes.rdf import FORMS, read_rdf

MAX_PROBLEMS: Final = 20
"""Lines that a message lists, unless told otherwise."""
SUFFIXES: Final = (*FORMS, ".tsv")
"""Ends of the names of files that are vocabularies, before `.gz`."""


def is_vocabulary_file(path: Path) -> bool:
    """Whether a file is a vocabulary: by its name, or a CSV file whose header has `uri`.

    Raises:
        DataError: It is a CSV file that can't be read.
    """
    suffix = _suffix(path)
    return suffix in SUFFIXES or (suffix == ".csv" and is_annif_csv(path))


def read_vocabulary(path: Path, max_problems: int = MAX_PROBLEMS) -> ConceptVocabulary:
    """Return the concepts of a file; equal ones whatever the syntax.

    Args:
        path: Turtle (`.ttl`), N-Triples (`.nt`), RDF/XML (`.rdf`, `.xml`), JSON-LD (`.jsonld`) or
            a table of Annif (`.tsv`, `.csv`), plain or gzip-compressed (`.gz` behind it).
        max_problems: Lines that a message lists.

    Raises:
        DataError: The file can't be read to its end, is not in its syntax, has no concept or only
            names that are not read; or it is RDF and pyoxigraph is not installed.
    """
    facts: Facts = {}
    with garbage_collection_off():
        _read(path, facts, max_problems)
        vocabulary = assemble(facts)
    _check(path, vocabulary)
    return vocabulary


def _read(path: Path, facts: Facts, max_problems: int) -> None:
    # Add the statements of a file to the facts.
    suffix = _suffix(path)
    if suffix in FORMS:
        read_rdf(path, FORMS[suffix], facts, max_problems)
    elif suffix == ".tsv":
        read_annif_tsv(path, facts, max_problems)
    elif suffix == ".csv":
        read_annif_csv(path, facts, max_problems)
    else:
        raise DataError(
            f"{path}: no vocabulary by its name; expected the end .csv, {', '.join(SUFFIXES)}, "
            "or one of these and .gz"
        )


def _check(path: Path, vocabulary: ConceptVocabulary) -> None:
    if not vocabulary.concepts:
        remarks = "".join(f"; {remark}" for remark in vocabulary.left_out.remarks())
        raise DataError(
            f"{path}: no concepts; expected resources with a URI that have the type skos:Concept "
            f"or a skos:prefLabel{remarks}"
        )
    extended = vocabulary.left_out.extended_names
    if extended and not any(concept.names for concept in vocabulary.concepts):
        raise DataError(
            f"{path}: all {extended} names are resources of SKOS-XL, which are not read; "
            "add them as skos:prefLabel and skos:altLabel"
        )


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()
