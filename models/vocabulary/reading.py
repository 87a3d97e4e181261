"""The reader of vocabularies: SKOS in four syntaxes and Annif's tables, by the file's name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from longtail.models.errors import DataError
from longtail.models.files.rows import garbage_collection_off
from longtail.models.vocabulary.concept import (
    BLANK,
    CONCEPT,
    NO_CONCEPTS,
    NOTHING,
    Concept,
    ConceptVocabulary,
    Fact,
    Facts,
    LeftOutStatements,
)
from longtail.models.vocabulary.syntaxes.annif import (
    is_annif_csv,
    is_annif_tsv,
    read_annif_csv,
    read_annif_tsv,
)
from longtail.models.vocabulary.syntaxes.rdf import FORMS, read_rdf

_TRUE = frozenset({"true", "1"})
_RELATIONS = ("broader", "narrower", "related")
_INVERSE = {"broader": "narrower", "narrower": "broader", "related": "related"}
_REPLACEMENTS = ("replaced_by", "exact_matches")
"""Properties that name the replacement of a deprecated concept; the first one present counts."""
_IS_IRI = frozenset({"type", "extended_names", "scheme", *_RELATIONS, *_REPLACEMENTS})
_EITHER = frozenset({"definitions"})
"""Properties whose objects may be texts or resources; only the texts are read."""
_Relations: TypeAlias = dict[str, dict[str, set[str]]]
"""By relation and id, the ids of the others."""
_Texts: TypeAlias = dict[str, set[str]]
"""By language."""


def assemble(facts: Facts) -> ConceptVocabulary:
    """Return the concepts that statements are about.

    A concept is what has the type skos:Concept, or a skos:prefLabel and the type of no scheme or
    collection. A relation between two concepts holds in both directions.

    Args:
        facts: By subject; empty afterwards, so that memory is not held twice.
    """
    counts: Counter[str] = Counter()
    ids = {}
    for subject, about in facts.items():
        if _is_concept(about):
            if subject.startswith(BLANK):
                counts["concepts_without_uri"] += 1
            else:
                ids[subject] = subject
    relations = _relations(facts, ids, counts)
    replacements = _replacements(facts, ids)
    concepts = tuple(
        _concept(id_, facts.pop(id_), relations, replacements, counts) for id_ in sorted(ids)
    )
    facts.clear()
    second_names = counts.pop("second_names", 0)
    return ConceptVocabulary(concepts, second_names, LeftOutStatements(**counts))


def _is_concept(about: list[Fact]) -> bool:
    has_name = False
    has_other_type = False
    for name, value, _ in about:
        if name == "type":
            if value == CONCEPT:
                return True
            has_other_type = has_other_type or value in NO_CONCEPTS
        elif name == "names":
            has_name = True
    return has_name and not has_other_type


def _relations(facts: Facts, ids: Mapping[str, str], counts: Counter[str]) -> _Relations:
    """Return the relations between concepts, each in both directions."""
    found: _Relations = {name: {} for name in _RELATIONS}
    for id_ in ids:
        for name, value, language in facts[id_]:
            if name not in _INVERSE or language is not None:
                continue
            other = ids.get(value)
            if other is None:
                counts["unknown_related" if name == "related" else "unknown_broader"] += 1
                continue
            found[name].setdefault(id_, set()).add(other)
            found[_INVERSE[name]].setdefault(other, set()).add(id_)
    return found


def _replacements(facts: Facts, ids: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the concepts that are to be used instead of others.

    What a concept that is in use matches exactly replaces nothing.
    """
    found: dict[str, tuple[str, ...]] = {}
    for id_ in ids:
        named: dict[str, set[str]] = {}
        for name, value, language in facts[id_]:
            if name in _REPLACEMENTS and language is None and value in ids and value != id_:
                named.setdefault(name, set()).add(ids[value])
        others = named.get("replaced_by", set())
        if not others and "exact_matches" in named and _is_deprecated(facts[id_]):
            others = {x for x in named["exact_matches"] if not _is_deprecated(facts[x])}
        if others:
            found[id_] = tuple(sorted(others))
    return found


def _is_deprecated(about: list[Fact]) -> bool:
    return any(
        name == "deprecated" and language is not None and value.strip() in _TRUE
        for name, value, language in about
    )


def _concept(
    id_: str,
    about: list[Fact],
    relations: _Relations,
    replacements: Mapping[str, tuple[str, ...]],
    counts: Counter[str],
) -> Concept:
    texts: dict[str, _Texts] = {}
    for name, value, language in about:
        if language is None:
            if name == "extended_names":
                counts[name] += 1
            elif name not in _IS_IRI and name not in _EITHER:
                counts["wrong_kind"] += 1
        elif name in _IS_IRI:
            counts["wrong_kind"] += 1
        elif value := value.strip():
            texts.setdefault(name, {}).setdefault(language, set()).add(value)
    names, second = _one_each(texts.get("names", {}))
    others = texts.get("other_names", {})
    for language, more in second.items():
        counts["second_names"] += len(more)
        others.setdefault(language, set()).update(more)
    return Concept(
        id_,
        names,
        _sorted(others),
        _sorted(texts.get("hidden_names")),
        tuple(sorted(set().union(*texts.get("notations", {}).values()))),
        _sorted(texts.get("definitions")),
        broader=tuple(sorted(relations["broader"].pop(id_, ()))),
        narrower=tuple(sorted(relations["narrower"].pop(id_, ()))),
        related=tuple(sorted(relations["related"].pop(id_, ()))),
        is_deprecated=_is_deprecated(about),
        replaced_by=replacements.get(id_, ()),
        scheme=tuple(sorted({x for name, x, kind in about if name == "scheme" and kind is None})),
    )


def _one_each(texts: _Texts) -> tuple[dict[str, str], _Texts]:
    """Return the first text of each language, and the others: SKOS allows one (S14)."""
    first = {language: min(texts[language]) for language in sorted(texts)}
    others = {
        language: found - {first[language]} for language, found in texts.items() if len(found) > 1
    }
    return first, others


def _sorted(texts: _Texts | None) -> Mapping[str, tuple[str, ...]]:
    if not texts:
        return NOTHING
    return {language: tuple(sorted(texts[language])) for language in sorted(texts)}


MAX_PROBLEMS: Final = 20
"""Lines that a message lists, by default."""
SUFFIXES: Final = (*FORMS, ".tsv")
"""Ends of the names of files that are vocabularies, before `.gz`."""


def is_vocabulary_file(path: Path) -> bool:
    """Whether a file is a vocabulary: by its name, and the header of a CSV or TSV file."""
    is_table = {".csv": is_annif_csv, ".tsv": is_annif_tsv}.get(_suffix(path))
    return _suffix(path) in SUFFIXES if is_table is None else is_table(path)


def read_vocabulary(path: Path, max_problems: int = MAX_PROBLEMS) -> ConceptVocabulary:
    """Return the concepts of a file; equal ones whatever the syntax.

    Args:
        path: Turtle (`.ttl`), N-Triples (`.nt`), RDF/XML (`.rdf`, `.xml`), JSON-LD (`.jsonld`) or
            a table of Annif (`.tsv`, `.csv`), plain or gzip-compressed (`.gz` behind it).
        max_problems: Lines that a message lists.
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
