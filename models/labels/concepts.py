"""From the concepts of a vocabulary to labels: which are shown, and how others are treated."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from longtail.models.errors import DataError, count_of
from longtail.models.labels.catalogue import Label
from longtail.models.vocabulary.concept import UNTAGGED, Concept, ConceptVocabulary
from longtail.models.vocabulary.inspection import faults_of, hierarchy_of, languages_by_names
from longtail.models.vocabulary.reading import read_vocabulary

logger = logging.getLogger(__name__)

_NO_TAG = "no language tag"


def read_vocabulary_labels(path: Path, max_problems: int, language: str | None) -> list[Label]:
    """Return a label for each concept of a file, deprecated ones too, in the order of their ids.

    Args:
        path: See `longtail.models.vocabulary.reading.read_vocabulary`.
        max_problems: Lines that a message lists.
        language: Whose names are shown; None: that in which most concepts have one.
    """
    return labels_of(read_vocabulary(path, max_problems), str(path), language)


def labels_of(
    vocabulary: ConceptVocabulary, where: str, language: str | None = None
) -> list[Label]:
    """Return a label for each concept, deprecated ones too; what may surprise is logged.

    Its name is the preferred one in a language, or else in the language that most concepts have one
    in, and so on; or else another name, a notation or the id. All other names of all languages
    become alternative names, hidden ones last.

    Args:
        vocabulary: The concepts.
        where: Its file, for the log.
        language: Whose names are shown; None: that in which most concepts have one.
    """
    counts = languages_by_names(vocabulary.concepts)
    shown = _chosen(counts, where, language)
    ranks = {each: rank for rank, each in enumerate(dict.fromkeys([shown, *counts]))}
    labels = [_label(concept, ranks) for concept in vocabulary.concepts]
    _tell(vocabulary, where, shown)
    return labels


def without_deprecated(
    labels: Iterable[Label], where: str, carried: Container[str] = ()
) -> list[Label]:
    """Return labels that are not deprecated or that documents carry; log how many are left out."""
    given = list(labels)
    kept = [label for label in given if not label.is_deprecated or label.id in carried]
    if len(kept) < len(given):
        logger.warning("%s: %d deprecated concepts are no labels", where, len(given) - len(kept))
    return kept


def _chosen(counts: Mapping[str, int], where: str, language: str | None) -> str:
    # Return the language that is shown.
    if language is None:
        most = next(iter(counts), UNTAGGED)
        if len(counts) > 1:
            logger.warning(
                "%s: names are shown in %s, as most concepts have one in it; there are %s",
                where, most or _NO_TAG, _listed(counts),
            )  # fmt: skip
        return most
    if language.lower() not in counts:
        raise DataError(
            f"{where}: no concept has a name in the language {language!r}; there are "
            f"{_listed(counts) or 'none'}; choose one of them"
        )
    return language.lower()


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{language or _NO_TAG} ({number})" for language, number in counts.items())


def _label(concept: Concept, ranks: Mapping[str, int]) -> Label:
    """Return the label of a concept."""

    def ranked(texts: Iterable[str]) -> list[str]:
        return sorted(texts, key=lambda language: (ranks.get(language, len(ranks)), language))

    names = [concept.names[each] for each in ranked(concept.names)]
    others = {each: concept.other_names[each] for each in ranked(concept.other_names)}
    shown = next(iter(ranks), UNTAGGED)
    found = [
        *names[:1],
        *others.get(shown, ()),
        *names[1:],
        *(name for texts in others.values() for name in texts),
        *(name for each in ranked(concept.hidden_names) for name in concept.hidden_names[each]),
    ]
    name = found[0] if found else next(iter((*concept.notations, concept.id)))
    definitions = next((concept.definitions[x] for x in ranked(concept.definitions)), ())
    return Label(
        concept.id,
        name,
        " ".join(definitions),
        alternative_names=tuple(each for each in dict.fromkeys(found) if each != name),
        parents=concept.broader,
        names={each: text for each, text in concept.names.items() if each != UNTAGGED},
        notation=next(iter(concept.notations), ""),
        broader=concept.broader,
        is_deprecated=concept.is_deprecated,
        replaced_by=concept.replaced_by,
        scheme=concept.scheme,
    )


def _tell(vocabulary: ConceptVocabulary, where: str, shown: str) -> None:
    """Log what may surprise."""
    current = [concept for concept in vocabulary.concepts if not concept.is_deprecated]
    other = sum(bool(concept.names) and shown not in concept.names for concept in current)
    nameless = sum(not concept.names for concept in current)
    remarks = vocabulary.left_out.remarks()
    if other:
        said = count_of(other, "concept has", "concepts have")
        remarks.append(f"{said} no name in {shown or _NO_TAG}; another is shown")
    if nameless:
        said = count_of(nameless, "concept has", "concepts have")
        remarks.append(f"{said} no preferred name; another, a notation or the id is shown")
    remarks.extend(faults_of(vocabulary.second_names, hierarchy_of(vocabulary.concepts)))
    for remark in remarks:
        logger.warning("%s: %s", where, remark)
