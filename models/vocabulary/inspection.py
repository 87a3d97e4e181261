"""What is in a vocabulary, in numbers, and what in it may be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from longtail.models.errors import count_of
from longtail.models.vocabulary.concept import UNTAGGED, Concept, ConceptVocabulary

MAX_EXAMPLES = 5
"""Examples of each possible fault."""


@dataclass(frozen=True, slots=True)
class LanguageCounts:
    """What there is in one language.

    Attributes:
        names: Concepts with a preferred name in it.
        other_names: Other names.
        hidden_names: Hidden names.
        definitions: Definitions.
    """

    names: int
    other_names: int
    hidden_names: int
    definitions: int


@dataclass(frozen=True, slots=True)
class VocabularyInspection:
    """The numbers of a vocabulary.

    Attributes:
        num_concepts: Deprecated ones among them.
        num_deprecated: Deprecated ones.
        num_notations: Concepts with a notation.
        languages: By language, the most frequent of preferred names first.
        hierarchy: Broader and narrower concepts.
        equal_names: Preferred names that several concepts have in one language: the language, the
            name and their ids, the first `MAX_EXAMPLES`.
        num_equal_names: How many there are.
        nameless: Ids of concepts without a preferred name in any language, the first
            `MAX_EXAMPLES`.
        num_nameless: How many there are, without deprecated ones.
        second_names: Preferred names that are a second one of a language.
        remarks: Sentences on what the file says and the concepts don't.
    """

    num_concepts: int
    num_deprecated: int
    num_notations: int
    languages: Mapping[str, LanguageCounts]
    hierarchy: Hierarchy
    equal_names: tuple[tuple[str, str, tuple[str, ...]], ...]
    num_equal_names: int
    nameless: tuple[str, ...]
    num_nameless: int
    second_names: int
    remarks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all of it for programs."""
        return asdict(self)

    def suspicions(self) -> list[str]:
        """Return a sentence for each thing that may be wrong."""
        found = []
        if self.num_nameless:
            said = count_of(self.num_nameless, "concept has", "concepts have")
            found.append(f"{said} no preferred name, such as {self.nameless[0]}")
        if self.num_equal_names:
            language, name, ids = self.equal_names[0]
            said = count_of(self.num_equal_names, "name is that", "names are those")
            such = f"{tagged(name, language)} of {' and '.join(ids[:2])}"
            found.append(f"{said} of several concepts, such as {such}")
        return [*found, *faults_of(self.second_names, self.hierarchy), *self.remarks]


def inspect_vocabulary(vocabulary: ConceptVocabulary) -> VocabularyInspection:
    """Return the counts and oddities of a vocabulary."""
    concepts = vocabulary.concepts
    equal = _equal_names(concepts)
    nameless = [x.id for x in concepts if not x.names and not x.is_deprecated]
    return VocabularyInspection(
        num_concepts=len(concepts),
        num_deprecated=sum(concept.is_deprecated for concept in concepts),
        num_notations=sum(bool(concept.notations) for concept in concepts),
        languages=_languages(concepts),
        hierarchy=hierarchy_of(concepts),
        equal_names=tuple(equal[:MAX_EXAMPLES]),
        num_equal_names=len(equal),
        nameless=tuple(nameless[:MAX_EXAMPLES]),
        num_nameless=len(nameless),
        second_names=vocabulary.second_names,
        remarks=tuple(vocabulary.left_out.remarks()),
    )


def faults_of(second_names: int, hierarchy: Hierarchy) -> Iterator[str]:
    """Yield a sentence on second preferred names, and one on circles, where there are any."""
    if second_names:
        said = count_of(second_names, "preferred name is", "preferred names are")
        yield f"{said} a second one of a language, and so taken as other names"
    if cycles := hierarchy.cycles:
        said = count_of(sum(map(len, cycles)), "concept is", "concepts are")
        circles = count_of(len(cycles), "circle")
        yield f"{said} in {circles} of broader concepts, such as {' and '.join(cycles[0][:2])}"


def languages_by_names(concepts: Iterable[Concept]) -> dict[str, int]:
    """Return how many concepts have a preferred name in each language, the most frequent first."""
    counts = Counter(language for concept in concepts for language in concept.names)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def tagged(text: str, language: str) -> str:
    """Return a text as people read it, with its language."""
    return repr(text) if language == UNTAGGED else f"{text!r} ({language})"


def _languages(concepts: Sequence[Concept]) -> dict[str, LanguageCounts]:
    names = languages_by_names(concepts)
    others: dict[str, Counter[str]] = {}
    for kind in ("other_names", "hidden_names", "definitions"):
        counts = others.setdefault(kind, Counter())
        for concept in concepts:
            for language, texts in getattr(concept, kind).items():
                counts[language] += len(texts)
    rest = sorted(set().union(*others.values()) - names.keys())
    return {
        language: LanguageCounts(
            names=names.get(language, 0),
            **{kind: counts[language] for kind, counts in others.items()},
        )
        for language in [*names, *rest]
    }


def _equal_names(concepts: Sequence[Concept]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return each preferred name that several concepts have that are not deprecated."""
    ids: dict[tuple[str, str], list[str]] = {}
    for concept in concepts:
        if not concept.is_deprecated:
            for key in concept.names.items():
                ids.setdefault(key, []).append(concept.id)
    return sorted((*key, tuple(found)) for key, found in ids.items() if len(found) > 1)


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The shape of a vocabulary.

    Attributes:
        num_levels: Length of the longest of all shortest ways down from a concept without a broader
            one; 1 where there are no relations, 0 where all are in circles.
        num_top: Concepts that have narrower ones and no broader one.
        num_alone: Concepts that have neither.
        cycles: The concepts of each circle of broader concepts, as ids.
    """

    num_levels: int
    num_top: int
    num_alone: int
    cycles: tuple[tuple[str, ...], ...]


def hierarchy_of(concepts: Sequence[Concept]) -> Hierarchy:
    """Return the shape of a vocabulary.

    Args:
        concepts: All of it: relations lead to one of them.
    """
    rows = {concept.id: row for row, concept in enumerate(concepts)}
    tops = [concept for concept in concepts if set(concept.broader) <= {concept.id}]
    num_alone = sum(set(concept.narrower) <= {concept.id} for concept in tops)
    return Hierarchy(
        num_levels=_num_levels(concepts, rows, [rows[concept.id] for concept in tops]),
        num_top=len(tops) - num_alone,
        num_alone=num_alone,
        cycles=_cycles(concepts, rows),
    )


def _num_levels(concepts: Sequence[Concept], rows: dict[str, int], level: list[int]) -> int:
    """Return the number of levels below and with a first one: breadth first, each concept once."""
    seen = bytearray(len(concepts))
    num_levels = 0
    while level:
        num_levels += 1
        for row in level:
            seen[row] = True
        below = {rows[narrower] for row in level for narrower in concepts[row].narrower}
        level = [row for row in below if not seen[row]]
    return num_levels


def _cycles(concepts: Sequence[Concept], rows: dict[str, int]) -> tuple[tuple[str, ...], ...]:
    """Return the strongly connected components of more than one concept, and loops."""
    edges = [
        (row, rows[broader]) for row, concept in enumerate(concepts) for broader in concept.broader
    ]
    if not edges:
        return ()
    ends = np.array(edges, dtype=np.int64)
    graph = coo_array(
        (np.ones(len(ends), dtype=np.int8), (ends[:, 0], ends[:, 1])),
        shape=(len(concepts), len(concepts)),
    )
    _, component = connected_components(graph, directed=True, connection="strong")
    is_in_cycle = np.bincount(component)[component] > 1
    is_in_cycle[ends[ends[:, 0] == ends[:, 1], 0]] = True
    found: dict[int, list[str]] = {}
    for row in np.flatnonzero(is_in_cycle).tolist():
        found.setdefault(int(component[row]), []).append(concepts[row].id)
    return tuple(sorted(map(tuple, found.values())))
