"""What all readers of RDF give: the statements about concepts, by subject."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Property: TypeAlias = Literal[
    "type", "names", "other_names", "hidden_names", "notations", "definitions", "broader",
    "narrower", "related", "deprecated", "replaced_by", "exact_matches", "extended_names",
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
    DEPRECATED: "deprecated",
    REPLACED_BY: "replaced_by",
    f"{SKOS_XL}prefLabel": "extended_names",
    f"{SKOS_XL}altLabel": "extended_names",
    f"{SKOS_XL}hiddenLabel": "extended_names",
}
"""The properties that are read, by their IRI."""
