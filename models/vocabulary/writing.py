"""Vocabularies as lines of N-Triples and Turtle."""

from __future__ import annotations

import re
from collections.abc import Iterator

from longtail.models.errors import DataError
from longtail.models.vocabulary.concept import (
    CONCEPT,
    DCTERMS,
    DEPRECATED,
    OWL,
    REPLACED_BY,
    SKOS,
    TYPE,
    UNTAGGED,
    Concept,
    ConceptVocabulary,
)

_TAG = re.compile(r"[A-Za-z]+(?:-[A-Za-z0-9]+)*")
_NOT_IN_IRI = re.compile(r"[\x00-\x20<>\"{}|^`\\]")
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
_BOOLEAN = "http://www.w3.org/2001/XMLSchema#boolean"


def ntriples_lines(vocabulary: ConceptVocabulary) -> Iterator[str]:
    """Yield a statement a line.

    Raises:
        DataError: A language tag is none that can be written.
    """
    for concept in vocabulary.concepts:
        for predicate, value in _statements(concept):
            yield f"{_iri(concept.id)} {_iri(predicate)} {value} ."


def turtle_lines(vocabulary: ConceptVocabulary) -> Iterator[str]:
    """Yield the prefixes, and a paragraph for each concept.

    Raises:
        DataError: A language tag is none that can be written.
    """
    yield f"@prefix skos: <{SKOS}> ."
    yield f"@prefix owl: <{OWL}> ."
    yield f"@prefix dcterms: <{DCTERMS}> ."
    for concept in vocabulary.concepts:
        _, *statements = _statements(concept)  # the first is the type
        pairs = ["a skos:Concept"]
        pairs += [f"{_short(predicate)} {value}" for predicate, value in statements]
        yield f"\n{_iri(concept.id)} " + " ;\n    ".join(pairs) + " ."


def _statements(concept: Concept) -> Iterator[tuple[str, str]]:
    """Yield predicates and objects, these as they are written."""
    yield TYPE, _iri(CONCEPT)
    for predicate, texts in (
        ("prefLabel", {language: (name,) for language, name in concept.names.items()}),
        ("altLabel", concept.other_names),
        ("hiddenLabel", concept.hidden_names),
        ("definition", concept.definitions),
        ("notation", {UNTAGGED: concept.notations}),
    ):
        for language, found in texts.items():
            yield from ((SKOS + predicate, _text(text, language)) for text in found)
    for relation in ("broader", "narrower", "related"):
        yield from ((SKOS + relation, _iri(other)) for other in getattr(concept, relation))
    if concept.is_deprecated:
        yield DEPRECATED, f'"true"^^{_iri(_BOOLEAN)}'
    yield from ((REPLACED_BY, _iri(other)) for other in concept.replaced_by)
    yield from ((f"{SKOS}inScheme", _iri(other)) for other in concept.scheme)


def _iri(iri: str) -> str:
    return "<" + _NOT_IN_IRI.sub(lambda found: f"\\u{ord(found.group()):04X}", iri) + ">"


def _short(predicate: str) -> str:
    prefixes = {SKOS: "skos:", OWL: "owl:", DCTERMS: "dcterms:"}
    base = next(each for each in prefixes if predicate.startswith(each))
    return prefixes[base] + predicate.removeprefix(base)


def _text(text: str, language: str) -> str:
    # Return a text in quotes, with its language tag.
    if language and not _TAG.fullmatch(language):
        raise DataError(
            f"the language tag {language!r} of {text!r} can't be written; expected one such as "
            "'en' or 'en-gb'; correct it in the vocabulary"
        )
    return f'"{text.translate(_ESCAPED)}"' + (f"@{language}" if language else "")
