"""A vocabulary: concepts with their names in all languages and relations, and how it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from longtail.models.errors import DataError

UNTAGGED = ""
"""Stands for the language of a text that has no language tag."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Concept:
    """One concept of a vocabulary (SKOS, sections 3 to 8).

    Languages are tags in lower case (BCP 47); that of a text without a tag is `UNTAGGED`. All texts
    and ids are sorted, so that equal vocabularies are equal whatever file they come from.

    Attributes:
        id: Its URI.
        names: Preferred name by language (skos:prefLabel).
        other_names: By language (skos:altLabel, and any further skos:prefLabel).
        hidden_names: By language; found in texts, never shown (skos:hiddenLabel).
        notations: Codes, without their datatype (skos:notation).
        definitions: By language (skos:definition).
        broader: Ids of concepts of the same file (skos:broader, or the inverse of skos:narrower).
        narrower: Likewise.
        related: Likewise.
        is_deprecated: Whether it is no longer to be used (owl:deprecated).
        replaced_by: Ids of concepts of the same file that are to be used instead
            (dcterms:isReplacedBy; where a deprecated concept has none, its skos:exactMatch).
        scheme: Ids of the schemes that it is in (skos:inScheme).
    """

    id: str
    names: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    other_names: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING)
    hidden_names: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING)
    notations: tuple[str, ...] = ()
    definitions: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING)
    broader: tuple[str, ...] = ()
    narrower: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    is_deprecated: bool = False
    replaced_by: tuple[str, ...] = ()
    scheme: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOutStatements:
    """What a file says and a `ConceptVocabulary` doesn't.

    Attributes:
        concepts_without_uri: Concepts that are blank nodes.
        unknown_broader: Statements of skos:broader and skos:narrower with a concept that the file
            doesn't have.
        unknown_related: Likewise, of skos:related.
        wrong_kind: Statements with a text where an IRI is expected, or the reverse.
        extended_names: Names that are resources of their own (SKOS-XL), which are not read.
    """

    concepts_without_uri: int = 0
    unknown_broader: int = 0
    unknown_related: int = 0
    wrong_kind: int = 0
    extended_names: int = 0

    def remarks(self) -> list[str]:
        """Return a sentence for each thing that was left out."""
        sentences = {
            "concepts have no URI (blank nodes) and are left out": self.concepts_without_uri,
            "broader or narrower concepts are not in the file and are left out": (
                self.unknown_broader
            ),
            "related concepts are not in the file and are left out": self.unknown_related,
            "statements have a text where an IRI is expected, or the reverse, and are left out": (
                self.wrong_kind
            ),
            "names are resources of SKOS-XL and are left out; add them as skos:prefLabel and "
            "skos:altLabel": self.extended_names,
        }
        return [f"{number} {sentence}" for sentence, number in sentences.items() if number]


@dataclass(frozen=True, slots=True)
class ConceptVocabulary:
    """The concepts of a file, in the order of their ids.

    Attributes:
        concepts: Each id once.
        second_names: Preferred names that are a second one of a language, and so other names.
        left_out: What the file says and the concepts don't.
    """

    concepts: tuple[Concept, ...]
    second_names: int = 0
    left_out: LeftOutStatements = LeftOutStatements()


Property: TypeAlias = Literal[
    "type", "names", "other_names", "hidden_names", "notations", "definitions", "broader",
    "narrower", "related", "deprecated", "replaced_by", "exact_matches", "extended_names",
    "scheme",
]  # fmt: skip
Fact: TypeAlias = tuple[Property, str, str | None]
"""A property, a text or an IRI, and the language: empty where a text has none, None for an IRI."""
Facts: TypeAlias = dict[str, list[Fact]]
"""By IRI of the subject; that of a blank node begins with `BLANK`."""

BLANK: Final = "_:"
SKOS: Final = "http://www.w3.org/2004/02/skos/core#"
RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
OWL: Final = "http://www.w3.org/2002/07/owl#"
SKOS_XL: Final = "http://www.w3.org/2008/05/skos-xl#"
TYPE: Final = f"{RDF}type"
DEPRECATED: Final = f"{OWL}deprecated"
DCTERMS: Final = "http://purl.org/dc/terms/"
REPLACED_BY: Final = f"{DCTERMS}isReplacedBy"
CONCEPT: Final = f"{SKOS}Concept"
NO_CONCEPTS: Final = frozenset(
    f"{SKOS}{name}" for name in ("ConceptScheme", "Collection", "OrderedCollection")
)
"""Types of things that have names too, and are none."""

PROPERTY_OF: Final[dict[str, Property]] = {
    TYPE: "type",
    f"{SKOS}prefLabel": "names",
    f"{SKOS}altLabel": "other_names",
    f"{SKOS}hiddenLabel": "hidden_names",
    f"{SKOS}notation": "notations",
    f"{SKOS}definition": "definitions",
    f"{SKOS}broader": "broader",
    f"{SKOS}narrower": "narrower",
    f"{SKOS}related": "related",
    f"{SKOS}exactMatch": "exact_matches",
    f"{SKOS}inScheme": "scheme",
    DEPRECATED: "deprecated",
    REPLACED_BY: "replaced_by",
    f"{SKOS_XL}prefLabel": "extended_names",
    f"{SKOS_XL}altLabel": "extended_names",
    f"{SKOS_XL}hiddenLabel": "extended_names",
}
"""The properties that are read, by their IRI."""


_TAG = re.compile(r"[A-Za-z]+(?:-[A-Za-z0-9]+)*")
_NOT_IN_IRI = re.compile(r"[\x00-\x20<>\"{}|^`\\]")
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
_BOOLEAN = "http://www.w3.org/2001/XMLSchema#boolean"


def ntriples_lines(vocabulary: ConceptVocabulary) -> Iterator[str]:
    """Yield a statement a line."""
    for concept in vocabulary.concepts:
        for predicate, value in _statements(concept):
            yield f"{_iri(concept.id)} {_iri(predicate)} {value} ."


def turtle_lines(vocabulary: ConceptVocabulary) -> Iterator[str]:
    """Yield the prefixes, and a paragraph for each concept."""
    yield f"@prefix skos: <{SKOS}> ."
    yield f"@prefix owl: <{OWL}> ."
    yield f"@prefix dcterms: <{DCTERMS}> ."
    for concept in vocabulary.concepts:
        _, *statements = _statements(concept)  # the first is the type
        pairs = ["a skos:Concept"]
        pairs += [f"{_short(predicate)} {value}" for predicate, value in statements]
        yield f"\n{_iri(concept.id)} " + " ;\n    ".join(pairs) + " ."


def _statements(concept: Concept) -> Iterator[tuple[str, str]]:
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
